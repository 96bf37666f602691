"""Folders that `zoo export` writes for other engines: their files, and a list of them in a JSON file.

`replaceable_export` says whether a folder is such an export, so that a new one may replace it.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zoo.bundles.files import PICTURES, README, file_hashes
from zoo.utils import strict_json
from zoo.utils.regular import check_regular


def write_manifest(folder: Path, manifest: str, about: Mapping[str, Any]) -> None:
    """Writes what `about` says, the sha256 of every other file, and a digest of all that."""
    content = json.loads(json.dumps({**about, "sha256": file_hashes(folder)}, allow_nan=False))  # as it is read
    text = json.dumps({**content, "digest": strict_json.digest(content)}, indent=2, ensure_ascii=False)
    (folder / manifest).write_bytes(f"{text}\n".encode())


def replaceable_export(folder: Path, manifest: str, kind: str, is_ours: Callable[[str], bool]) -> set[str]:
    """Names of the files of an earlier export that a new one may replace; README.md and pictures are not among them.

    Args:
        folder: with files.
        manifest: the file that lists the others.
        kind: name of such a folder in messages.
        is_ours: whether an export may have a file of this name.

    Raises:
        ValueError: The folder is not a complete export, or holds other files.
    """
    try:
        check_regular(folder / manifest)
        listed = strict_json.loads((folder / manifest).read_text(encoding="utf-8"), 2**16)["sha256"]
        names = {manifest, *listed}
        kept = {name for name in os.listdir(folder) if name == README or name.lower().endswith(PICTURES)}
        foreign = {*os.listdir(folder)} - names - kept
        if foreign := sorted(foreign | {name for name in names if not is_ours(name)}):
            raise ValueError(f"it also holds {', '.join(map(repr, foreign[:5]))}")
        found = {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in listed
            if _is_plain(folder / name)
        }
        if found != listed or not all(map(_is_plain, (folder / name for name in kept | {manifest}))):
            raise ValueError(f"its files are not those that {manifest} lists")
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = f"it has no {manifest}" if isinstance(error, FileNotFoundError) else error
        raise ValueError(f"{folder} exists and is not {kind}: {why}; give a new or an empty folder") from error
    return names


def _is_plain(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()
