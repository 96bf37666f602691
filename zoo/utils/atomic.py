"""Atomic files and folders: written next to their target and renamed. The cache has its own: zoo/data/common/cache.py.

Nothing is replaced by accident: links are followed and kept, and in a folder only the files that the caller names are
removed.
"""

import ctypes
import errno
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

WINDOWS = os.name == "nt"
WAITS = (0.01, 0.05, 0.2, 0.8)  # seconds; a virus scanner or a backup has a new file open for about as long


@contextmanager
def new_file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Context: a file to write into, which replaces `path` once it is on the disk; on failure the old file stays.

    A link is kept, and its target is replaced. Anything but a regular file (a pipe, /dev/stdout) is written to
    directly.

    Args:
        path: The file; its folder is created if necessary.

    Raises:
        OSError: It cannot be written; names `path`.
    """
    given, path = path, _followed(path)
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with open(path, "wb") as file:
            yield file
        return
    new = _beside(path)
    with _naming(given, new):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(new, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            replace(new, path)
        finally:
            new.unlink(missing_ok=True)
    flush_folder(path.parent)


def write_bytes(path: str | os.PathLike, content: bytes | memoryview) -> None:
    """Writes a file with `new_file`."""
    with new_file(path) as file:
        file.write(content)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes UTF-8 text with `new_file`."""
    write_bytes(path, text.encode())


def target_folder(folder: str | os.PathLike, disposable: Callable[[Path], Collection[str]]) -> tuple[Path, list[str]]:
    """Checks a folder that will be written.

    Args:
        folder: New, empty, or with replaceable content; a link is followed.
        disposable: Returns the names of the files that new ones replace. All others stay in the folder.

    Returns:
        The folder without links, and the names to replace.

    Raises:
        ValueError: It is not a folder, or `disposable` rejects the content.
    """
    found = _followed(folder)
    if not os.path.lexists(found):
        return found, []
    if not found.is_dir() or found.is_symlink():
        raise ValueError(f"{folder} exists and is not a folder; give a new or an empty folder")
    there = set(os.listdir(found))
    return found, sorted(there & set(disposable(found))) if there else []


@contextmanager
def new_folder(folder: str | os.PathLike, disposable: Callable[[Path], Collection[str]]) -> Iterator[Path]:
    """Context: a folder to write into, which replaces `folder` once it is on the disk; on failure the old one stays.

    A process that is killed may leave a hidden folder next to it, which nothing reads.

    Args:
        folder: The target; see `target_folder`.
        disposable: See there; called again before anything is replaced.

    Raises:
        ValueError: See `target_folder`.
        OSError: It cannot be written; names `folder`.
    """
    given, (folder, _) = folder, target_folder(folder, disposable)
    new = _beside(folder)
    with _naming(given, new):
        folder.parent.mkdir(parents=True, exist_ok=True)
        new.mkdir()
        try:
            yield new
            mode = new.stat().st_mode & 0o666  # by the user's umask; some libraries write private files
            for file in new.iterdir():
                file.chmod(mode)
                with open(file, "rb+") as opened:
                    os.fsync(opened.fileno())
            flush_folder(new)
            _, old = target_folder(folder, disposable)
            kept = sorted(set(os.listdir(folder)) - set(old)) if folder.exists() else []
            for name in kept:
                if not (new / name).exists():
                    shutil.copy2(folder / name, new / name)
            _put_in_place(new, folder, [*old, *kept])
        finally:
            shutil.rmtree(new, ignore_errors=True)
    flush_folder(folder.parent)


@contextmanager
def _naming(given: str | os.PathLike, hidden: Path) -> Iterator[None]:
    """Context: makes system errors name the user's path, instead of none or the hidden one."""
    try:
        yield
    except OSError as error:
        if error.filename is None or os.fsdecode(error.filename).startswith(str(hidden)):
            number = error.errno or errno.EIO
            raise OSError(number, error.strerror or str(error), os.fspath(given)) from error
        raise


def _put_in_place(new: Path, folder: Path, known: list[str]) -> None:
    """Gives a finished folder its name. An existing folder loses its known files; anything added meanwhile stays.

    On Linux the two are exchanged in one step. Elsewhere a process killed between two steps leaves the old folder next
    to its place.
    """
    if not folder.exists():
        replace(new, folder)
        return
    old = new
    if not _exchanged(new, folder):
        old = _beside(folder)
        replace(folder, old)
        replace(new, folder)
    for name in known:
        (old / name).unlink(missing_ok=True)
    for other in old.iterdir():
        replace(other, folder / other.name)
    old.rmdir()


def replace(source: Path, target: Path) -> None:
    """`os.replace`, again after a moment where Windows refuses it because another process has a file open."""
    for seconds in WAITS if WINDOWS else ():
        try:
            os.replace(source, target)
            return
        except PermissionError:
            time.sleep(seconds)
    os.replace(source, target)


def _exchanged(a: Path, b: Path) -> bool:
    """Whether the system could exchange the names of two folders."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename is not None and rename(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0


def _followed(path: str | os.PathLike) -> Path:
    """An absolute path without links; for a new file too."""
    return Path(os.path.realpath(path))


def _beside(path: Path) -> Path:
    """An unused hidden name in the same folder; short, because a long name may already have the maximum length."""
    return path.with_name(f".{path.stem[:30]}{path.suffix[:10]}-{os.urandom(4).hex()}")


def remove_leftovers(folder: Path, suffix: str) -> None:
    """Removes unfinished files of killed processes, in the folder of files that end in `suffix`.

    No living process may be writing such files there: the caller holds a lock.
    """
    for path in folder.glob(f".*{suffix}-*"):
        if re.fullmatch(rf"\..*{re.escape(suffix)}-[0-9a-f]{{8}}", path.name) and path.is_file():
            path.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Makes new names in a folder survive a power failure, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
