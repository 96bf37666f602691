"""The processes in which the stages of `zoo rebuild` run, one at a time, so that each frees its memory."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from zoo.training.signals import LAUNCHER, RESUME, Stopped
from zoo.utils.shipped import PACKAGE

WAIT = 20.0  # seconds that a process has for its end


class FailedError(Exception):
    """A process ended with another exit code than 0.

    Attributes:
        code: the exit code; below 0: of a signal.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        number = -self.code if self.code < 0 else self.code - 128
        with suppress(ValueError):
            return f"ended by {signal.Signals(number).name}"
        return f"failed with exit code {self.code}"


class Processes:
    """Runs processes, and passes on the signal that ends this one.

    Args:
        resume: the command that resumes what is stopped; processes name it in their messages.
    """

    def __init__(self, resume: str) -> None:
        self.resume = resume

    def module(self, module: str, arguments: Sequence[str]) -> None:
        """Runs a module of this package.

        Raises:
            FailedError: it failed; if the exit code is 2, it has said why.
        """
        self._run([sys.executable, "-m", module, *arguments], Path(), {})

    def shell(self, lines: str, folder: Path, variables: dict[str, str]) -> None:
        """Runs lines of bash in a folder; the first one that fails ends them.

        Raises:
            FailedError: one failed.
        """
        self._run(["bash", "-euo", "pipefail", "-c", lines], folder, variables)

    def _run(self, command: list[str], folder: Path, variables: dict[str, str]) -> None:
        path = os.pathsep.join(filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, RESUME: self.resume, **variables}
        environment.pop(LAUNCHER, None)  # it would pass signals back to this process
        # a session of its own: Ctrl-C in a terminal reaches it through this process only, once
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, start_new_session=os.name == "posix"
        )
        try:
            code = process.wait()
        except BaseException as reason:
            _end(process, reason.number if isinstance(reason, Stopped) else signal.SIGTERM)
            raise
        if code:
            raise FailedError(code)


def _end(process: subprocess.Popen, number: int) -> None:
    """Ends a process, and those that it started, by a signal; if that has no effect, by force."""
    with suppress(ProcessLookupError):
        if os.name == "posix":
            os.killpg(process.pid, number)
        else:
            process.terminate()
    try:
        process.wait(WAIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
