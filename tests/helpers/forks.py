"""Processes that have everything imported: forks of a server that does nothing else, so that no thread or lock of a
test is in them.
"""

import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import zoo.tasks.base
from zoo.cli import main
from zoo.training.checkpoints import model_of
from zoo.utils import atomic

FORKS = "forkserver" in multiprocessing.get_all_start_methods()  # not on Windows, where a new process imports all anew
CONTEXT = multiprocessing.get_context("forkserver" if FORKS else "spawn")
if FORKS:
    CONTEXT.set_forkserver_preload(["process_worker", "forks", "first_use"])


def start() -> None:
    """Starts the server, if it is not there, with the settings of malloc that are the default."""
    if not FORKS:
        return
    hidden = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith(("MALLOC_", "PYTHONPATH"))}
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # the server of Python 3.11 preloads only what this finds
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        os.environ.update(hidden)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Fork:
    """Runs a function, which must have a name in a module, in a process of its own, with the environment and in the
    folder of this one.

    Attributes:
        code: after `wait`: 0, what it gave to sys.exit, 1 after an exception, negative if a signal ended it.
        output: after `wait`: what it printed.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, **environment: str) -> None:
        start()
        handle, self._file = tempfile.mkstemp()
        os.close(handle)
        setting = (os.environ | environment, os.getcwd(), self._file)
        self._process = CONTEXT.Process(target=_run, args=(setting, function, arguments))
        self._process.start()

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self._process.kill()

    def wait(self, timeout: float = 200.0) -> "Fork":
        """Waits for its end.

        Raises:
            TimeoutError: it goes on; it is killed then.
        """
        self._process.join(timeout)
        late = self._process.exitcode is None
        if late:
            self.kill()
            self._process.join()
        self.code, self.output = self._process.exitcode, Path(self._file).read_text(errors="replace")
        os.unlink(self._file)
        if late:
            raise TimeoutError(f"a process went on for more than {timeout} s: {self.output[-2000:]}")
        return self


def _run(setting: tuple[dict[str, str], str, str], function: Callable[..., Any], arguments: tuple) -> None:
    environment, folder, output = setting
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    handle = os.open(output, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(handle, number)
    torch.set_num_threads(1)
    function(*arguments)


def command(*args: str) -> None:
    """The command line; ends the process if it fails."""
    if code := main(list(args)):
        sys.exit(code)


def resave(checkpoint: str, folder: str) -> None:
    """A checkpoint as a folder of weights, in full precision."""
    model_of(checkpoint).save_pretrained(folder, golden=True)


def torchrun(count: int, function: Callable[..., Any], *arguments: Any) -> None:
    """Runs a function in as many processes as `torchrun --nproc-per-node` would start, with what it would tell them;
    all must end well.
    """
    port = str(free_port())
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
    forks = [Fork(function, *arguments, **shared, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(count)]
    ends = [fork.wait() for fork in forks]
    assert [end.code for end in ends] == [0] * count, "\n".join(end.output for end in ends)


# ---- power cuts ----


class Moments:
    """Counts what this process does to files, and kills it at one of these moments: before the act, or when half of it
    is done.

    Attributes:
        at: the moment, from 0; None: none.
        first: called when a file is first written.
        count: so many there were.
    """

    CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "chmod", "fsync")  # of os; other modules call these

    def __init__(self, at: int | None, first: Callable[[], Any]) -> None:
        self.at, self.first, self.count, self._written_to = at, first, 0, False
        for name in self.CALLS:
            setattr(os, name, self._before(getattr(os, name)))
        atomic._exchanged = self._before(atomic._exchanged)
        self._save_file, zoo.tasks.base.save_file = zoo.tasks.base.save_file, self._saved
        self._open, atomic.open = open, self._opened
        Path.write_bytes, Path.write_text = self._written(Path.write_bytes), self._written(Path.write_text)

    def _now(self, half: Callable[[], Any] | None = None) -> None:
        if half and not self._written_to:
            self._written_to = True
            self.first()
        if self.count == self.at:
            if half:
                half()
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def _before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self._now()
            return function(*arguments, **options)

        return call

    def _written(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def write(path: Path, data: Any, *arguments: Any, **options: Any) -> Any:
            self._now(lambda: function(path, data[: len(data) // 2], *arguments, **options))
            return function(path, data, *arguments, **options)

        return write

    def _saved(self, tensors: Any, path: Path, **options: Any) -> None:
        def half() -> None:
            self._save_file(tensors, path, **options)
            os.truncate(path, os.path.getsize(path) // 2)

        self._now(half)
        self._save_file(tensors, path, **options)

    def _opened(self, path: Path, mode: str) -> Any:
        file = self._open(path, mode)
        if mode != "xb":
            return file
        write = file.write

        def half(data: Any) -> None:
            write(data[: len(data) // 2])
            file.flush()

        def hooked(data: Any) -> Any:
            self._now(lambda: half(data))
            return write(data)

        file.write = hooked
        return file


def _counted(pipe: Connection, function: Callable[..., Any], *arguments: Any) -> None:
    start: list[float] = []
    found = Moments(None, lambda: start.append(time.monotonic()))
    function(*arguments)
    pipe.send((found.count, time.monotonic() - start[0]))


def _cut(pipe: Connection, at: int | None, function: Callable[..., Any], *arguments: Any) -> None:
    Moments(at, lambda: pipe.send(None))
    function(*arguments)


def moments(function: Callable[..., Any], *arguments: Any) -> tuple[int, float]:
    """Runs a function in a fork to its end; counts the moments, and the seconds since a file was first written."""
    ours, theirs = CONTEXT.Pipe()
    end = Fork(_counted, theirs, function, *arguments).wait()
    assert end.code == 0, end.output
    return ours.recv()


def killed(
    rng: random.Random, by: str, most: tuple[float, float], function: Callable[..., Any], *arguments: Any
) -> bool:
    """Runs a function in a fork and kills it.

    Args:
        rng: draws when.
        by: "moment": at one of the first; "time": some time after a file was first written.
        most: moments, and seconds, to draw from.

    Returns:
        Whether it was killed; else it was done before.
    """
    ours, theirs = CONTEXT.Pipe()
    fork = Fork(_cut, theirs, rng.randrange(int(most[0])) if by == "moment" else None, function, *arguments)
    theirs.close()
    if by == "time":
        ours.poll(100)
        time.sleep(rng.random() * most[1])
        fork.kill()
    fork.wait()
    assert fork.code in (0, -signal.SIGKILL), fork.output
    return fork.code != 0
