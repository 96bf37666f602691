"""What the names of labels may be: one rule for data, models and bundles."""

import re
import reprlib
from typing import Any

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_labels(names: Any, where: str) -> None:
    """Raises ValueError unless `names` is a list of different texts without control characters.

    Args:
        names: of the labels.
        where: where they stand, the beginning of the message.
    """
    if not isinstance(names, list):
        raise ValueError(f"{where} must be a list of texts without control characters; got {reprlib.repr(names)}")
    for name in names:
        if not isinstance(name, str) or _CONTROL.search(name):
            raise ValueError(
                f"{where} must be a list of texts without control characters, such as line ends and tabs; "
                f"it has {reprlib.repr(name)}"
            )
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{where} has a label twice: {reprlib.repr(twice)}")
