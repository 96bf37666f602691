"""Files that a user names, looked at before they are opened."""

import os
import stat
from pathlib import Path


def check_regular(path: str | os.PathLike) -> None:
    """Refuses what is no file that can be read more than once: a folder, or a pipe, which would be waited for.

    Raises:
        ValueError: it is such a thing.
        FileNotFoundError: there is nothing.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path} is {'a folder' if Path(path).is_dir() else 'no regular file'}; give a file")
