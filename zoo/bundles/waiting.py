"""Waiting for the Hub: every wait is bounded, and whatever goes wrong becomes one line.

A small request is bounded by PATIENCE in all, a transfer by STALL without progress.
"""

import errno
import io
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread, current_thread
from typing import Any, TypeVar

from zoo.bundles.files import FetchError

PATIENCE = 3.5  # seconds for a small request to the Hub
STALL = 10.0  # seconds within which a transfer must make progress,
LEAST = 10_000  # by so many bytes
PIECE = 2**14  # bytes that the client reads at a time; its own 10 MiB take minutes on a slow connection
_PASSING = (408, 429, 500, 502, 503, 504)  # temporary failures of the Hub itself

T = TypeVar("T")


class UnreachableError(FetchError):
    """The Hub gives no answer, or only a temporary failure."""


class TooLargeError(Exception):
    """More bytes arrived than allowed."""


class Transfer:
    """A transfer that must make progress every STALL seconds.

    It runs in a thread, because the client of the Hub waits as long as a server asks for, and retries for minutes. Once
    given up, the thread ends at the next byte.

    Args:
        most: Maximum number of bytes.
        folder: Where another process may be fetching the same file; the client waits for it, so what it writes is
            progress too.
    """

    def __init__(self, most: int | None = None, folder: Path | None = None) -> None:
        self.most, self.folder, self.bytes, self.given_up = most, folder, 0, False

    def moved(self, n: int) -> None:
        """Counts bytes; ends the transfer if there are too many, or nobody waits for it."""
        self.bytes += n
        if self.given_up:
            raise TimeoutError("given up")
        if self.most is not None and self.bytes > self.most:
            raise TooLargeError

    def run(self, call: Callable[[], T]) -> T:
        """The result of the call.

        Raises:
            TimeoutError: It made no progress.
        """
        from huggingface_hub import constants

        # for good, because threads share it: the client counts, and writes, only what it has read as a whole
        constants.DOWNLOAD_CHUNK_SIZE = min(getattr(constants, "DOWNLOAD_CHUNK_SIZE", PIECE), PIECE)
        thread, stall = _Call(call), _seconds("HF_HUB_DOWNLOAD_TIMEOUT", STALL)
        answer = thread.answer
        while True:
            before, before_there = self.bytes, self._there()
            try:
                return answer.result(stall)
            except FutureTimeout:
                if answer.done():  # a timeout of the call itself
                    return answer.result()
                if self.bytes < before + LEAST and self._there() < before_there + LEAST:
                    self.given_up = thread.given_up = True
                    raise TimeoutError(
                        f"no progress in {stall:g} s; on a slow connection set HF_HUB_DOWNLOAD_TIMEOUT to more seconds"
                    ) from None

    def _there(self) -> int:
        """Bytes of the unfinished files of all processes."""
        total = 0
        for path in self.folder.glob("*.incomplete") if self.folder else ():
            with suppress(OSError):  # finished or given up by now
                total += path.stat().st_size
        return total


class Watched(io.BytesIO):
    """Content whose reading counts as progress of a transfer."""

    def __init__(self, content: bytes, transfer: Transfer) -> None:
        super().__init__(content)
        self._transfer = transfer

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self._transfer.moved(len(content))
        return content


def ask(call: Callable[[], T]) -> T:
    """A small request to the Hub, within PATIENCE seconds in all; repeated after temporary failures.

    In a thread, because otherwise neither a DNS lookup nor a host with many addresses can be bounded.
    """
    from huggingface_hub.errors import HfHubHTTPError

    patience = _seconds("HF_HUB_ETAG_TIMEOUT", PATIENCE)
    end = time.monotonic() + patience
    while True:
        thread = _Call(call)
        answer = thread.answer
        try:
            return answer.result(end - time.monotonic())
        except FutureTimeout:
            if answer.done():
                return answer.result()
            thread.given_up = True
            raise TimeoutError(
                f"no answer in {patience:g} s; on a slow connection set HF_HUB_ETAG_TIMEOUT to more seconds"
            ) from None
        except HfHubHTTPError as error:
            if error.response.status_code not in _PASSING or time.monotonic() + 0.5 >= end:
                raise
        time.sleep(0.5)


def _seconds(name: str, default: float) -> float:
    """The Hub client's setting from the environment, or our own default."""
    from huggingface_hub import constants

    return getattr(constants, name) if name in os.environ else default


class _Call(Thread):
    """A call of the Hub's client in a thread of its own, which may be given up; it then has nothing more to say."""

    def __init__(self, call: Callable[[], Any]) -> None:
        from huggingface_hub.utils.logging import get_logger

        super().__init__(daemon=True)
        self.answer: Future = Future()
        self.given_up = False
        self._call = call
        for handler in get_logger().handlers:
            handler.addFilter(_awaited)
        self.start()

    def run(self) -> None:
        from huggingface_hub.errors import HFValidationError

        try:
            self.answer.set_result(self._call())
        except (ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
            if isinstance(error, (OSError, HFValidationError, UnicodeEncodeError)):  # some are ValueErrors too
                self.answer.set_exception(error)
            else:  # the answer was not JSON, or malformed
                self.answer.set_exception(
                    ConnectionError(
                        "the answer is not the Hub's; does this network require a login on a web page first?"
                    )
                )
        except BaseException as error:  # raised again in the waiting thread
            self.answer.set_exception(error)


def _awaited(record: logging.LogRecord) -> bool:
    """Whether somebody still waits for what this message is about."""
    return not getattr(current_thread(), "given_up", False)


@contextmanager
def explained(doing: str, repo_id: str, revision: str | None = None) -> Iterator[None]:
    """Context: turns errors of the Hub client into one line: what was tried, why it failed, what to do.

    Args:
        doing: "cannot ...".
        repo_id: `ORG/REPO`.
        revision: The fetched revision; None while publishing.
    """
    from huggingface_hub import constants, errors

    # RuntimeError: from an upload; the base classes: from its HTTP library (httpx or httpx2, by version)
    bases = [base for base in errors.HfHubHTTPError.__bases__ if issubclass(base, Exception)]
    kinds = (OSError, RuntimeError, UnicodeEncodeError, errors.HFValidationError, *bases)
    try:
        yield
    except kinds as raised:
        error = raised.__cause__ if isinstance(raised, RuntimeError) and raised.__cause__ else raised
        status = getattr(getattr(error, "response", None), "status_code", None)
        login = "log in with `hf auth login` or set HF_TOKEN"
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        message = getattr(error, "server_message", None)
        said = f" ({message})" if message else ""
        lasting = isinstance(error, (errors.HFValidationError, errors.LocalTokenNotFoundError, UnicodeEncodeError))
        if isinstance(error, OSError) and error.errno and not isinstance(error, (ConnectionError, TimeoutError)):
            lasting = True  # a local problem, e.g. a full disk
        passing = status in _PASSING if status else not lasting
        if isinstance(error, errors.GatedRepoError):
            why = f"it is gated; ask for access at {constants.ENDPOINT}/{repo_id}, then {login}"
        elif isinstance(error, errors.RevisionNotFoundError):
            why = f"it has no revision {revision}; give a commit id, tag or branch that it has"
        elif isinstance(error, errors.RepositoryNotFoundError):
            unseen = "there is no such repository, or it is private and the token may not see it"
            why = f"{unseen}; check the name, and {login}"
        elif isinstance(error, errors.LocalTokenNotFoundError) or status == 401:
            why = f"the token is missing or not valid; {login}"
        elif isinstance(error, UnicodeEncodeError):  # of a header
            why = f"the token has {error.object[error.start]!r}, a character that no token has; {login}"
        elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            why = f"no space is left in {constants.HF_HUB_CACHE}; free some, or set HF_HOME to a folder on another disk"
        elif status == 403:
            why = f"the token does not allow it{said}; use one that may write to {repo_id.split('/')[0]}"
        elif status == 412:
            why = "somebody changed it in the meantime, nothing was published; look at the change, then publish again"
        elif status:
            why = f"the Hub answered {status}{said or ' ' + first}; try again later"
        elif passing:
            hint = (
                "a copy on this machine can be loaded with local-dir:PATH" if revision else "publishing again is safe"
            )
            why = f"{constants.ENDPOINT} cannot be reached: {first}; check the network and HF_ENDPOINT ({hint})"
        else:
            why = first
        raise (UnreachableError if passing else FetchError)(f"{doing}: {' '.join(why.split())}") from raised
