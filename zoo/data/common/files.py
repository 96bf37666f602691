"""Locations of data and caches, and plain text files read line by line."""

import codecs
import glob
import gzip
import hashlib
import heapq
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, cast

from zoo.data.common.cache import file_digest
from zoo.utils.places import at_home
from zoo.utils.regular import check_regular


def data_root(root: str | None) -> Path | None:
    """`root`, else the environment variable `ZOO_DATA`, else None; a given root must exist.

    Raises:
        FileNotFoundError: the given folder does not exist.
        NotADirectoryError: it is a file.
    """
    named = root or os.environ.get("ZOO_DATA")
    if not named:
        return None
    folder = at_home(named)
    if not folder.is_dir():
        source = "root" if root else "ZOO_DATA"
        if folder.exists():
            raise NotADirectoryError(f"{source} is {folder}, which is not a folder; give the folder of the data")
        raise FileNotFoundError(
            f"{source} is the folder {folder}, which does not exist; "
            "correct it, or leave it out to download the data on a connected machine"
        )
    return folder


def own_path(root: str | None, name: str) -> Path:
    """A user's own file or folder: a relative path starts from `root` (else `ZOO_DATA`) if it exists there, otherwise
    from the working directory.
    """
    path = at_home(name)
    below_root = (data_root(root) or Path()) / path
    return below_root if below_root.exists() or not path.exists() else path


def missing(root: str | None, name: str, what: str = "file") -> str:
    """Says where an `own_path` was looked for."""
    path, here = own_path(root, name), at_home(name)
    return f"there is no {what} {path}{'' if path == here else ', nor is it in the working directory'}"


def named_file(root: str | None, argument: str, name: str) -> Path:
    """A user's own file, at its `own_path`.

    Raises:
        FileNotFoundError: it does not exist; the message starts with `argument`.
        ValueError: it is a folder or a pipe.
    """
    path = own_path(root, name)
    if not path.exists():
        raise FileNotFoundError(f"{argument}: {missing(root, name)}")
    try:
        check_regular(path)
    except ValueError as error:
        raise ValueError(f"{argument}: {error}") from error
    return path


def named_files(root: str | None, argument: str, name: str) -> list[Path]:
    """A user's own file, or all files that a pattern with `*` or `?` matches, sorted by name.

    Raises:
        FileNotFoundError: there is none; the message starts with `argument`.
        ValueError: one is a folder or a pipe.
    """
    if not is_pattern(root, name):
        return [named_file(root, argument, name)]
    pattern = _own_pattern(root, name)
    found = _matches(pattern)
    if not found:
        raise FileNotFoundError(f"{argument}: no file matches {pattern}")
    return [named_file(None, argument, file) for file in found]


def _own_pattern(root: str | None, name: str) -> Path:
    """As `own_path`: from the working directory if the pattern matches only there."""
    pattern = at_home(name)
    below_root = (data_root(root) or Path()) / pattern
    return below_root if _matches(below_root) or not _matches(pattern) else pattern


def _matches(pattern: Path) -> list[str]:
    return sorted(glob.glob(os.path.abspath(pattern).replace("[", "[[]")))


def is_pattern(root: str | None, name: str) -> bool:
    """Whether a name stands for several files: it has `*` or `?`, and is no file itself."""
    return any(mark in name for mark in "*?") and not own_path(root, name).exists()


def check_partners(root: str | None, src_name: str, src: list[Path], tgt_name: str, tgt: list[Path]) -> None:
    """Checks that file n of the target is the partner of file n of the source.

    Args:
        root: from which relative patterns start, as for `named_files`.
        src_name: pattern of the source files.
        src: the files that it matches, sorted.
        tgt_name: the same of the target.
        tgt: the same of the target.

    Raises:
        ValueError: their numbers differ, or what the wildcards stand for.
    """
    if len(src) != len(tgt):
        raise ValueError(
            f"source and target must have the same number of files: {src_name} matches {len(src):,}, {tgt_name} "
            f"{len(tgt):,}"
        )
    for first, second in zip(src, tgt):
        if _wildcards(root, src_name, first) != _wildcards(root, tgt_name, second):
            raise ValueError(f"{first} and {second} are not partners: what the wildcards stand for must be the same")


def _wildcards(root: str | None, pattern: str, path: Path) -> str:
    """What the wildcards of a pattern stand for in a path that it matches."""
    named = _own_pattern(root, pattern)
    expression, matched = (Path(os.path.abspath(name)).as_posix() for name in (named, path))
    found = re.fullmatch(re.escape(expression).replace(r"\*", "([^/]*)").replace(r"\?", "([^/])"), matched)
    return "/".join(found.groups()) if found else path.name


def read_lines(path: Path, encoding: str | None = None) -> Iterator[str]:
    r"""Lines of a file, plain, .gz or .xz, without line ends; only "\n" and "\r\n" end a line.

    Args:
        path: the file.
        encoding: a user's choice, in which a line end must be one byte; UTF-8 if None.

    Raises:
        ValueError: the file is not text in this encoding, or is damaged.
    """
    number = 0
    try:
        with decompressed(path) as file:
            for number, line in enumerate(file, 1):
                text = _decode(line, encoding, f"{path}, line {number}")
                yield text.removeprefix("\ufeff") if number == 1 else text
    except DamagedError as error:
        raise DamagedError(f"{error}; the last line that can be read is {number:,}") from error


class DamagedError(ValueError):
    """A compressed file is damaged or cut off."""


@contextmanager
def decompressed(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, plain, .gz or .xz.

    Raises:
        ValueError: it is not a file.
        DamagedError: it is damaged, which may be found only while reading.
    """
    check_regular(path)
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix.lower(), open)
    try:
        with opener(path, "rb") as file:
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise DamagedError(f"{path}: not a complete {path.suffix} file: {error}") from error


def _decode(line: bytes, encoding: str | None, where: str) -> str:
    try:
        text = line.decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        _check_not_utf16(line, where)
        raise ValueError(
            f"{where}: byte 0x{line[error.start]:02x} (number {error.start + 1} of the line) is not "
            f"{encoding or 'utf-8'} text; "
            + (
                "if the file is text, pass its encoding=, for example 'latin-1' (--data.encoding latin-1)"
                if encoding
                else "save the file as utf-8"
            )
        ) from error
    if "\0" in text:
        _check_not_utf16(line, where)
        raise ValueError(f"{where}: has a zero byte, so this is a binary file, or text in an encoding like utf-16")
    return text.rstrip("\r\n")


def _check_not_utf16(line: bytes, where: str) -> None:
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{where}: this is utf-16 text, as some spreadsheets save it; save the file as utf-8")


def draw(text: str, seed: int) -> float:
    """A number in [0, 1) that depends only on the text and the seed, so that repeated texts are held out together."""
    digest = hashlib.blake2b(f"{seed}\t{text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def held_out_below(texts: Iterable[str], fraction: float, seed: int, alike: str, option: str = "val") -> float:
    """What `draw` is compared with: texts below it are held out.

    Args:
        texts: those to divide; of many only the first are read.
        fraction: the share of them that is to be held out.
        seed: of `draw`.
        alike: what is wrong if there are no two different texts.
        option: that gives others.

    Returns:
        `fraction`, or what holds out one text and keeps the others where that would hold out none or all of them.

    Raises:
        ValueError: there are no two different texts.
    """
    found: set[float] = set()
    sides: set[bool] = set()
    for text in texts:
        found.add(drawn := draw(text, seed))
        sides.add(drawn < fraction)
        if len(sides) == 2:
            return fraction
    if len(found) < 2:
        raise ValueError(f"{alike}, so none can be held out; give others as {option}= (--data.{option} FILE)")
    return sum(sorted(found)[:2]) / 2


def sampled(pairs: Iterable[tuple[str, str]], size: int | None, seed: int = 0) -> Iterator[tuple[str, str]]:
    """The first pairs of a fixed shuffle, in the order of the text; memory grows with `size`, not with the text.

    Args:
        pairs: the pairs.
        size: how many; a smaller sample is part of each larger one. None: all.
        seed: of the shuffle.

    Raises:
        ValueError: there are fewer.
    """
    if size is None:
        yield from pairs
        return
    numbered = ((draw(str(n), seed), n, pair) for n, pair in enumerate(pairs))
    found = heapq.nsmallest(size, numbered)
    if len(found) < size:
        raise ValueError(f"train_size must be at most {len(found):,}, the number of training pairs; got {size:,}")
    for _, pair in sorted((n, pair) for _, n, pair in found):
        yield pair


def check_fraction(name: str, value: float) -> None:
    """Raises ValueError for a share of the data that cannot be held out."""
    if not 0 < value < 0.5:
        raise ValueError(f"{name} must be between 0 and 0.5; got {value}")


def check_encoding(encoding: str) -> None:
    """Raises ValueError for an encoding whose line ends `read_lines` would not find, or that does not exist."""
    try:
        fits = b"a\n".decode(encoding) == "a\n"
    except (LookupError, ValueError, TypeError):
        fits = False
    if not fits:
        raise ValueError(f"encoding must be a superset of ASCII, e.g. 'utf-8', 'latin-1', 'cp1252'; got {encoding!r}")


def fingerprint(*parts: object) -> str:
    """Short hash of JSON-able values; a `Path` counts with its name and its content, so that changes are noticed."""

    def describe(value: object) -> object:
        if isinstance(value, Path):
            check_regular(value)
            return [value.name, _content(value.resolve(), state(os.stat(value)))]
        raise TypeError(f"a {type(value).__name__}, {value}, is no text, number, list or mapping")

    return hashlib.sha256(json.dumps(parts, default=describe).encode()).hexdigest()[:24]


def state(status: os.stat_result) -> tuple[int, ...]:
    """State of a file that changes when the file does, even if its size and modification time are restored."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@lru_cache(maxsize=2**12)
def _content(path: Path, state: tuple[int, ...]) -> str:
    return file_digest(path)
