"""A child process of the server, which replaces it when it dies, hangs or takes too long."""

import asyncio
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from io import BufferedRWPair
from typing import Any

from zoo.serving.limits import SILENT_SECONDS, STARTING_SECONDS
from zoo.utils.ending import SIGNALS

BEAT_SECONDS = 1.0
_SIZE = struct.Struct("!Q")  # before each message
log = logging.getLogger(__name__)


class Died(Exception):
    """The process ended, or gave no sign of life."""


class Overran(Exception):
    """The process took too long and was ended."""


class Child:
    """One child process.

    Args:
        make: creates, in the process, the object whose methods are called; with a method `facts`.
        arguments: arguments of `make`.
        most: maximum work at a time; None: unlimited.
        lanes: threads of the process, each of which does one task at a time.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any, most: int | None = None, lanes: int = 1) -> None:
        self.make, self.arguments, self.most, self.lanes = make, arguments, most, lanes
        self.ready = False  # the object is there
        self._context = multiprocessing.get_context("spawn")  # a fork would keep the other processes' pipes open
        self._process: Any = None
        self._lines: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []  # one for each lane

    async def start(self) -> Any:
        """Starts the process, or starts it again.

        Returns:
            the result of `facts`.

        Raises:
            ValueError: the object could not be created.
            Died: it ended without a message.
        """
        self.kill()
        ours, theirs = zip(*(socket.socketpair() for _ in range(self.lanes)), strict=True)
        self._beat = self._context.RawValue("d", time.monotonic())
        self._process = self._context.Process(
            target=_run, args=(theirs, self._beat, self.make, self.arguments), daemon=True
        )
        self._process.start()
        for line in theirs:
            line.close()
        # The event loop itself reads and writes: a thread for each line would be woken twice for each message
        self._lines = [await asyncio.open_connection(sock=line) for line in ours]
        is_ready, found = await self._reply(0, None)
        if not is_ready:
            raise ValueError(found)
        self.ready = True
        return found

    async def call(self, method: str, *arguments: Any, seconds: float, lane: int = 0) -> Any:
        """Calls a method of the object and returns its result.

        Raises:
            Died, Overran: `start` must be called again.
            Exception: whatever the method raised.
        """
        self._lines[lane][1].write(_message((method, arguments)))
        is_right, found = await self._reply(lane, seconds)
        if not is_right:
            raise found
        return found

    async def _reply(self, lane: int, seconds: float | None) -> Any:
        until = float("inf") if seconds is None else time.monotonic() + seconds
        patience = STARTING_SECONDS if seconds is None else SILENT_SECONDS
        reply = asyncio.ensure_future(_received(self._lines[lane][0]))
        process = self._process
        try:
            while not (await asyncio.wait({reply}, timeout=max(0, min(BEAT_SECONDS, until - time.monotonic()))))[0]:
                overran = time.monotonic() >= until
                if overran or self.silence() > patience:
                    self._end(process)
                    raise Overran if overran else Died
            return reply.result()
        except (EOFError, OSError) as error:
            self._end(process)
            raise Died from error
        finally:
            reply.cancel()

    def silence(self) -> float:
        """Seconds since the last sign of life; infinite if it has ended."""
        is_alive = self._process is not None and self._process.is_alive()
        return time.monotonic() - self._beat.value if is_alive else float("inf")

    def _end(self, process: Any) -> None:
        """Ends a process, unless another lane has already replaced it."""
        if self._process is process:
            self.kill()

    def kill(self) -> None:
        """Ends the process at once."""
        self.ready = False
        if self._process is not None:
            self._process.kill()
            self._process.join(1)
        for _, writer in self._lines:
            writer.transport.abort()
        self._lines = []


def _message(value: Any) -> bytes:
    content = pickle.dumps(value)
    return _SIZE.pack(len(content)) + content


async def _received(line: asyncio.StreamReader) -> Any:
    """The next message of the process."""
    (size,) = _SIZE.unpack(await line.readexactly(_SIZE.size))
    return pickle.loads(await line.readexactly(size))


# ---- in the process ----


def _run(sockets: Sequence[socket.socket], beat: Any, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """The main function of the process: ends when the parent has ended."""
    # may be sent to all processes; the parent handles them
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_live, args=(beat,), daemon=True).start()
    lines = [line.makefile("rwb") for line in sockets]
    target = None
    try:
        target = make(*arguments)
        reply = True, target.facts()
    except Exception as error:
        kind = "" if isinstance(error, (ValueError, FileNotFoundError)) else f"{type(error).__name__}: "
        reply = False, " ".join(f"{kind}{error}".split())
    try:
        _send(lines[0], reply)
    except OSError:
        return
    if not reply[0]:
        return
    for line in lines[1:]:
        threading.Thread(target=_answer, args=(line, target), daemon=True).start()
    _answer(lines[0], target)


def _send(line: BufferedRWPair, value: Any) -> None:
    line.write(_message(value))
    line.flush()


def _answer(line: BufferedRWPair, target: Any) -> None:
    """One lane, until the line is closed."""
    try:
        while head := line.read(_SIZE.size):
            method, values = pickle.loads(line.read(*_SIZE.unpack(head)))
            try:
                reply = True, getattr(target, method)(*values)
            except Exception as error:
                log.exception("%s failed", method)
                reply = False, RuntimeError(f"{method} failed: {type(error).__name__}")
            _send(line, reply)
    except (EOFError, OSError):
        return


def _live(beat: Any) -> None:
    """Gives signs of life while the parent is there."""
    parent = multiprocessing.parent_process()
    while parent is None or parent.is_alive():
        beat.value = time.monotonic()
        time.sleep(BEAT_SECONDS)
    os._exit(1)
