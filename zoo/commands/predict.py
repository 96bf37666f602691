"""`zoo predict`: raw texts or images in, results out, for models of any task."""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from zoo import registry
from zoo.commands.graphs import load_graphs, uses_graphs
from zoo.plots.html import Section, page
from zoo.plots.style import check_file
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.atomic import write_text
from zoo.utils.extras import require
from zoo.utils.streams import is_utf8
from zoo.verbs.confidence import is_withheld
from zoo.verbs.task import Task
from zoo.vision.images import SUFFIXES

LINES_AT_ONCE = 64  # lines of standard input per call
IMAGES_AT_ONCE = 16
TITLE = 60  # letters of an input in a title
OF_SEARCH = ("beam_size", "n_best")  # options that classifiers do not have
OF_READERS = ("document", "candidates")  # options that only readers have


def run(options: argparse.Namespace) -> None:
    """Answers each text or image: one line, or one JSON object, or N lines with `--n-best`.

    An input that fails is reported on standard error with its number; all others are still answered. In its place, and
    in that of a blank question, there is an empty line, or `null` as JSON, so that output and input have the same
    lines; images have their names instead. Warnings of an answer are one line on standard error.

    Args:
        options: name, text (list), json, plot, html, document, candidates, beam_size, n_best, split_sentences, device,
            precision, runtime, int8.

    Raises:
        ValueError: an option does not suit the model, the device is not there, or --plot has an unknown format or
            needs an extra; or, after all others were answered, a text does not suit the model, or an image cannot be
            read.
        FileNotFoundError: the folder for the picture or page does not exist.
    """
    if options.plot:
        require("plots", "--plot")
        check_file(options.plot)
    if options.html:
        check_file(options.html, picture=False)
    if sys.stdin is None and (not options.text or "-" in (*options.text, options.document)):
        raise ValueError("stdin is closed; give texts, or pipe them in")
    # a file may have any name, and a line that is not UTF-8 costs no other one its answer
    for stream in (sys.stdin, sys.stdout):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure and (stream is sys.stdin or is_utf8(stream)):
            reconfigure(errors="surrogateescape")
    _check_not_read(options)
    keep_freed_memory()
    model, verb = _of_graphs(options) if uses_graphs(options) else _of_torch(options)
    task: Task = model.task
    _check_options(task, model.config.get("beam_size", 5), options)
    named = task.input == "image" and _are_many(options)  # else it would be unclear which line belongs to which file
    number = unread = 0
    sections: list[Section] = []
    faults = Faults("text" if options.text else "line")
    answer = partial(ANSWERS.get(task.input, _of_texts), verb, _of_search(task, options))
    if task.input == "image" and not named:
        answer = partial(answer, alone=True)
    for group in SOURCES[task.input](options):
        for source, result in _answered(group, answer):
            number += 1
            if source is None or isinstance(result, ValueError):
                if source is not None:
                    faults.add(number, result)
                if len(options.text) != 1:  # the only text of a command needs no place
                    print("null" if options.json else "")
                continue
            if result is None:
                unread += 1
                continue
            withheld = not options.json and is_withheld(model.calibration, result.confidence)
            if options.json:
                print(json.dumps({"source": source, **result.to_dict()}, ensure_ascii=False, allow_nan=False))
            else:
                line = _best(result) if task.searches and _n_best(options) > 1 else result.line()
                line = "" if withheld else line
                print(f"{source}\t{line}" if named else line)
            draws = options.plot and any(result.tokens) and getattr(result, "text", True)
            not_given = ["the answer is not printed"] * withheld
            if options.plot and not draws and not result.warnings:
                not_given.append("no picture, as there is nothing to draw")
            if warnings := [*_read_as_texts(source, task), *result.warnings, *not_given]:
                place = source if named else getattr(source, "file", f"{faults.noun} {number}")
                say(f"{place}: warning: {'; '.join(warnings)}")
            title = _title(options.name, task, source)
            if draws:
                result.plot(_numbered(options.plot, number), title=title)
            if options.html:
                sections.append(result.section(title))
        sys.stdout.flush()
    if sections:
        write_text(options.html, page(sections))
    faults.raise_any(number)
    if unread:
        raise ValueError(f"{unread:,} of {number:,} images could not be read; see above")


def say(what: str) -> None:
    """Writes a line to standard error, above a progress bar if there is one."""
    from tqdm import tqdm  # late: takes 0.02 s

    tqdm.write(f"zoo: {what}", file=sys.stderr)


def _read_as_texts(source: Any, task: Task) -> list[str]:
    """A warning about a text that looks like the name of a file, but was read as a text."""
    if not isinstance(source, str) or task.input == "image" or not re.fullmatch(r"\S+\.(txt|md|csv|tsv|html?)", source):
        return []
    how = f"; for its lines: < {source}" if Path(source).is_file() else ": there is no such file"
    return [f"the name of a file was read as a text{how}"]


def _of_graphs(options: argparse.Namespace) -> tuple[Any, Callable[..., Any]]:
    """The model as exported graphs, without torch, and its method for raw input."""
    if options.device != "cpu" or options.precision != "fp32":
        raise ValueError(
            "exported graphs run on the CPU: leave out --device and --precision; for speed there is --int8"
        )
    model = load_graphs(options.name, options.int8)
    return model, getattr(model, model.task.verb)


def _of_torch(options: argparse.Namespace) -> tuple[Any, Callable[..., Any]]:
    """The model, and its method for raw input in the precision asked for."""
    if options.int8:
        raise ValueError("--int8 is for exported graphs: add --runtime onnx")
    import torch  # takes a second, which an earlier mistake need not wait for

    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: this machine has no GPU that torch can use; use --device cpu")
    if options.device == "mps" and not torch.backends.mps.is_available():
        raise ValueError("--device mps: this machine has no Apple GPU that torch can use; use --device cpu")
    model = registry.load(options.name).to(options.device)
    model.precision = options.precision
    return model, getattr(model, model.task.verb)


def _title(name: str, task: Task, source: Any) -> str:
    """The name of the model, and the input: the name of a file, or the beginning of a text, a pair or a query."""
    if task.input == "image":
        text = Path(source).name
    elif isinstance(source, FileText):
        text = source.file
    elif task.input == "question":
        text = source["query"]
    else:
        text = " ".join(" | ".join(source).split() if task.input == "pair" else source.split())
    return " · ".join(filter(None, (name, text if len(text) <= TITLE else text[: TITLE - 1] + "…")))


def _numbered(file: str, number: int) -> Path:
    """Path of the picture of a result."""
    path = Path(file)
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _check_not_read(options: argparse.Namespace) -> None:
    """Raises ValueError if a picture or page would overwrite an input file."""
    targets = {option: file for option in ("plot", "html") if (file := getattr(options, option))}
    names = [name for name in [*options.text, options.document] if targets and name and "\0" not in name]
    read = {os.path.realpath(file) for name in names for file in (Path(name).iterdir() if _is_folder(name) else [name])}
    for option, file in targets.items():
        numbers = range(1, len(read) + 1) if option == "plot" else [1]  # all results are in one page
        for path in (_numbered(file, number) for number in numbers):
            if os.path.realpath(path) in read:
                raise ValueError(f"--{option} would overwrite the input {path}; give another name")


def _answered(group: list[Any], answer: Callable[[list[Any]], list[Any]]) -> Iterator[tuple[Any, Any]]:
    """Each source of a group with its result, or with the ValueError that it raised; None for a blank line."""
    sources = [source for source in group if source is not None and not isinstance(source, ValueError)]
    try:
        results = answer(sources) if sources else []
    except ValueError:  # which one was it?
        results = [_or_error(lambda source: answer([source])[0], source) for source in sources]
    found = iter(zip(sources, results, strict=True))
    return ((source, source) if source is None or isinstance(source, ValueError) else next(found) for source in group)


def _or_error(function: Callable[..., Any], *arguments: Any) -> Any:
    """The return value of a function, or the ValueError that it raises."""
    try:
        return function(*arguments)
    except ValueError as error:
        return error


class FileText(str):
    """The text of a file.

    Attributes:
        file: the name of the file, without its folder.
    """

    file: str


class Faults:
    """Collects failures. A single input's failure is the error of the command; of several each is reported at once."""

    def __init__(self, noun: str) -> None:
        self.noun, self._count, self._first = noun, 0, ""

    def add(self, number: int, error: ValueError) -> None:
        """Records the failure of a text, counted from 1."""
        said = "it is not UTF-8 text" if isinstance(error, UnicodeEncodeError) else str(error)
        message = " ".join(said.split()).replace("text 1 has", "the text has")  # it was the only text of its call
        fault = f"{self.noun} {number}: {message}"
        self._count += 1
        if self._count == 1:
            self._first = fault
            return
        for message in [self._first, fault] if self._count == 2 else [fault]:
            print(f"zoo: {message}", file=sys.stderr)

    def raise_any(self, number: int) -> None:
        """Raises ValueError if any of a number of texts failed."""
        if self._count == 1:
            alone = number == 1 and self.noun == "text"
            raise ValueError(self._first.partition(": ")[2] if alone else self._first)
        if self._count:
            raise ValueError(f"{self._count:,} of {number:,} {self.noun}s could not be answered; see above")


def _check_options(task: Task, beam_size: int, options: argparse.Namespace) -> None:
    """Raises early for an option that does not suit the model; `beam_size` is the model's own if not given."""
    for option in OF_READERS:
        if getattr(options, option) is not None and task.input != "question":
            raise ValueError(f"{options.name} is for {task.name}: --{option} is for reading")
    for option in OF_SEARCH:
        if getattr(options, option) is not None and not task.searches:
            raise ValueError(
                f"{options.name} is for {task.name}: --{option.replace('_', '-')} is for translation, completion and "
                "captions"
            )
    if not options.split_sentences and task.name != "translation":
        raise ValueError(f"{options.name} is for {task.name}: --no-split-sentences is for translation")
    if task.searches:
        beam_size = beam_size if options.beam_size is None else options.beam_size
        if beam_size < 1:
            raise ValueError(f"beam_size must be at least 1; got {beam_size}")
        if not 1 <= _n_best(options) <= beam_size:
            raise ValueError(f"n_best must be between 1 and beam_size = {beam_size}; got {options.n_best}")


# ---- inputs ----


def _texts(options: argparse.Namespace) -> Iterator[list[str]]:
    """The texts of the command line, or lines of standard input."""
    return iter([options.text]) if options.text else _lines(sys.stdin)


def _documents(options: argparse.Namespace) -> Iterator[list[str]]:
    """The same; a text that is a file name means the file's content, `-` all of standard input."""
    return iter([[_or_error(_content, text) for text in options.text]]) if options.text else _lines(sys.stdin)


def _pairs(options: argparse.Namespace) -> Iterator[list[tuple[str, str]]]:
    """Pairs of texts on the command line, or lines of standard input with a tab between the two texts."""
    if len(options.text) % 2:
        raise ValueError(f"{options.name} compares two texts: give an even number of them; got {len(options.text)}")
    if options.text:
        yield list(zip(options.text[::2], options.text[1::2], strict=True))
        return
    for group in _lines(sys.stdin):
        yield [_or_error(_pair, line) for line in group]


def _pair(line: str) -> tuple[str, str]:
    if line.count("\t") != 1:
        raise ValueError(f"each line must have two texts separated by a tab; got {line!r:.100}")
    first, second = line.split("\t")
    return first, second


def _questions(options: argparse.Namespace) -> Iterator[list[dict[str, Any] | ValueError | None]]:
    """Queries of the command line about --document, or lines of standard input: queries or JSON objects."""
    common: dict[str, Any] = {}
    if options.document == "-" and not options.text:
        raise ValueError("--document - reads the document from standard input: give the queries on the command line")
    if options.document is not None:
        if not re.search(r"\s", options.document) and not Path(options.document).is_file() and options.document != "-":
            what = (
                "it is empty"
                if not options.document
                else "it is a folder"
                if _is_folder(options.document)
                else "it is not a regular file"
                if _exists(options.document)
                else "no such file"
            )
            raise ValueError(f"--document {options.document}: {what}; give a text file, or the document itself")
        common["document"] = _content(options.document)
    if options.candidates is not None:
        common["candidates"] = [word.strip() for word in options.candidates.split("|")]
    if options.text:
        if "document" not in common:
            raise ValueError(f"{options.name} answers queries about a document: give --document FILE")
        yield [{**common, "query": query} for query in options.text]
        return
    for group in _lines(sys.stdin):
        yield [_or_error(_question, line, common) if line.strip() else None for line in group]


def _question(line: str, common: dict[str, Any]) -> dict[str, Any]:
    """The checked content of a line: a query about --document, or a JSON object."""
    if "document" in common and not line.lstrip().startswith("{"):
        return {**common, "query": line}
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"each line must be a JSON object with the fields document, query and, optionally, candidates; {error}"
        ) from error
    if not isinstance(fields, dict) or not {"document", "query"} <= fields.keys() | common.keys():
        raise ValueError(
            "each line must be a JSON object with the fields document, query and, optionally, candidates; got "
            f"{line:.100}"
        )
    if unknown := sorted(fields.keys() - {"document", "query", "candidates"}):
        raise ValueError(f"a line has the fields document, query and candidates; got {', '.join(unknown)}")
    for name in ("document", "query"):
        if not isinstance(fields.get(name, ""), str):
            raise ValueError(f"{name!r} of a line must be a string; got {fields[name]!r:.50}")
    candidates = fields.get("candidates")
    if candidates is not None and not (
        isinstance(candidates, list) and all(isinstance(word, str) for word in candidates)
    ):
        raise ValueError(f"'candidates' of a line must be a list of strings; got {candidates!r:.50}")
    return {**common, **{name: value for name, value in fields.items() if value is not None}}


def _content(text: str) -> str:
    if text == "-":
        return sys.stdin.read()
    try:
        is_file = Path(text).is_file()
    except (OSError, ValueError):  # too long for a file name, or not a file name
        return text
    if not is_file:
        if "/" in text and _is_folder(text):  # a word may happen to be the name of a folder
            raise ValueError(f"{text} is a folder; give text files, e.g. {text.rstrip('/')}/*.txt")
        if "/" in text and _exists(text):
            raise ValueError(f"{text} is not a regular file; give a text file")
        return text
    try:
        data = Path(text).read_bytes()
    except OSError as error:
        raise ValueError(f"{text}: {error.strerror}") from error
    try:
        found = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{text} is not UTF-8 text (byte {error.start:,}); convert it first, e.g. with iconv"
        ) from error
    if "\0" in found:
        raise ValueError(f"{text} is a binary file; give a text file")
    read = FileText(found)
    read.file = Path(text).name
    return read


def _images(options: argparse.Namespace) -> Iterator[list[str]]:
    """Image files of the command line, or of lines of standard input; a folder means the image files in it."""
    names = options.text or (line for group in _lines(sys.stdin) for line in group if line.strip())
    files, total = (file for name in names for file in _files(name, len(options.text) == 1)), None
    if options.text:
        files = [*files]
        files, total = iter(files), len(files)
    from tqdm import tqdm  # late: see `say`

    with tqdm(total=total, unit="image", disable=None if _are_many(options) else True) as progress:
        while group := list(islice(files, IMAGES_AT_ONCE)):
            yield group
            progress.update(len(group))


def _are_many(options: argparse.Namespace) -> bool:
    return len(options.text) != 1 or _is_folder(options.text[0])


def _is_folder(name: str) -> bool:
    return _exists(name) and Path(name).is_dir()


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long for a file name, or not a file name
        return False


def _files(name: str, alone: bool) -> list[str]:
    """An image file, or those of a folder."""
    if not _is_folder(name):
        return [name]
    found = sorted(str(path) for path in Path(name).iterdir() if path.suffix.lower() in SUFFIXES)
    if not found and alone:
        raise ValueError(f"the folder {name} has no images ({', '.join(sorted(SUFFIXES))})")
    return found or [name]  # which cannot be opened, and does not keep the others from it


def _lines(stream: TextIO) -> Iterator[list[str]]:
    """Lines in groups, without line ends; one by one if a person types them."""
    at_once = 1 if stream.isatty() else LINES_AT_ONCE
    lines = (line.rstrip("\r\n") for line in stream)
    lines = (line if number else line.removeprefix("\ufeff") for number, line in enumerate(lines))
    while group := list(islice(lines, at_once)):
        yield group


# ---- outputs ----


def _n_best(options: argparse.Namespace) -> int:
    return 1 if options.n_best is None else options.n_best


def _of_search(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    if not task.searches:
        return {}
    whole = {} if options.split_sentences else {"split_sentences": False}
    return {"beam_size": options.beam_size, "n_best": _n_best(options), **whole}


def _best(result: Any) -> str:
    return "\n".join(f"{score:.4f}\t{hypothesis}" for hypothesis, score in result.n_best)


def _of_texts(verb: Callable[..., list[Any]], search: dict[str, Any], texts: list[Any]) -> list[Any]:
    return verb(texts, **search)


def _of_images(
    verb: Callable[..., list[Any]], search: dict[str, Any], files: list[str], alone: bool = False
) -> list[Any]:
    """None, and a line on standard error, for a file that cannot be read; an `ImageError` if it is the only one."""
    from zoo.vision.images import ImageError, open_image

    opened = {}
    for n, file in enumerate(files):
        try:
            opened[n] = open_image(file)
        except ImageError as error:
            if alone:
                raise
            say(str(error))
    found = dict(zip(opened, verb(list(opened.values()), **search), strict=True))
    return [found.get(n) for n in range(len(files))]


def _of_questions(verb: Callable[..., Any], search: dict[str, Any], questions: list[dict[str, Any]]) -> list[Any]:
    parts = [[question.get(name) for question in questions] for name in ("document", "query", "candidates")]
    return verb(*parts) if len(questions) > 1 else [verb(*(part[0] for part in parts))]


SOURCES = {
    "text": _texts,
    "document": _documents,
    "pair": _pairs,
    "image": _images,
    "question": _questions,
}  # by `Task.input`
ANSWERS = {"image": _of_images, "question": _of_questions}
