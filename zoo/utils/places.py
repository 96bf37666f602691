"""Where this package keeps what it made or fetched."""

import os
from pathlib import Path


def cache_folder(cache_dir: str | None = None) -> Path:
    """`cache_dir`, else the environment variable `ZOO_CACHE`, else `~/.cache/attention-zoo`."""
    return Path(cache_dir or os.environ.get("ZOO_CACHE") or "~/.cache/attention-zoo").expanduser()
