"""`zoo compare`: trains every attention mechanism with the same budget, with several seeds, and compares them.

A folder of recipes holds base.yaml, the budget, and one short file per mechanism. A job is one mechanism with one seed;
it runs two processes one after the other (`zoo fit`, then zoo/comparison/measures.py) in its own folder:

    OUT/dot/seed1/job.json        the settings
    OUT/dot/seed1/log.txt         output of the processes
    OUT/dot/seed1/base/           checkpoints and logs of the training
    OUT/dot/seed1/training.json   speed and scores of the training, once it is done
    OUT/dot/seed1/result.json     everything, once the job is done

Finished work is not repeated: a job with a result is skipped, an interrupted training resumes from its last checkpoint.
"""

import argparse
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from zoo.comparison.measures import BASE, JOB, RECIPES, RESULT, TRAINING, load_class, load_data
from zoo.data.common.files import fingerprint, write_atomically
from zoo.registry import register
from zoo.tasks.checks import check_arguments, check_choices
from zoo.utils.extras import require
from zoo.utils.modules import find_local_modules
from zoo.utils.regular import check_regular
from zoo.utils.shipped import PACKAGE

try:
    import fcntl
except ImportError:  # not on every system
    fcntl = None


@dataclass(frozen=True)
class Plan:
    """Settings common to all jobs of one call."""

    recipes: Path
    out: Path
    root: str | None  # of the data
    epochs: int
    device: str  # "cpu" or "cuda"
    threads: int
    gpus: int

    def recipe(self, name: str) -> Path:
        return self.recipes / f"{name}.yaml"


@dataclass(frozen=True)
class Job:
    """One mechanism with one seed."""

    plan: Plan
    name: str
    seed: int

    @property
    def folder(self) -> Path:
        return self.plan.out / self.name / f"seed{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a result depends on."""
        recipe = fingerprint(*(_read(self.plan.recipe(name)) for name in (BASE, self.name)))
        return {"epochs": self.plan.epochs, "recipe": recipe}

    @property
    def model(self) -> dict[str, Any]:
        """`model:` of the recipe, with the arguments of base.yaml if it is of the same class."""
        base, own = (_read(self.plan.recipe(name))["model"] for name in (BASE, self.name))
        arguments = own.get("init_args") or {}
        if own.get("class_path", base["class_path"]) == base["class_path"]:
            arguments = {**(base.get("init_args") or {}), **arguments}
        return {"class_path": own.get("class_path", base["class_path"]), "init_args": arguments}

    def check_model(self) -> None:
        """Raises ValueError if the recipe's class is no translator, or does not take the recipe's arguments."""
        from zoo.tasks.translation import TranslationModule

        where, model = self.plan.recipe(self.name), self.model
        cls = load_class(model["class_path"])
        if not (isinstance(cls, type) and issubclass(cls, TranslationModule)):
            raise ValueError(f"{where}: `zoo compare` compares translators, and {model['class_path']} is none")
        signature = inspect.signature(cls.__init__)
        check_arguments(cls, signature, cls.required)
        defaults = {name: parameter.default for name, parameter in signature.parameters.items()}
        if unknown := sorted(model["init_args"].keys() - defaults.keys()):
            raise ValueError(
                f"{where}: {cls.__name__} has no argument {unknown[0]}; it has {', '.join([*defaults][1:])}"
            )
        check_choices(signature, {**defaults, **model["init_args"]})
        register(cls)

    def check(self) -> None:
        """Raises ValueError if the recipe cannot be read, or the folder has the same job with other settings."""
        new = self.settings  # always, so that every recipe is read
        if (self.folder / TRAINING).is_file() and not (self.folder / RESULT).is_file():
            best = self.folder / BASE / "checkpoints" / "best.ckpt"
            try:
                json.loads((self.folder / TRAINING).read_text(encoding="utf-8"))
            except ValueError as error:
                raise ValueError(
                    f"{self.folder / TRAINING} is damaged: delete {self.folder} to train it again"
                ) from error
            if not best.is_file():
                raise ValueError(f"{best} of a finished training is missing: delete {self.folder} to train it again")
        for file in (self.folder / RESULT, self.folder / JOB):
            if file.is_file():
                known = _settings(file)
                for key in new:
                    if known.get(key) != new[key]:
                        was = "another recipe" if key == "recipe" else f"{known.get(key)} {key}, not {new[key]}"
                        raise ValueError(
                            f"{file} is of {was}: choose another --out, or delete {self.folder} to train it again"
                        )

    def describe(self) -> dict[str, Any]:
        """Content of job.json."""
        data = _read(self.plan.recipe(BASE))["data"]
        data["init_args"] = {**(data.get("init_args") or {}), **({"root": self.plan.root} if self.plan.root else {})}
        return dict(
            name=self.name,
            seed=self.seed,
            settings=self.settings,
            device=self.plan.device,
            run=BASE,
            data=data,
            model=self.model["class_path"],
        )

    def fit_arguments(self) -> list[str]:
        """Arguments of `zoo fit`; the recipe's schedule is scaled to the number of epochs."""
        base, own = (_read(self.plan.recipe(name)) for name in (BASE, self.name))
        schedule = {**_schedule(base), **_schedule(own)}
        stretch = self.plan.epochs / base["trainer"]["max_epochs"]
        steps = {
            f"--lr_scheduler.{key}": max(1, round(schedule[key] * stretch))
            for key in ("warmup_steps", "total_steps")
            if schedule.get(key)
        }
        options: dict[str, Any] = {
            "--seed_everything": self.seed,
            "--data.seed": self.seed,
            "--trainer.max_epochs": self.plan.epochs,
            "--trainer.default_root_dir": self.folder,
            "--trainer.accelerator": "gpu" if self.plan.device == "cuda" else "cpu",
            "--trainer.devices": 1,
            "--trainer.enable_progress_bar": "false",
            **({"--ckpt_path": "last"} if any(self.folder.glob(f"{BASE}/checkpoints/*.ckpt")) else {}),
            **steps,
            **({"--data.root": self.plan.root} if self.plan.root else {}),
        }
        recipes = [part for name in (BASE, self.name) for part in ("--config", str(self.plan.recipe(name)))]
        return ["fit", *recipes, *(str(part) for option in options.items() for part in option)]


def _schedule(recipe: dict[str, Any]) -> dict[str, Any]:
    return (recipe.get("lr_scheduler") or {}).get("init_args") or {}


def _settings(file: Path) -> dict[str, Any]:
    """Settings from a job.json or result.json."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is damaged: delete it") from error


def _read(path: Path) -> dict[str, Any]:
    check_regular(path)
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise ValueError(f"{path} is not a recipe: it has no `model:`")
    return found


def mechanisms(recipes: Path, only: Sequence[str] = ()) -> list[str]:
    """Names of the recipes next to base.yaml, or those of `only`.

    Raises:
        ValueError: no such folder, or an unknown name.
    """
    if not (recipes / f"{BASE}.yaml").is_file():
        raise ValueError(
            f"{recipes} has no {BASE}.yaml: give the folder of recipes with --recipes (the shipped ones: {RECIPES})"
        )
    names = sorted(path.stem for path in recipes.glob("*.yaml") if path.stem != BASE)
    for name in only:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            raise ValueError(
                f"no mechanism '{name}'{f' (nearest: {near[0]})' if near else ''}; there are {', '.join(names)}"
            )
    return list(dict.fromkeys(only)) or names


class Runner:
    """Runs several jobs in parallel, each in its own processes."""

    def __init__(self, plan: Plan, jobs: int) -> None:
        self.plan, self.jobs = plan, jobs
        self.failed: list[str] = []
        self._slots = list(range(jobs))[::-1]
        self._running: dict[int, subprocess.Popen] = {}
        self._handles: dict[Path, int] = {}  # lock handles, by job folder
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, todo: Sequence[Job]) -> None:
        """Runs the jobs without a result, with one line of output each. Failures are in `failed` afterwards."""
        with _ending_on_request(), ThreadPoolExecutor(self.jobs) as pool:
            try:
                for line in (done.result() for done in as_completed([pool.submit(self._job, job) for job in todo])):
                    if line:
                        print(line, flush=True)
            except BaseException:
                self._stop()
                raise

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running.values():
                process.terminate()

    def _job(self, job: Job) -> str:
        title = f"{job.name}, seed {job.seed}"
        if self._stopped:
            return ""
        if (job.folder / RESULT).is_file():
            return f"{title}: already done"
        job.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                handle = stack.enter_context(_locked(job.folder / "lock"))
            except (BlockingIOError, TimeoutError):
                return f"{title}: another process is running it"
            if handle is not None:
                self._handles[job.folder] = handle
            write_atomically(job.folder / JOB, json.dumps(job.describe(), indent=2) + "\n")
            with self._lock:
                slot = self._slots.pop()
            try:
                if not (job.folder / TRAINING).is_file():
                    print(f"{title}: training", flush=True)
                    self._process(job, ["zoo", *job.fit_arguments()], slot)
                self._process(job, ["zoo.comparison.measures", str(job.folder)], slot)
            except _FailedError as error:
                if self._stopped:
                    return ""
                self.failed.append(title)
                return f"{title}: failed: {error}"
            finally:
                with self._lock:
                    self._slots.append(slot)
        result = json.loads((job.folder / RESULT).read_text(encoding="utf-8"))
        scores = f"BLEU {result['validation']['bleu']:.1f} on validation, {result['test']['bleu']:.1f} on test"
        return f"{title}: {scores}, trained in {result['training']['seconds'] / 60:.1f} min"

    def _process(self, job: Job, command: list[str], slot: int) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.plan.threads), "PYTHONPATH": _python_path()}
        if self.plan.device == "cuda":
            environment["CUDA_VISIBLE_DEVICES"] = _visible(slot % self.plan.gpus)
        log = job.folder / "log.txt"
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
                    pass_fds=tuple(handle for folder, handle in self._handles.items() if folder == job.folder),
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


def plan(options: argparse.Namespace) -> tuple[Plan, list[Job]]:
    """All jobs that the command-line options select, checked.

    Raises:
        ValueError: an option is invalid, or the folder has results of other settings.
    """
    import torch

    find_local_modules()  # a recipe may name a class of one
    recipes, out = Path(options.recipes or RECIPES), Path(options.out)
    names = mechanisms(recipes, options.only or ())
    for option in ("epochs", "jobs", "threads"):
        if (value := getattr(options, option)) is not None and value < 1:
            raise ValueError(f"--{option} must be at least 1; got {value}")
    if min(options.seeds) < 0:
        raise ValueError(f"--seeds must be at least 0; got {min(options.seeds)}")
    gpus = torch.cuda.device_count()
    device = options.device or ("cuda" if gpus else "cpu")
    if device == "cuda" and not gpus:
        raise ValueError("--device cuda: there is no GPU that torch can use; leave it out or give cpu")
    if options.root and not Path(options.root).is_dir():
        raise ValueError(f"--data.root {options.root}: no such folder")
    base = _read(recipes / f"{BASE}.yaml")
    if (
        not isinstance(base.get("data"), dict)
        or not isinstance(base.get("trainer"), dict)
        or not base["trainer"].get("max_epochs")
    ):
        raise ValueError(
            f"{recipes / f'{BASE}.yaml'} must have `data:` and, as the budget, `trainer: {{max_epochs: N}}`"
        )
    epochs = options.epochs or base["trainer"]["max_epochs"]
    threads = options.threads or max(1, (os.cpu_count() or 1) // options.jobs)
    found = Plan(recipes, out, options.root, epochs, device, threads, gpus)
    jobs = [Job(found, name, seed) for seed in dict.fromkeys(options.seeds) for name in names]
    for job in jobs:
        job.check()
        job.check_model()
    data = load_data(jobs[0].describe()["data"])
    data.val_pairs()
    data.test_sets()  # what is missing is missed before the trainings
    for file in sorted(out.glob(f"*/seed*/{JOB}")):  # also of jobs not selected now: all appear in one table
        name, seed = file.parent.parent.name, file.parent.name.removeprefix("seed")
        if seed.isdecimal() and found.recipe(name).is_file():
            Job(found, name, int(seed)).check()
        elif (known := _settings(file).get("epochs")) != epochs:
            raise ValueError(
                f"{file} is of {known} epochs, not {epochs}: choose another --out, or delete {file.parent}"
            )
    return found, jobs


def run(options: argparse.Namespace) -> None:
    """Runs `zoo compare`.

    Raises:
        ValueError: an option is invalid, or jobs failed.
    """
    from zoo.comparison.report import check_page, write_report

    require("plots", "`zoo compare`")
    recipes, out = Path(options.recipes or RECIPES), Path(options.out)
    jobs: list[Job] = []
    failed: list[str] = []
    mechanisms(recipes, options.only or ())
    check_page(Path(options.page or out))
    if not options.report:
        require("scores", "`zoo compare`")
        common, jobs = plan(options)
        runner = Runner(common, options.jobs)
        runner.run(jobs)
        failed = sorted(runner.failed)
    if not failed or any(out.glob(f"*/seed*/{RESULT}")):
        print(write_report(out, recipes, Path(options.page or out)))
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(jobs)} jobs failed: {'; '.join(failed)}; the same command retries them"
        )
