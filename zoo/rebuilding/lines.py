"""Lines of text that models answer for later stages, so that the work can be killed and resumed."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from zoo.rebuilding.inputs import READ, listen, write_read
from zoo.utils.atomic import write_text

LINES = 1000  # that are answered between two savings

Line = TypeVar("Line")
Answer = TypeVar("Answer")


def read_lines(text: str) -> list[str]:
    """The lines of a text that are not empty."""
    return [line for line in text.split("\n") if line.strip()]


def answers(
    folder: Path, name: str, lines: Sequence[Line], ask: Callable[[Sequence[Line]], list[Answer]]
) -> list[Answer]:
    """What a model answers to each line, with a file for each part of them; parts that are there are not made again.

    Args:
        folder: place of the files.
        name: of the model, for messages.
        lines: all lines.
        ask: some lines -> the answer to each, JSON-able.
    """
    found: list[Answer] = []
    for start in range(0, len(lines), LINES):
        part, wanted = folder / f"{start}.json", lines[start : start + LINES]
        if not part.is_file():
            write_text(part, json.dumps(ask(wanted), ensure_ascii=False))
            print(f"{name}: {start + len(wanted):,} of {len(lines):,} lines", flush=True)
        found += json.loads(part.read_text(encoding="utf-8"))
    return found


def run_job(work: Callable[..., None], arguments: Sequence[str]) -> int:
    """Does the work of one job: a JSON file with the keyword arguments of `work`, and `roots`, the folders of data.

    What it reads there is noted down beside the file, also if it is interrupted.

    Returns:
        The exit code: 0, or 2 after an error, which one line on standard error explains.
    """
    file = Path(arguments[0])
    try:
        job = json.loads(file.read_text(encoding="utf-8"))
        roots = [os.path.realpath(root) for root in job.pop("roots", [])]
        listen()
        try:
            work(**job)
        finally:
            write_read(file.with_name(READ), roots)
    except (ValueError, OSError) as error:
        print(f"zoo: error: {error}", file=sys.stderr)
        return 2
    return 0
