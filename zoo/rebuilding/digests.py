"""Hashes of files."""

import hashlib
import os
from functools import lru_cache
from pathlib import Path

_BLOCK = 1 << 20


def file_sha256(path: Path) -> str:
    """The sha256 of a file, computed once while the file stays as it is."""
    status = os.stat(path)
    return _sha256(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=2**12)
def _sha256(path: Path, size: int, changed: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
