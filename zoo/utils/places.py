"""Where this package keeps what it made or fetched."""

import os
from pathlib import Path


def at_home(path: str | os.PathLike) -> Path:
    """A path with the home folder in place of `~` or `~USER`.

    Raises:
        ValueError: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{os.fspath(path)}: there is no such user; give the folder without ~") from error


def cache_folder(cache_dir: str | None = None) -> Path:
    """`cache_dir`, else the environment variable `ZOO_CACHE`, else `~/.cache/attention-zoo`."""
    return at_home(cache_dir or os.environ.get("ZOO_CACHE") or "~/.cache/attention-zoo")
