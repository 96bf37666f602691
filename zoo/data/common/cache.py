"""The cache: files and folders that are written atomically and verified before use.

A folder of the cache holds checksums of its files; a file of the cache begins with its own. If they do not match, it is
damaged: one line of the log says so, and it is made again.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zoo.utils.atomic import flush_folder, replace

try:
    import fcntl
except ImportError:  # not on every system
    fcntl = None

_CHECKSUMS = "checksums.json"
_ASIDE = ".unfinished-"
_BLOCK = 1 << 20

log = logging.getLogger(__name__)


@contextmanager
def appearing_when_complete(folder: Path) -> Iterator[Path]:
    """Context: a temporary folder to write into, which replaces `folder` on success and is removed on failure."""
    with _aside(folder) as aside:
        new = aside / "new"
        new.mkdir()
        yield new
        write_checksums(new, sorted(path.name for path in new.iterdir()))
        for _ in range(2):
            try:
                replace(new, folder)
            except OSError:
                if not folder.exists():
                    raise
            else:
                with suppress(OSError):  # not every file system supports it
                    flush_folder(folder.parent)
                return
            if is_intact(folder, quiet=True):
                return  # another process was faster; its content is the same
            with suppress(OSError):  # another process removed the damaged one
                replace(folder, aside / "damaged")
        raise FileExistsError(
            errno.EEXIST, "another process writes the same folder of the cache; try again", str(folder)
        )


def write_file(path: Path, content: bytes) -> None:
    """Writes a file with its checksum; see `read_file`."""
    replace_file(path, f"{_digest(content)}\n".encode() + content)


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file atomically."""
    with _aside(path) as aside:
        with (aside / "new").open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside / "new", 0o644)
        replace(aside / "new", path)
        with suppress(OSError):  # not every file system supports it
            flush_folder(path.parent)


def read_file(path: Path) -> bytes | None:
    """Content that `write_file` wrote; None if missing or, with a line in the log, damaged."""
    try:
        checksum, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if checksum == _digest(content).encode():
        return content
    log.warning(f"{path} is damaged; it is made again")
    return None


def cached_text(path: Path, make: Callable[[], str]) -> str:
    """A text from the cache; if it is missing or damaged, `make()` computes it."""
    content = read_file(path)
    if content is not None:
        return content.decode()
    text = make()
    write_file(path, text.encode())
    return text


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    """Flushes the files of a folder to the disk and adds their checksums, for `is_intact`."""
    sums = {}
    for name in names:
        sums[name] = file_digest(folder / name)
        _sync(folder / name)
    text = json.dumps(sums)
    (folder / _CHECKSUMS).write_text(f"{_digest(text.encode())}\n{text}")
    _sync(folder / _CHECKSUMS)
    os.chmod(folder, 0o755)  # whoever uses the cache may read it


def is_intact(folder: Path, quiet: bool = False) -> bool:
    """Whether a folder exists and its files are as written; logs one line if something is damaged.

    Args:
        folder: folder with checksums.
        quiet: log nothing.
    """
    if not folder.is_dir():
        return False
    damaged = _damaged(folder)
    if damaged and not quiet:
        log.warning(f"{damaged} is damaged; it is made again")
    return damaged is None


def _damaged(folder: Path) -> Path | None:
    """The first damaged or missing file of a folder."""
    path = folder / _CHECKSUMS
    try:
        checksum, _, text = path.read_text().partition("\n")
        if checksum != _digest(text.encode()):
            return path
        for name, want in json.loads(text).items():
            path = folder / name
            if file_digest(path) != want:
                return path
    except (OSError, ValueError):
        return path
    return None


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def file_digest(path: Path) -> str:
    """Checksum of a file, read block by block."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


# ---- temporary folders ----


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """Context: a private folder next to `path`, removed afterwards, and locked so that others can recognise leftovers.

    Raises:
        OSError: no space or no permission; names `path`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path.parent)
        folder, lock = _new_aside(path.parent)
    except OSError as error:
        raise _named(error, path) from error
    try:
        yield folder
    except OSError as error:
        if error.filename is None or str(error.filename).startswith(str(folder)):
            raise _named(error, path) from error
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _named(error: OSError, path: Path) -> OSError:
    return type(error)(error.errno or errno.EIO, error.strerror or str(error), str(path))


def _new_aside(parent: Path) -> tuple[Path, int | None]:
    for _ in range(10 if fcntl else 0):
        folder = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=parent))
        lock = _lock(folder)
        if lock is not None and folder.exists():
            return folder, lock
        if lock is not None:  # another process removed it as a leftover before it was locked
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_ASIDE, dir=parent)), None  # no locks on this system or disk


def _lock(folder: Path) -> int | None:
    """Locks a folder; None if it is gone, locked by another process, or this system has no locks."""
    if fcntl is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _remove_leftovers(parent: Path) -> None:
    """Removes the leftovers of killed processes; the folders of running processes are locked, and stay."""
    if fcntl is None:
        return
    for folder in parent.glob(f"{_ASIDE}*"):
        if (lock := _lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
