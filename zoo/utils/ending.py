"""How a command ends on a signal: after cleaning up, with one line and the exit code that shells expect."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def heeded() -> list[signal.Signals]:
    """The signals that end a process, but those that are ignored, as nohup wants it."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def cleaning_up() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end this process like Ctrl-C: removes unfinished files and exits with 128 + number."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped: list[int] = []

    def end(number: int, frame: Any) -> None:
        stopped.append(number)
        for other in handled:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    handled = [number for number in heeded() if number != signal.SIGINT]  # Python's own handler raises as well
    before = {number: signal.signal(number, end) for number in handled}
    try:
        yield
    except SystemExit:
        for number in stopped:
            say_stopped(number)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say_stopped(number: int) -> None:
    """Reports on standard error which signal ended the command."""
    print(f"zoo: stopped by {signal.Signals(number).name}", file=sys.stderr, flush=True)
