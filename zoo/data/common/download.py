"""Downloads that resume after a broken connection and never leave an incomplete or wrong file."""

import hashlib
import http.client
import logging
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from tqdm import tqdm

from zoo.utils.atomic import replace

_BLOCK = 1 << 16
_TIMEOUT = 30  # seconds without a byte
_ATTEMPTS = 20

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteFile:
    """A file at a fixed address.

    Attributes:
        url: its address.
        sha256: its checksum (of the member, for an archive); None if unknown.
        member: name of the file inside a zip archive at `url`.
    """

    url: str
    sha256: str | None = None
    member: str | None = None


def fetch(remote: RemoteFile, path: Path) -> None:
    """Downloads `remote` to `path`, which appears only when it is complete and its checksum matches.

    A partial download is resumed, in this call after a broken connection or in a later one after a crash. If several
    processes call this, one downloads and the others wait.

    Raises:
        ConnectionError: it could not be downloaded; the message has the address and the reason.
        ValueError: the content is wrong.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    was_there = path.exists()
    with locked(path.with_name(f".{path.name}.lock"), f"downloading {path}"):
        if was_there or not path.exists():  # else another process has downloaded it in the meantime
            _fetch(remote, path)


@contextmanager
def locked(file: Path, doing: str) -> Iterator[None]:
    """Excludes other processes that lock the same file; the lock of one that dies is released, its empty file stays.

    Args:
        file: the lock; its folder exists.
        doing: what they do meanwhile, for the message, e.g. "downloading FILE".
    """
    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        log.warning(f"another process is {doing}; waiting for it")
        lock.acquire()
    except NotImplementedError:
        log.warning(f"{file.parent} is on a file system without locks: let no other process be {doing}")
    try:
        yield
    finally:
        lock.release()


def _fetch(remote: RemoteFile, path: Path) -> None:
    part = path.with_name(f"{path.name}.part")
    _download(remote.url, part)
    if remote.member:
        archive, part = part, path.with_name(f"{path.name}.member")
        try:
            with zipfile.ZipFile(archive) as opened:
                part.write_bytes(opened.read(remote.member))
        except (zipfile.BadZipFile, KeyError) as error:
            raise ValueError(f"{remote.url} is not a zip archive with {remote.member}: {error}") from error
        finally:
            archive.unlink()
    if remote.sha256 and (found := file_sha256(part)) != remote.sha256:
        part.unlink()
        raise ValueError(f"wrong checksum for {remote.url}: expected sha256 {remote.sha256}, got {found}; try again")
    replace(part, path)


def file_sha256(path: Path) -> str:
    """Checksum of a file, read block by block."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _download(url: str, part: Path) -> None:
    """Completes `part`; resumes after a break as long as every attempt makes progress."""
    reason: object = "no attempt was made"
    for _ in range(_ATTEMPTS):
        start = part.stat().st_size if part.exists() else 0
        request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                if _receive(response, part, start):
                    return
            reason = "the connection was broken"
        except urllib.error.HTTPError as error:
            if start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink()  # left over from another file: start again
                reason = error.reason
                continue
            raise ConnectionError(f"cannot download {url}: HTTP {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:  # includes URLError and time-outs
            reason = getattr(error, "reason", error)
        if not part.exists() or part.stat().st_size <= start:
            break
    raise ConnectionError(f"cannot download {url}: {reason}")


def _receive(response: http.client.HTTPResponse, part: Path, start: int) -> bool:
    """Writes a response to `part`; False if it ended before its announced length."""
    resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
    start = start if resumed else 0  # a server without Range sends the whole file
    announced = response.headers.get("Content-Length")
    total = None if announced is None else start + int(announced)
    with (
        part.open("ab" if resumed else "wb") as file,
        tqdm(total=total, initial=start, unit="B", unit_scale=True, desc=part.stem, disable=None) as progress,
    ):
        while block := response.read(_BLOCK):
            file.write(block)
            progress.update(len(block))
        return total is None or file.tell() == total
