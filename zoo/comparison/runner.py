"""Runs the jobs of a comparison, several at a time, each in its own processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as TimeIsOver
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from zoo.comparison.files import JOB, LOG, write_json
from zoo.comparison.jobs import Job, Plan
from zoo.utils.shipped import PACKAGE

try:
    import fcntl
except ImportError:  # not on every system
    fcntl = None


class Runner:
    """Runs several jobs in parallel. With fewer GPUs than jobs, several jobs share a GPU.

    Args:
        plan: the settings of all jobs.
        hours: no job starts after that time, and those that run are ended; they resume from their last checkpoint.

    Attributes:
        count: number of jobs that were to be run.
        failed: titles of those that failed.
        taken: titles of those that another process runs.
    """

    def __init__(self, plan: Plan, hours: float | None = None) -> None:
        self.plan, self.count = plan, 0
        self.failed: list[str] = []
        self.taken: list[str] = []
        self._end = None if hours is None else time.monotonic() + 3600 * hours
        self._slots = list(range(plan.at_once))[::-1]
        self._running: dict[int, subprocess.Popen] = {}
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, todo: Sequence[Job]) -> None:
        """Runs the jobs that are not done, in this order, with one line of output each."""
        self.count += len(todo)
        if self.is_over:
            return
        with _ending_on_request(), ThreadPoolExecutor(self.plan.at_once) as pool:
            try:
                for done in as_completed([pool.submit(self._job, job) for job in todo], self._seconds_left()):
                    if line := done.result():
                        print(line, flush=True)
            except TimeIsOver:  # or a file system that does not answer, which raises the same
                self._stop()
                if not self.is_over:
                    raise
            except BaseException:
                self._stop()
                raise

    @property
    def is_over(self) -> bool:
        """Whether the time is over, so that jobs may be left."""
        return self._seconds_left() == 0

    def _seconds_left(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running.values():
                process.terminate()

    def _job(self, job: Job) -> str:
        if self._stopped:
            return ""
        if job.end.is_file():
            return f"{job.title}: already done"
        job.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                handle = stack.enter_context(_locked(job.folder / "lock"))
            except (BlockingIOError, TimeoutError):
                self.taken.append(job.title)
                return f"{job.title}: another process is running it"
            write_json(job.folder / JOB, job.describe())
            with self._lock:
                slot = self._slots.pop()
            try:
                for command in job.commands():
                    if command[0] == "zoo":
                        print(f"{job.title}: training", flush=True)
                    self._process(job, command, slot, handle)
            except _FailedError as error:
                if self._stopped:
                    return ""
                self.failed.append(job.title)
                return f"{job.title}: failed: {error}"
            finally:
                with self._lock:
                    self._slots.append(slot)
            job.clean_up()
        return f"{job.title}: {job.report()}"

    def _process(self, job: Job, command: list[str], slot: int, lock: int | None) -> None:
        """Runs a process of a job to its end; it inherits the handle of the job's lock."""
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.plan.threads), "PYTHONPATH": _python_path()}
        if self.plan.device == "cuda":
            environment["CUDA_VISIBLE_DEVICES"] = _visible(slot % self.plan.gpus)
        log = job.folder / LOG
        with open(log, "a", encoding="utf-8") as output:
            start = output.tell()
            with self._lock:
                if self._stopped:
                    raise _FailedError("stopped")
                process = subprocess.Popen(
                    [sys.executable, "-m", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    pass_fds=() if lock is None else (lock,),
                )
                self._running[process.pid] = process
            code = process.wait()
            with self._lock:
                del self._running[process.pid]
        if code:
            said = log.read_bytes()[start:].decode("utf-8", "replace").splitlines()
            lines = [line.strip() for line in said if line.strip()]
            errors = [line for line in lines if line.startswith("zoo: error: ")]
            what = (errors or lines or [f"exit code {code}"])[-1].removeprefix("zoo: error: ")
            raise _FailedError(f"{what if code > 0 else f'killed by signal {-code}'} ({log})")


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """Locks a file and returns the handle. A process that inherits it keeps the lock, even if this one is killed.

    None on a system without such locks.

    Raises:
        BlockingIOError, TimeoutError: another process has the lock.
    """
    if fcntl is None:
        with FileLock(path).acquire(blocking=False):
            yield None
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _ending_on_request() -> Iterator[None]:
    """Makes SIGTERM an exception, so that the processes of the jobs end too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: Any) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _FailedError(Exception):
    """A process of a job failed."""


def _python_path() -> str:
    """Environment in which the processes run this very package."""
    return os.pathsep.join(filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]))


def _visible(gpu: int) -> str:
    """The name of a GPU that this process may use."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[gpu] if given else str(gpu)
