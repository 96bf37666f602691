"""What `zoo predict` reads, by `Task.input`: texts, pairs, questions or images, from its arguments or standard input.

Each source yields groups that are answered together. In a group, an input that cannot be read is the `ValueError` that
says why, and a blank line, where it means nothing, is None.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from zoo.verbs.reading import BLANK
from zoo.vision.images import OTHER_SUFFIXES, SUFFIXES

LINES_AT_ONCE = 64  # lines of standard input per call
IMAGES_AT_ONCE = 16


class FileText(str):
    """The text of a file.

    Attributes:
        file: the name of the file, without its folder.
    """

    file: str


def or_error(function: Callable[..., Any], *arguments: Any) -> Any:
    """The return value of a function, or the ValueError that it raises."""
    try:
        return function(*arguments)
    except ValueError as error:
        return error


def _texts(options: argparse.Namespace) -> Iterator[list[str]]:
    """The texts of the command line, or lines of standard input."""
    return iter([options.text]) if options.text else _lines(sys.stdin)


def _documents(options: argparse.Namespace) -> Iterator[list[str]]:
    """The same; a text that is a file name means the file's content, `-` all of standard input."""
    return iter([[or_error(_content, text) for text in options.text]]) if options.text else _lines(sys.stdin)


def _pairs(options: argparse.Namespace) -> Iterator[list[tuple[str, str]]]:
    """Pairs of texts on the command line, or lines of standard input with a tab between the two texts."""
    if len(options.text) % 2:
        raise ValueError(f"{options.name} compares two texts: give an even number of them; got {len(options.text)}")
    if options.text:
        yield list(zip(options.text[::2], options.text[1::2], strict=True))
        return
    for group in _lines(sys.stdin):
        yield [or_error(pair, line) for line in group]


def pair(line: str) -> tuple[str, str]:
    """The two texts of a line."""
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
                if is_folder(options.document)
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
        if "candidates" in common and (stray := next((text for text in options.text if BLANK not in text), None)):
            raise ValueError(
                f"a query must have {BLANK} in place of the missing word; got {stray!r:.100}; several candidates are "
                "joined by a bar, in quotes: --candidates 'Ann|Tom'"
            )
        yield [{**common, "query": query} for query in options.text]
        return
    for group in _lines(sys.stdin):
        yield [or_error(_question, line, common) if line.strip() else None for line in group]


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
        if "/" in text and is_folder(text):  # a word may happen to be the name of a folder
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
    if options.text or options.plot and not sys.stdin.isatty():  # no picture may be written over a later image
        files = [*files]
        check_not_read(options, files)
        files, total = iter(files), len(files)
    from tqdm import tqdm  # late: see `say`

    with tqdm(total=total, unit="image", disable=None if are_many(options) else True) as progress:
        while group := list(islice(files, IMAGES_AT_ONCE)):
            yield group
            progress.update(len(group))


def are_many(options: argparse.Namespace) -> bool:
    return len(options.text) != 1 or is_folder(options.text[0])


def numbered(file: str, number: int) -> Path:
    """Path of the picture of a result."""
    path = Path(file)
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def check_not_read(options: argparse.Namespace, names: Sequence[str | None]) -> None:
    """Raises ValueError if a picture or page would overwrite an input file; `names` may also be texts, or folders."""
    targets = {option: file for option in ("plot", "html") if (file := getattr(options, option))}
    named = [name for name in names if targets and name and "\0" not in name]
    files = [file for name in named for file in (Path(name).iterdir() if is_folder(name) else [name])]
    read = {os.path.realpath(file) for file in files}
    for option, file in targets.items():
        numbers = range(1, len(files) + 1) if option == "plot" else [1]  # all results are in one page
        for path in (numbered(file, number) for number in numbers):
            if os.path.realpath(path) in read:
                raise ValueError(f"--{option} would overwrite the input {path}; give another name")


def is_folder(name: str) -> bool:
    return _exists(name) and Path(name).is_dir()


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long for a file name, or not a file name
        return False


def _files(name: str, alone: bool) -> list[str]:
    """An image file, or those of a folder."""
    if not is_folder(name):
        return [name]
    files = sorted(Path(name).iterdir())
    found = [str(path) for path in files if path.suffix.lower() in SUFFIXES]
    if other := [path for path in files if path.suffix.lower() in OTHER_SUFFIXES]:
        kinds = ", ".join(sorted({path.suffix.lower() for path in other}))
        print(
            f"zoo: {name}: images of kinds that cannot be read are left out: {len(other)} of {kinds}", file=sys.stderr
        )
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


SOURCES = {
    "text": _texts,
    "document": _documents,
    "pair": _pairs,
    "image": _images,
    "question": _questions,
}  # by `Task.input`
