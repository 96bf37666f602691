"""Checks of a user's files before they are opened."""

import os
import stat
from pathlib import Path


def check_regular(path: str | os.PathLike) -> None:
    """Raises unless the path can be read more than once: not a folder, nor a pipe, which would block.

    Raises:
        ValueError: it is a folder or not a regular file.
        FileNotFoundError: it does not exist.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path} is {'a folder' if Path(path).is_dir() else 'not a regular file'}; give a file")
