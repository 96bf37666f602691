"""Sentence pairs in files: two aligned texts, or one file with both sides."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from zoo.data.common.files import read_lines
from zoo.data.common.parquet import is_parquet, read_parquet
from zoo.data.common.tables import has_column, read_table, table_kind

COLUMNS = "src", "tgt"  # names of the two columns unless a user gives others
_LOOKED_AT = 20  # lines


def read_pairs(
    src: Path, tgt: Path | None, columns: tuple[str, str] = COLUMNS, keep_empty: bool = False
) -> Iterator[tuple[str, str]]:
    """Sentence pairs, streamed.

    Args:
        src: source sentences, one per line; or both sides if `tgt` is None: a .parquet, .csv or .jsonl file, or a
            tab-separated one.
        tgt: target sentences; line n translates line n of `src`.
        columns: names of the columns in a file of both sides. In a tab-separated one they may be numbers, from "1"; if
            its first line does not name them, they are the first two.
        keep_empty: an empty line of a tab-separated file without names is a pair of empty texts, so that pairs and
            lines have the same numbers; otherwise it is left out.

    Raises:
        ValueError: the two files differ in length, or a column is missing.
    """
    if tgt is not None:
        return _aligned(src, tgt)
    if is_parquet(src):
        return read_parquet(src, *columns)
    if not has_names(src, columns):
        first, second = map(int, columns) if _are_numbers(columns) else (1, 2)
        return _tab_separated(src, first, second, keep_empty)
    try:
        return read_table(src, columns, None)
    except ValueError as error:
        if all(has_column(src, column, None) for column in columns):
            raise
        raise ValueError(f"{error}; name its two columns with src_column and tgt_column") from error


def has_names(path: Path, columns: tuple[str, str] = COLUMNS) -> bool:
    """Whether the columns of a file of both sides are found by name."""
    if is_parquet(path) or table_kind(path) in (".csv", ".jsonl"):
        return True
    return not _are_numbers(columns) and (
        columns != COLUMNS or all(has_column(path, column, None) for column in columns)
    )


def seems_numbered(path: Path) -> bool:
    """Whether a tab-separated file begins with a column that is no text but a number, as exports of databases do."""
    rows = [line.split("\t") for line in islice(read_lines(path), _LOOKED_AT) if line]
    return bool(rows) and all(len(row) > 2 and row[0].isdecimal() for row in rows)


def _are_numbers(columns: tuple[str, str]) -> bool:
    return all(column.isdecimal() and int(column) for column in columns)


def _tab_separated(path: Path, src: int, tgt: int, keep_empty: bool) -> Iterator[tuple[str, str]]:
    """Two columns, counted from 1, of each line."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip(" "):
            if keep_empty:
                yield "", ""
            continue
        columns = line.split("\t")
        if len(columns) < max(src, tgt):
            wanted = "source and target separated by a tab" if max(src, tgt) == 2 else f"{max(src, tgt)} columns"
            found = "one column" if len(columns) == 1 else f"{len(columns)} columns"
            raise ValueError(f"{path}, line {number}: expected {wanted}; got {found}")
        yield columns[src - 1], columns[tgt - 1]


def _aligned(src: Path, tgt: Path) -> Iterator[tuple[str, str]]:
    src_lines, tgt_lines = read_lines(src), read_lines(tgt)
    pairs = 0
    for src_line in src_lines:
        tgt_line = next(tgt_lines, None)
        if tgt_line is None:
            raise _unequal(src, pairs + 1 + sum(1 for _ in src_lines), tgt, pairs)
        pairs += 1
        yield src_line, tgt_line
    if extra := sum(1 for _ in tgt_lines):
        raise _unequal(src, pairs, tgt, pairs + extra)


def _unequal(src: Path, src_count: int, tgt: Path, tgt_count: int) -> ValueError:
    return ValueError(
        f"source and target must have the same number of lines: {src} has {src_count:,}, {tgt} has {tgt_count:,}"
    )
