"""How training ends on a signal: soon, in all its processes, with the exit code that shells expect."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from zoo.utils.ending import SIGNALS, heeded

GRACE = 3.0  # seconds for cleaning up, and for a process's own message after its parent ended
ALONE = 10  # times as long for a process that no other one keeps waiting: a busy machine needs longer
LAUNCHER = "ZOO_LAUNCHER"  # parent process of the same run
RESUME = "ZOO_RESUME"  # command that resumes a work of which this run is a part; its process says how it ended

_listening = False


class Stopped(BaseException):
    """A signal requested the end. Not an `Exception`, so that nothing on the way handles it as a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _forget_in_fork() -> None:
    if _listening:  # else a signal to a worker process would look like one to this process
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_fork)


@contextmanager
def ending_by_signal(say: Callable[[int], None], children: Callable[[], list[subprocess.Popen]]) -> Iterator[None]:
    """Makes SIGINT, SIGTERM and SIGHUP end this process and its siblings, with the exit code 128 + number.

    The main thread gets a chance to clean up. It may be waiting in a collective operation that never ends, where Python
    runs no handler; then another thread ends the process after `GRACE` seconds, or after ten times as many if it is the
    only process of the run. A child process passes the signal on to its parent, which ends all processes. If the parent
    is gone, the child ends as well.

    Args:
        say: prints the final message about a signal.
        children: the processes that this one started for the run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = _Ending(say, children)
    try:
        with ending.listening():
            yield
    except Stopped as stopped:
        ending.end(stopped.number)
    except BaseException:
        if ending.number is None:
            raise
        ending.end(ending.number)  # the failure was caused by the signal


class _Ending:
    def __init__(self, say: Callable[[int], None], children: Callable[[], list[subprocess.Popen]]) -> None:
        self._say, self._children = say, children
        self._process, self._parent = os.getpid(), os.getppid()
        self._started = "LOCAL_RANK" in os.environ  # by any launcher
        self._passes_on = os.environ.get(LAUNCHER) == str(self._parent) and os.name == "posix"
        self._is_part = self._started or RESUME in os.environ
        self._done, self._lock = threading.Event(), threading.Lock()
        self.number: int | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        global _listening
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        launcher = os.environ.get(LAUNCHER)
        handled = heeded()
        before = {number: signal.signal(number, self._handle) for number in handled}
        wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        _listening = True
        if not self._started:
            os.environ[LAUNCHER] = str(self._process)
        watcher = threading.Thread(target=self._watch, args=(ours, handled), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            _listening = False
            self._done.set()
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.environ.pop(LAUNCHER, None) if launcher is None else os.environ.update({LAUNCHER: launcher})
            watcher.join()
            ours.close()
            theirs.close()

    def _handle(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:  # a forked worker process
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        for other in SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        self.number = number
        if self._passes_on:
            time.sleep(2 * GRACE)  # the watcher ends this process
        raise Stopped(number)

    def _watch(self, ours: socket.socket, handled: list[int]) -> None:
        while not self._done.is_set():
            if select.select([ours], [], [], 0.2)[0]:
                for number in ours.recv(64):
                    if number in handled:
                        self._see_to(number)
            if self._is_part and os.getppid() != self._parent and not self._done.wait(GRACE):
                print(
                    "zoo: error: the process that started this one ended, so this one ends too",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(1)

    def _see_to(self, number: int) -> None:
        if self._passes_on:
            os.kill(self._parent, number)
        several = self._started or self._children()
        if not self._done.wait(GRACE if several else ALONE * GRACE):
            self.end(number)

    def end(self, number: int) -> None:
        """Ends this process, at once if others belong to it."""
        self._lock.acquire()  # never released: the main thread or the watcher, whichever is first
        if not self._passes_on:
            self._say(number)
        children = self._children()
        for child in children:
            child.kill()
        if children or self._started or threading.current_thread() is not threading.main_thread():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(128 + number)
        sys.exit(128 + number)
