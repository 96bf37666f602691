"""Which files of the data a process reads."""

import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from zoo.rebuilding.digests import file_sha256
from zoo.utils.atomic import write_text

READ = "read.json"  # in the folder of a stage: name of a file of the data -> sha256
_opened: set[str] = set()
_hooked = False


def files_read(roots: Sequence[str]) -> dict[str, str]:
    """Name below a folder of data -> sha256, of each file that was read since `listen`.

    Args:
        roots: the folders, as `os.path.realpath` gives them.
    """
    found = {}
    for path in sorted(_opened):
        name = _below(path, roots)
        if name and os.path.isfile(path) and not os.path.basename(path).startswith("."):  # others are locks
            found[name] = file_sha256(Path(path))
    return dict(sorted(found.items()))


def _below(path: str, roots: Sequence[str]) -> str | None:
    """The name of a file below one of the folders, in which it may be a link to elsewhere; None if it is in none."""
    for place in (os.path.abspath(path), os.path.realpath(path)):
        for folder in Path(place).parents:
            if _real(str(folder)) in roots:
                return os.path.relpath(place, folder)
    return None


_real = cache(os.path.realpath)


def write_read(file: Path, roots: Sequence[str]) -> None:
    """Notes down what was read so far, beside what the file has from earlier starts."""
    earlier = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    write_text(file, json.dumps(earlier | files_read(roots), indent=1) + "\n")


def listen() -> None:
    """Notes down from now on the files that this process opens, but for those that it writes."""
    global _hooked
    _opened.clear()
    if _hooked:
        return

    def note(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and not set(args[1] or "") & set("wax+"):
            _opened.add(args[0])

    sys.addaudithook(note)
    _hooked = True
