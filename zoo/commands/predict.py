"""`zoo predict`: raw texts or images in, results out, for models of any task."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.commands.graphs import load_graphs, uses_graphs
from zoo.commands.inputs import SOURCES, FileText, are_many, check_not_read, numbered, or_error
from zoo.commands.reporting import Faults, say
from zoo.plots.html import Section, page
from zoo.plots.style import check_file
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.atomic import write_text
from zoo.utils.extras import require
from zoo.utils.streams import is_utf8
from zoo.verbs.confidence import is_withheld
from zoo.verbs.task import Task

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
    check_not_read(options, [*options.text, options.document])
    keep_freed_memory()
    model, verb = _of_graphs(options) if uses_graphs(options) else _of_torch(options)
    task: Task = model.task
    _check_options(task, model.config.get("beam_size", 5), options)
    answers = _Answers(options, task, model.calibration)
    answer = partial(ANSWERS.get(task.input, _of_texts), verb, _of_search(task, options))
    if task.input == "image" and not answers.named:
        answer = partial(answer, alone=True)
    for group in SOURCES[task.input](options):
        for source, result in _answered(group, answer):
            answers.add(source, result)
        sys.stdout.flush()
    answers.end()


class _Answers:
    """Prints the answers of a command, draws them, and counts the inputs that have none.

    Attributes:
        named: whether a line begins with the name of its input; else it would be unclear which belongs to which image.
    """

    def __init__(self, options: argparse.Namespace, task: Task, calibration: Any) -> None:
        self._options, self._task, self._calibration = options, task, calibration
        self.named = task.input == "image" and are_many(options)
        self._number = self._unread = 0
        self._sections: list[Section] = []
        self._faults = Faults("text" if options.text else "line")

    def add(self, source: Any, result: Any) -> None:
        """Prints the next answer: a result, the `ValueError` of an input, or None for a blank line (its source is None,
        too) or an image that cannot be read."""
        self._number += 1
        if isinstance(result, ValueError):
            self._faults.add(self._number, result)
        if source is None or isinstance(result, ValueError):
            if len(self._options.text) != 1:  # the only text of a command needs no place
                print("null" if self._options.json else "")
        elif result is None:
            self._unread += 1
        else:
            self._print(source, result)

    def _print(self, source: Any, result: Any) -> None:
        options = self._options
        withheld = not options.json and is_withheld(self._calibration, result.confidence)
        if options.json:
            print(json.dumps({"source": source, **result.to_dict()}, ensure_ascii=False, allow_nan=False))
        else:
            lines = _best(result) if self._task.searches and _n_best(options) > 1 else [result.line()]
            for line in [""] if withheld else lines:
                print(f"{source}\t{line}" if self.named else line)
        draws = options.plot and any(result.tokens) and getattr(result, "text", True)
        not_given = ["the answer is not printed"] * withheld
        if options.plot and not draws and not result.warnings:
            not_given.append("no picture, as there is nothing to draw")
        if warnings := [*_read_as_texts(source, self._task), *result.warnings, *not_given]:
            place = source if self.named else getattr(source, "file", f"{self._faults.noun} {self._number}")
            say(f"{place}: warning: {'; '.join(warnings)}")
        title = _title(options.name, self._task, source)
        if draws:
            result.plot(numbered(options.plot, self._number), title=title)
        if options.html:
            self._sections.append(result.section(title))

    def end(self) -> None:
        """Writes the page; raises ValueError if inputs have no answer."""
        if self._sections:
            write_text(self._options.html, page(self._sections))
        self._faults.raise_any(self._number)
        if self._unread:
            raise ValueError(f"{self._unread:,} of {self._number:,} images could not be read; see above")


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


def _answered(group: list[Any], answer: Callable[[list[Any]], list[Any]]) -> Iterator[tuple[Any, Any]]:
    """Each source of a group with its result, or with the ValueError that it raised; None for a blank line."""
    sources = [source for source in group if source is not None and not isinstance(source, ValueError)]
    try:
        results = answer(sources) if sources else []
    except ValueError:  # which one was it?
        results = [or_error(lambda source: answer([source])[0], source) for source in sources]
    found = iter(zip(sources, results, strict=True))
    return ((source, source) if source is None or isinstance(source, ValueError) else next(found) for source in group)


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


def _n_best(options: argparse.Namespace) -> int:
    return 1 if options.n_best is None else options.n_best


def _of_search(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    if not task.searches:
        return {}
    whole = {} if options.split_sentences else {"split_sentences": False}
    return {"beam_size": options.beam_size, "n_best": _n_best(options), **whole}


def _best(result: Any) -> list[str]:
    return [f"{score:.4f}\t{hypothesis}" for hypothesis, score in result.n_best]


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


ANSWERS = {"image": _of_images, "question": _of_questions}
