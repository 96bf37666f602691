"""A child process of the server, which replaces it when it dies, hangs or takes too long."""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from zoo.serving.limits import SILENT_SECONDS, STARTING_SECONDS

BEAT_SECONDS = 1.0
log = logging.getLogger(__name__)


class Died(Exception):
    """The process ended, or gave no sign of life."""


class Overran(Exception):
    """The process took too long and was ended."""


class Child:
    """One child process.

    Args:
        make: creates, in the process, the object whose methods are called; with a method `facts`. A ValueError or
            FileNotFoundError explains in one line why that failed.
        arguments: arguments of `make`.
        most: maximum work at a time; None: unlimited.
        lanes: threads of the process, each of which does one task at a time.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any, most: int | None = None, lanes: int = 1) -> None:
        self.make, self.arguments, self.most, self.lanes = make, arguments, most, lanes
        self.ready = False  # the object is there
        self._context = multiprocessing.get_context("spawn")  # a fork would keep the other processes' pipes open
        self._threads = ThreadPoolExecutor(1)  # for the pipes: a hanging process must not block the event loop
        self._process: Any = None

    async def start(self) -> Any:
        """Starts the process, or starts it again.

        Returns:
            the result of `facts`.

        Raises:
            ValueError: the object could not be created.
            Died: it ended without a message.
        """
        self.kill()
        self._pipes, theirs = zip(*(self._context.Pipe() for _ in range(self.lanes)), strict=True)
        self._beat = self._context.RawValue("d", time.monotonic())
        self._process = self._context.Process(
            target=_run, args=(theirs, self._beat, self.make, self.arguments), daemon=True
        )
        self._process.start()
        for pipe in theirs:
            pipe.close()
        self._threads.shutdown(wait=False)  # they may block on the old pipes until these are closed
        self._threads = ThreadPoolExecutor(self.lanes)
        is_ready, found = await self._reply(self._pipes[0].recv, None)
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

        pipe = self._pipes[lane]

        def exchange() -> tuple[bool, Any]:
            pipe.send((method, arguments))
            return pipe.recv()

        is_right, found = await self._reply(exchange, seconds)
        if not is_right:
            raise found
        return found

    async def _reply(self, wait: Callable[[], Any], seconds: float | None) -> Any:
        until = float("inf") if seconds is None else time.monotonic() + seconds
        patience = STARTING_SECONDS if seconds is None else SILENT_SECONDS
        reply = asyncio.get_running_loop().run_in_executor(self._threads, wait)
        reply.add_done_callback(asyncio.Future.exception)  # the caller may be gone when the pipe is closed
        while not (await asyncio.wait({reply}, timeout=max(0, min(BEAT_SECONDS, until - time.monotonic()))))[0]:
            overran = time.monotonic() >= until
            if overran or self.silence() > patience:
                self.kill()
                raise Overran if overran else Died
        try:
            return reply.result()
        except (EOFError, OSError) as error:
            self.kill()
            raise Died from error

    def silence(self) -> float:
        """Seconds since the last sign of life; infinite if it has ended."""
        is_alive = self._process is not None and self._process.is_alive()
        return time.monotonic() - self._beat.value if is_alive else float("inf")

    def kill(self) -> None:
        """Ends the process at once."""
        self.ready = False
        if self._process is not None:
            self._process.kill()
            self._process.join(1)


def _run(pipes: Sequence[Connection], beat: Any, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """The main function of the process: ends when the parent has ended."""
    # may be sent to all processes; the parent handles them
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_live, args=(beat,), daemon=True).start()
    try:
        try:
            target = make(*arguments)
            pipes[0].send((True, target.facts()))
        except (ValueError, FileNotFoundError) as error:
            pipes[0].send((False, " ".join(str(error).split())))
            return
    except OSError:
        return
    for pipe in pipes[1:]:
        threading.Thread(target=_answer, args=(pipe, target), daemon=True).start()
    _answer(pipes[0], target)


def _answer(pipe: Connection, target: Any) -> None:
    """One lane, until the pipe is closed."""
    try:
        while True:
            method, values = pipe.recv()
            try:
                reply = True, getattr(target, method)(*values)
            except Exception as error:
                log.exception("%s failed", method)
                reply = False, RuntimeError(f"{method} failed: {type(error).__name__}")
            pipe.send(reply)
    except (EOFError, OSError):
        return


def _live(beat: Any) -> None:
    """Gives signs of life while the parent is there."""
    parent = multiprocessing.parent_process()
    while parent is None or parent.is_alive():
        beat.value = time.monotonic()
        time.sleep(BEAT_SECONDS)
    os._exit(1)
