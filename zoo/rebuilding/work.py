"""The work of `zoo rebuild`: each stage in its folder, with what is done skipped and what is unfinished resumed.

OUTPUT/NAME/stage.json          of the stage NAME, once it is done: its definition, and hashes of what it read and made
OUTPUT/NAME/weights             the weights of a fit or an average
OUTPUT/NAME/RECIPE/             the run of a fit, as `zoo fit` writes it;   record.json   what its end noted down
OUTPUT/NAME/FILE                a file of another stage
OUTPUT/NAME/read.json           what an unfinished stage has read of the data
OUTPUT/test/                    the scores of the last weights
OUTPUT/rebuild.json             the log
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from zoo import registry
from zoo.bundles.files import LOCAL_DIR
from zoo.rebuilding.digests import file_sha256
from zoo.rebuilding.inputs import READ
from zoo.rebuilding.processes import FailedError, Processes
from zoo.rebuilding.stages import Stage, check_settings, filled, read_stages
from zoo.utils.atomic import write_text
from zoo.utils.extras import require
from zoo.utils.places import cache_folder

STAGE, RECORD, WEIGHTS, TEST = "stage.json", "record.json", "weights", "test"
State = Literal["done", "unfinished", "to do"]
CHANGES = {"vary": "variants", "cross": "crossing", "pair": "pairing"}  # kind of stage that changes lines -> its module
# A file of the data, in any of the places where our data sets look for it.
DATA = """\
data() {
    for place in "$DATA" "$DATA"/nmt "$DATA"/text "$DATA"/captioning; do
        if [ -e "$place/$1" ]; then echo "${place#"$DATA"}/$1" >> inputs.txt; echo "$place/$1"; return; fi
    done
    echo "zoo: there is no $1 in $DATA" >&2
    echo "$1" >> missing.txt
    return 1
}
"""


@dataclass(frozen=True)
class Rebuild:
    """What is to be made, from what, and where.

    Attributes:
        recipe: the recipe of the weight.
        output: the folder for everything.
        root: folder of the data; None: downloaded.
        settings: settings for each fit, from the command line.
        processes: run the work.
    """

    recipe: Path
    output: Path
    root: str | None
    settings: dict[str, str]
    processes: Processes

    @property
    def name(self) -> str:
        return self.recipe.stem

    @cached_property
    def stages(self) -> list[Stage]:
        return read_stages(self.recipe)

    # ---- what is there ----

    def folder(self, stage: Stage) -> Path:
        return self.output / stage.name

    def place(self, name: str) -> Path:
        """The weights or the file that a stage makes under a name."""
        stage = next(stage for stage in self.stages if name in stage.to)
        return self.folder(stage) / (name if stage.makes == "file" else WEIGHTS)

    def state(self, stage: Stage) -> State:
        """How far a stage is.

        Raises:
            ValueError: its folder is of other settings, or of other data.
        """
        folder = self.folder(stage)
        if not (folder / STAGE).is_file():
            return "unfinished" if folder.is_dir() and any(folder.iterdir()) else "to do"
        found = read_json(folder / STAGE)
        other = f"choose another --output, or delete {folder} to make it again"
        if differs := _difference(found.get("definition", {}), self.definition(stage)):
            raise ValueError(f"{folder} is of other settings ({differs}): {other}")
        for name, digest in self.uses(stage).items():
            if digest and digest != found["uses"].get(name):
                raise ValueError(f"{folder} was made with another {name}: {other}")
        is_done = found.get("done")
        if name := self._changed(found["data"] if is_done else _read_so_far(folder)):
            raise ValueError(f"{folder} was made with another {name} of the data: {other}")
        if not is_done:
            return "unfinished"
        for name, digest in found["made"].items():
            if self.made(stage).get(name) != digest:
                raise ValueError(f"{folder}: {name} is missing or was changed since the stage was done: {other}")
        return "done"

    def definition(self, stage: Stage) -> dict[str, Any]:
        return json.loads(json.dumps(stage.definition(self.settings)))  # as it is read again

    def made(self, stage: Stage) -> dict[str, str]:
        """The files that a stage made, with their hashes: of weights config.json, which has those of the others."""
        places = [self.place(name) for name in stage.to]
        files = [place if stage.makes == "file" else place / "config.json" for place in places]
        return {str(file.relative_to(self.folder(stage))): file_sha256(file) for file in files if file.is_file()}

    def uses(self, stage: Stage) -> dict[str, str | None]:
        """What a stage reads of earlier stages and of published weights, with hashes; None where it is not made yet."""
        found: dict[str, str | None] = {name: registry.entry(name).sha256 for name in stage.weights}
        for name in stage.uses:
            place = self.place(name)
            file = place / "config.json" if place.name == WEIGHTS else place
            done = place.parent / STAGE
            is_made = file.is_file() and done.is_file() and read_json(done).get("done")
            found[name] = file_sha256(file) if is_made else None
        return found

    def _changed(self, data: dict[str, str]) -> str | None:
        """The first file of the data whose hash is another now."""
        files = ((name, self._data_file(name), digest) for name, digest in data.items())
        return next((name for name, file, digest in files if file and file_sha256(file) != digest), None)

    def _data_file(self, name: str) -> Path | None:
        roots = [Path(root) / name for root in self._roots()]
        return next((path for path in roots if path.is_file()), None)

    def _roots(self) -> list[str]:
        return [*([self.root] if self.root else []), str(cache_folder() / "downloads")]

    # ---- doing it ----

    def check(self) -> None:
        """Everything that can be known to be wrong before the first training.

        Raises:
            ValueError: something is. FailedError: a setting is, and a line on standard error says which.
        """
        states = [self.state(stage) for stage in self.stages]
        todo = [stage for stage, state in zip(self.stages, states) if state != "done"]
        if shell := next((stage for stage in todo if stage.kind == "prepare"), None):
            if not self.root:
                raise ValueError(f"stage {shell.name} reads files of the data: give --root DATA, or set ZOO_DATA")
            if not shutil.which("bash"):
                raise ValueError(f"stage {shell.name} needs bash, which is not installed")
        if encoder := next((stage for stage in todo if stage.kind == "encoder"), None):
            require("encoder", f"stage {encoder.name}")
        fits = [stage for stage in todo if stage.kind == "fit"]
        if jobs := [(stage.name, self.fit_arguments(stage), bool(stage.uses)) for stage in fits]:
            self.processes.module("zoo.rebuilding.check", [json.dumps(jobs)])

    def run(self, test: bool = True) -> None:
        """Does what is to be done of all stages.

        Args:
            test: scores the last weights on the test data.

        Raises:
            ValueError: something is wrong, or a stage failed. FailedError: the same, and it has said why.
        """
        check_settings(self.settings)
        stages = self.stages  # read before anything is written
        with self._locked():
            self.check()
            for number, stage in enumerate(stages, 1):
                title = f"stage {number} of {len(stages)}, {stage.name}: {stage.what}"
                if self.state(stage) == "done":
                    print(f"{title}: already done", flush=True)
                    continue
                print(title, flush=True)
                with self._naming(stage.name):
                    self._make(stage)
            if test:
                with self._naming("the test"):
                    self._test()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.output.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.output / ".lock")
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            raise ValueError(f"another `zoo rebuild` is at work in {self.output}: wait for its end") from error
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _naming(self, stage: str) -> Iterator[None]:
        """Context: says which stage failed, unless the process has said what is wrong."""
        try:
            yield
        except FailedError as error:
            if error.code == 2:
                raise
            raise ValueError(f"stage {stage} {error}; resume with: {self.processes.resume}") from error

    def _make(self, stage: Stage) -> None:
        file = self.folder(stage) / STAGE
        begun = {"definition": self.definition(stage), "uses": self.uses(stage), "done": False}
        with _timed(file, begun) as state:
            data = self._work_of(stage)
            for name in stage.to:
                if not self.place(name).exists():
                    raise ValueError(f"stage {stage.name} did not make {self.place(name)}")
            state |= {"done": True, "data": data, "made": self.made(stage)}

    def _work_of(self, stage: Stage) -> dict[str, str]:
        """Does it.

        Returns:
            What it read of the data: sha256 of each file.
        """
        kinds = {
            "fit": self._fit,
            "average": self._average,
            "prepare": self._prepare,
            "encoder": self._encoder,
            "sample": self._sample,
            "predict": self._predict,
            **dict.fromkeys(CHANGES, self._change),
        }
        return kinds.get(stage.kind, self._answer)(stage)

    def fit_arguments(self, stage: Stage) -> list[str]:
        """Arguments of `zoo fit`, without what resumes it."""
        folder, given = self.folder(stage), stage.given
        places = {name: str(self.place(name).absolute()) for name in stage.uses}
        settings = {name: _argument(filled(value, places)) for name, value in given.get("settings", {}).items()}
        if "from" in given:
            settings["model.name"] = self._source(given["from"])
        return [
            *("fit", "--config", str(stage.recipe), "--trainer.default_root_dir", str(folder.absolute())),
            *_options({**settings, **self.settings}),
            *self._common(folder / RECORD),
        ]

    def _common(self, record: Path) -> list[str]:
        callback = "zoo.rebuilding.record.Record"
        return [
            *(["--data.root", self.root] if self.root else []),
            *(f"--trainer.callbacks+={callback}", "--trainer.callbacks.file", str(record)),
            *("--trainer.callbacks.roots", json.dumps(self._roots())),
        ]

    def _source(self, name: str) -> str:
        """What `zoo.load` reads: the weights of an earlier stage, or a name."""
        return f"{LOCAL_DIR}{self.place(name)}" if any(name in stage.to for stage in self.stages) else name

    def run_folder(self, stage: Stage) -> Path:
        """Where `zoo fit` keeps checkpoints and logs."""
        return self.folder(stage) / stage.recipe.stem

    def _fit(self, stage: Stage) -> dict[str, str]:
        folder, checkpoints = self.folder(stage), self.run_folder(stage) / "checkpoints"
        if not (folder / RECORD).is_file():  # it is written when the training is done
            resume = ["--ckpt_path", "last"] * (checkpoints / "last.ckpt").is_file()
            self.processes.module("zoo", [*self.fit_arguments(stage), *resume])
        checkpoint = checkpoints / f"{stage.given.get('checkpoint', 'best')}.ckpt"
        if not checkpoint.is_file():
            raise ValueError(f"the training left no {checkpoint}; let it validate, and save checkpoints")
        self._export(stage, str(checkpoint))
        if changes := stage.given.get("export"):
            self.processes.module("zoo.rebuilding.change", [str(folder / WEIGHTS), json.dumps(changes)])
        return read_json(folder / RECORD)["data"]

    def _average(self, stage: Stage) -> dict[str, str]:
        self._export(stage, *(self._source(name) for name in stage.given["average"]))
        return {}

    def _export(self, stage: Stage, *sources: str) -> None:
        smaller = ["--int8"] * stage.given.get("int8", False)
        self.processes.module("zoo", ["export", *sources, str(self.folder(stage) / WEIGHTS), *smaller])

    def _prepare(self, stage: Stage) -> dict[str, str]:
        folder = self.folder(stage)
        inputs, missing = folder / "inputs.txt", folder / "missing.txt"
        for file in (inputs, missing):
            file.unlink(missing_ok=True)
        places = {name: str(self.place(name).absolute()) for name in stage.uses}
        root = os.path.abspath(self.root or "")
        self.processes.shell(
            DATA + filled(stage.given["prepare"], places), folder, {"DATA": root, "PYTHON": sys.executable}
        )
        if missing.is_file():  # bash goes on after $(data FILE) without quotes
            raise ValueError(f"stage {stage.name} did not find a file of the data that the line above names")
        read = inputs.read_text(encoding="utf-8").split("\n") if inputs.is_file() else []
        names = sorted({name.removeprefix("/") for name in read if name})
        return {name: file_sha256(Path(root) / name) for name in names}

    def _answer(self, stage: Stage) -> dict[str, str]:
        """Translates or classifies lines."""
        module = {"translate": "consensus", "classify": "labelling"}[stage.kind]
        return self._by_models(stage, module, {"source": str(self.place(stage.given[stage.kind]))})

    def _encoder(self, stage: Stage) -> dict[str, str]:
        """Fine-tunes a sentence encoder."""
        target = self.folder(stage) / WEIGHTS
        job = {"target": str(target), "recipe": str(stage.recipe), "root": self.root, **stage.given["encoder"]}
        return self._job(stage, "encoder", job)

    def _sample(self, stage: Stage) -> dict[str, str]:
        """Draws a text."""
        return self._by_models(stage, "sampling", {"count": stage.given["sample"]})

    def _predict(self, stage: Stage) -> dict[str, str]:
        """Predicts the training text of the recipe."""
        arguments = {"recipe": str(stage.recipe), "root": self.root}
        if name := stage.given.get("extra_text"):
            arguments["extra_text"] = str(self.place(name).absolute())
        return self._by_models(stage, "predicting", arguments)

    def _by_models(self, stage: Stage, module: str, arguments: dict[str, Any]) -> dict[str, str]:
        """Runs a module whose models are under `by`, with the other keys of the stage as they are."""
        given = {name: value for name, value in stage.given.items() if name not in (stage.kind, "by", "to")}
        job = {
            "target": str(self.folder(stage) / stage.name),
            "models": [self._source(name) for name in stage.given["by"]],
        }
        return self._job(stage, module, {**job, **given, **arguments})

    def _change(self, stage: Stage) -> dict[str, str]:
        """Writes other lines, or pairs of lines."""
        given = {name: value for name, value in stage.given.items() if name not in (stage.kind, "to")}
        if "vectors" in given:
            given["vectors"] = str(self.place(given["vectors"]))
        job = {"source": str(self.place(stage.given[stage.kind])), "target": str(self.folder(stage) / stage.name)}
        return self._job(stage, CHANGES[stage.kind], {**job, **given})

    def _job(self, stage: Stage, module: str, arguments: dict[str, Any]) -> dict[str, str]:
        """Runs a module that reads its arguments from a file."""
        file = self.folder(stage) / "job.json"
        write_text(file, json.dumps({**arguments, "roots": self._roots()}))
        self.processes.module(f"zoo.rebuilding.{module}", [str(file)])
        return read_json(self.folder(stage) / READ)

    # ---- the end ----

    @property
    def weights(self) -> Path:
        return self.place(self.stages[-1].name)

    def _test(self) -> None:
        """`zoo test` of the last weights, unless it was done with this recipe, these settings and data."""
        folder = self.output / TEST
        file = folder / STAGE
        settings = {name: value for name, value in self.settings.items() if name.startswith(("data.", "trainer."))}
        tested = {
            "weights": file_sha256(self.weights / "config.json"),
            "recipe": file_sha256(self.recipe),
            "settings": settings,
        }
        is_done = file.is_file() and read_json(file) == tested and (folder / RECORD).is_file()
        if is_done and not self._changed(read_json(folder / RECORD)["data"]):
            return
        print(f"test of {self.weights}", flush=True)
        self.processes.module(
            "zoo",
            [
                *("test", "--config", str(self.recipe), "--weights", f"{LOCAL_DIR}{self.weights}"),
                *("--trainer.default_root_dir", str(folder)),
                *_options(settings),
                *self._common(folder / RECORD),
            ],
        )
        write_text(file, json.dumps(tested) + "\n")


@contextmanager
def _timed(file: Path, begun: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Context of a stage: writes its state at the beginning and at the end, with the processor time of all attempts."""
    earlier = read_json(file).get("processor_seconds", 0.0) if file.is_file() else 0.0
    state, start = {**begun, "processor_seconds": earlier}, _processor_seconds()
    write_text(file, json.dumps(state, indent=1) + "\n")
    try:
        yield state
    finally:
        state["processor_seconds"] = round(earlier + _processor_seconds() - start, 1)
        write_text(file, json.dumps(state, indent=1) + "\n")


def _read_so_far(folder: Path) -> dict[str, str]:
    """What a stage that is not done has read of the data."""
    return read_json(folder / READ) if (folder / READ).is_file() else {}


def _processor_seconds() -> float:
    """Of this process, and where the system tells it, of those that it has started and that have ended."""
    return sum(os.times()[:4])


def read_json(file: Path) -> dict[str, Any]:
    """A file that this package wrote.

    Raises:
        ValueError: it is damaged.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is damaged: delete {file.parent} to make it again") from error
    if not isinstance(found, dict):
        raise ValueError(f"{file} is damaged: delete {file.parent} to make it again")
    return found


def _argument(value: Any) -> str:
    """A setting as the command line has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _options(settings: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in settings.items()]


def _difference(was: dict[str, Any], now: dict[str, Any], where: str = "") -> str | None:
    """The first setting in which two definitions differ."""
    for key in {**was, **now}:
        old, new, name = was.get(key), now.get(key), f"{where}{key}"
        if isinstance(old, dict) and isinstance(new, dict):
            if found := _difference(old, new, f"{name}."):
                return found
        elif old != new:
            return f"{name} was {_short(old)}, is {_short(new)}"
    return None


def _short(value: Any) -> str:
    text = "not given" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."
