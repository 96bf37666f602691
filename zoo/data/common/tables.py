"""Labelled texts in common formats: tab-separated tables, CSV, JSON lines, one folder per class."""

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from zoo.data.common.files import read_lines

LONGEST = 2**31 - 1  # characters of a field of a .csv; Python's own limit of 131,072 is less than some e-mails have

Bounds = Mapping[str, tuple[float, float]]  # numeric column -> minimum and maximum


NAMES = {"\t": "tab", ",": "comma", ";": "semicolon"}  # what separates columns


def has_column(path: Path, column: str, encoding: str | None = "utf-8") -> bool:
    """Whether the header of a table names a column; of JSON lines, whether the first object has it."""
    lines = read_lines(path, encoding)
    if table_kind(path) == ".jsonl":
        return re.search(rf'"{re.escape(column)}"\s*:', next(filter(None, lines), "")) is not None
    header = next(lines, "")
    if (mark := _separator(path, header, [column])) == "\t":
        return column in header.split(mark)
    return column in next(_csv_fields(path, iter([header]), mark), (1, []))[1]


def read_table(
    path: Path,
    columns: Sequence[str],
    encoding: str | None = "utf-8",
    lists: Sequence[str] = (),
    numbers: Bounds | None = None,
) -> Iterator[tuple[Any, ...]]:
    """The named columns of a table, row by row.

    Args:
        path: its extension gives the format: .jsonl (one JSON object per line), .csv with a comma or a semicolon in
            its header (quoted as spreadsheets write it; a text may have several lines), or else a tab-separated table
            with a header and no quoting; all also .gz or .xz.
        columns: names in the header, or keys of the objects; their values are strings.
        encoding: of the text; None: UTF-8, which a user cannot change.
        lists: the columns with lists of strings: JSON lists, or strings joined by "|" in a table.
        numbers: the columns with numbers.

    Raises:
        ValueError: a column is missing, a line is malformed, or the file cannot be read; the message has the line
            number.
    """
    lines = read_lines(path, encoding)
    if table_kind(path) == ".jsonl":
        rows = _json_rows(path, lines, columns, lists, numbers or {})
    else:
        header = next(lines, "")
        mark, lines = _separator(path, header, columns), chain([header], lines)
        fields = _tab_fields(lines) if mark == "\t" else _csv_fields(path, lines, mark)
        rows = _table_rows(path, fields, mark, columns, lists, numbers or {})
    first = next(rows, None)
    if first is None:
        begins = next(read_lines(path, encoding), "")
        found = "has a header and no row" if begins else "begins with an empty line; its first must name the columns"
        raise ValueError(f"{path} {found if any(read_lines(path, encoding)) else 'is empty'}")
    return chain([first], rows)


def table_kind(path: Path) -> str:
    """The extension without that of a compression."""
    return Path(path.stem if path.suffix.lower() in (".gz", ".xz") else path).suffix.lower()


def _separator(path: Path, header: str, columns: Sequence[str]) -> str:
    """What separates the columns of a table; spreadsheets of some languages write .csv with semicolons."""
    marks = [mark for mark in "\t,;" if mark in header] if table_kind(path) == ".csv" else []

    def named(mark: str) -> int:
        names = [name.strip(' "') for name in header.split(mark)]
        return sum(column in names for column in columns)

    return max(marks, key=named, default="\t")


def _advice(header: Sequence[str], column: str) -> str:
    """What may be wrong with a header that lacks a column."""
    mark = next((mark for mark in ",;" if len(header) == 1 and column in header[0].split(mark)), None)
    if mark:
        return f"; it looks separated by {mark!r}: name the file .csv, or separate by tabs"
    same = next((name for name in header if name.strip().lower() == column.lower()), None)
    return "" if same is None else f"; write {column!r} for {same!r}"


def _number(value: Any, column: str, bounds: tuple[float, float], where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not bounds[0] <= number <= bounds[1]:
        raise ValueError(f"{where}: {column!r} must be a number from {bounds[0]:g} to {bounds[1]:g}; got {value!r:.50}")
    return number


def _tab_fields(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """The number and the fields of each line."""
    return ((number, line.split("\t")) for number, line in enumerate(lines, 1))


def _csv_fields(path: Path, lines: Iterator[str], mark: str) -> Iterator[tuple[int, list[str]]]:
    """The same; a row with line breaks in quotes has the number of its last line."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=mark, strict=True)
    try:
        for row in rows:
            yield rows.line_num, row or [""]
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {rows.line_num}: {error}; a .csv has {NAMES[mark]}s, and texts with them in quotes"
        ) from error


def _table_rows(
    path: Path,
    rows: Iterator[tuple[int, list[str]]],
    mark: str,
    columns: Sequence[str],
    lists: Sequence[str],
    numbers: Bounds,
) -> Iterator[tuple[Any, ...]]:
    _, header = next(rows, (1, [""]))
    if header == [""]:
        return
    for column in columns:
        if column not in header:
            if header[0].lstrip().startswith(("[", "{")):
                raise ValueError(f"{path} begins like JSON: write one object a line, and name the file .jsonl")
            shown = ", ".join(f"{name!r:.50}" for name in header[:10]) + (", ..." if len(header) > 10 else "")
            names = f"{shown}{_advice(header, column)}"
            raise ValueError(f"{path} has no column {column!r}; its first line names {names}")
        if header.count(column) > 1:
            raise ValueError(f"{path} has {header.count(column)} columns {column!r}; rename or remove all but one")
    places = [(header.index(column), column) for column in columns]
    for number, fields in rows:
        if not any(fields):  # an empty line, or a row of separators alone, as spreadsheets write it
            continue
        if len(fields) == len(header):
            row = (_names(fields[place]) if column in lists else fields[place] for place, column in places)
            if numbers:
                where = f"{path}, line {number}"
                row = (
                    _number(value, name, numbers[name], where) if name in numbers else value
                    for name, value in zip(columns, row)
                )
            yield tuple(row)
        else:
            raise ValueError(
                f"{path}, line {number}: expected {len(header)} {NAMES[mark]}-separated columns as in the first line; "
                f"got {len(fields)}"
            )


def _names(field: str) -> list[str]:
    return [name.strip() for name in field.split("|") if name.strip()]


def _json_rows(
    path: Path, lines: Iterator[str], columns: Sequence[str], lists: Sequence[str], numbers: Bounds
) -> Iterator[tuple[Any, ...]]:
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: not JSON ({error}); expected one object per line") from error
        if not isinstance(row, dict):
            raise ValueError(f"{where}: expected a JSON object; got {row!r:.50}")
        for column in columns:
            if column not in row:
                raise ValueError(f"{where} has no field {column!r}; it has {', '.join(map(repr, row))}")
        yield tuple(
            _number(row[column], column, numbers[column], where)
            if column in numbers
            else _value(row[column], column, column in lists, where)
            for column in columns
        )


def _value(value: Any, column: str, is_list: bool, where: str) -> Any:
    if is_list and isinstance(value, list):
        return [_value(item, column, False, where) for item in value]
    if is_list or isinstance(value, bool) or not isinstance(value, (str, int)):
        expected = "a list of strings" if is_list else "a string"
        raise ValueError(f"{where}: {column!r} must be {expected}; got {value!r:.50}")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: {column!r} is not valid text: {error.reason}") from error
    return text
