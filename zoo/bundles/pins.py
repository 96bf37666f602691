"""Where on the Hugging Face Hub the registered weights are: zoo/pins.json, {name: "ORG/REPO@COMMIT"}.

`zoo publish --all` writes the file, so that nobody copies commit ids by hand. This file does not import torch.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from zoo.bundles import hub
from zoo.bundles.files import DamagedError
from zoo.utils import strict_json
from zoo.utils.atomic import write_text
from zoo.utils.regular import check_regular

MAX_PINS = 4096


class Pin(NamedTuple):
    """A commit on the Hub.

    Attributes:
        repo_id: `ORG/REPO`.
        revision: Full commit id.
    """

    repo_id: str
    revision: str


def read(path: Path, names: Collection[str]) -> dict[str, Pin]:
    """Name of a weight -> its pin; empty if there is no such file.

    Args:
        path: The file.
        names: The names that may occur.

    Raises:
        DamagedError: It is not of the form above, or names another weight.
    """
    try:
        check_regular(path)  # a pipe would block
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        found = strict_json.loads(text, MAX_PINS)
        if not isinstance(found, dict):
            raise ValueError('it must be an object {name: "ORG/REPO@COMMIT"}')
        return {name: _pin(name, source, names) for name, source in found.items()}
    except ValueError as error:
        raise DamagedError(f"{path} is damaged: {error}") from error


def _pin(name: str, source: object, names: Collection[str]) -> Pin:
    if name not in names:
        raise ValueError(f"there is no weight '{name}'")
    try:
        pin = Pin(*hub.split_source(source if isinstance(source, str) else ""))
    except ValueError:
        pin = Pin("", "")
    if not re.fullmatch("[0-9a-f]{40}", pin.revision):
        raise ValueError(
            f"{name} must have ORG/REPO@COMMIT with a full commit id of 40 hex digits; got {source!r:.100}"
        )
    return pin


def write(path: Path, pins: Mapping[str, Pin]) -> None:
    """Writes the file, in the order of the names."""
    lines = {name: f"{pin.repo_id}@{pin.revision}" for name, pin in sorted(pins.items())}
    write_text(path, json.dumps(lines, indent=2) + "\n")
