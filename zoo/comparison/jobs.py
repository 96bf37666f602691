"""The jobs of a comparison: a training of one mechanism with one seed, or a trial of the search.

A job runs `zoo fit` in its own folder (zoo/comparison/files.py), and zoo/comparison/evaluation.py unless it is a trial.
Finished work is not repeated: a job with a result is skipped, an interrupted training resumes from its last checkpoint.
"""

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.comparison.data import data_settings, files_of
from zoo.comparison.files import BASE, JOB, RESULT, TRAINING, read_json
from zoo.comparison.recipes import Recipes
from zoo.data.common.files import fingerprint

WAS = {  # what a setting of other results is called: name -> text, of the old and the new value
    "epochs": "{0} epochs, not {1}",
    "base": "another base.yaml",
    "recipe": "another recipe",
    "options": "another choice of the search ({0}, not {1})",
    "pairs": "{0} training pairs, not {1}",
    "files": "data files that have changed since",
}


@dataclass(frozen=True)
class Plan:
    """Settings common to all jobs of one call."""

    recipes: Recipes
    out: Path
    root: str | None  # of the data
    epochs: int  # at most
    device: str  # "cpu" or "cuda"
    threads: int
    gpus: int
    at_once: int = 1  # jobs
    all_pairs: int = 0  # training pairs there are; counted only where some jobs take a part of them


@dataclass(frozen=True)
class Job:
    """One mechanism with one seed.

    Args:
        plan: the settings of all jobs.
        name: of the mechanism.
        seed: of weights, dropout and the order of the data.
        options: settings that the search has chosen, e.g. {"optimizer.lr": 0.002}.
        pairs: number of training pairs; None: all.
    """

    plan: Plan
    name: str
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    pairs: int | None = None

    @property
    def folder(self) -> Path:
        part = f"pairs{self.pairs}" if self.pairs else ""
        return self.plan.out / self.name / part / f"seed{self.seed}"

    @property
    def title(self) -> str:
        size = f", {self.pairs:,} pairs" if self.pairs else ""
        return f"{self.name}, seed {self.seed}{size}"

    @property
    def end(self) -> Path:
        """The file that is there once the job is done."""
        return self.folder / RESULT

    @property
    def epochs(self) -> int:
        return self.plan.epochs

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a result depends on."""
        size = {"pairs": self.pairs} if self.pairs else {}
        files = list(files_of(data_settings(self.plan.recipes, self.plan.root, self.name)))
        content = {"files": fingerprint(*files)} if files else {}
        fingerprints = self.plan.recipes.fingerprints(self.name)
        return {"epochs": self.epochs, **fingerprints, "options": dict(self.options), **size, **content}

    def check(self) -> None:
        """Raises ValueError if the recipe cannot be read, or the folder has the same job with other settings."""
        new = self.settings  # always, so that every recipe is read
        training, best = self.folder / TRAINING, self.folder / BASE / "checkpoints" / "best.ckpt"
        if training.is_file() and not self.end.is_file():
            try:
                read_json(training)
            except ValueError as error:
                raise ValueError(f"{training} is damaged: delete {self.folder} to train it again") from error
            if not best.is_file():
                raise ValueError(f"{best} of a finished training is missing: delete {self.folder} to train it again")
        for file in dict.fromkeys((self.folder / RESULT, self.folder / JOB)):
            if file.is_file():
                known = read_settings(file)
                self._check_owner(file)
                for key in new:
                    same = known.get(key) == new[key]
                    if key == "files":
                        same |= key not in known  # results of before have none
                    if key == "options":
                        same = self.plan.recipes.are_same(self.name, known.get(key) or {}, new[key])
                    if not same:
                        was = WAS[key].format(known.get(key), new[key])
                        raise ValueError(
                            f"{file} is of {was}: choose another --out, or delete {self.folder} to train it again"
                        )

    def _check_owner(self, file: Path) -> None:
        """Raises ValueError for a file of another job, as in a copied folder."""
        found = read_json(file)
        name, seed = found.get("name"), found.get("seed")
        if (name, seed) != (self.name, self.seed):
            raise ValueError(
                f"{file} is of {name}, seed {seed}, not of {self.name}, seed {self.seed}: delete {self.folder} to "
                "train it again"
            )

    def describe(self) -> dict[str, Any]:
        """Content of job.json."""
        return dict(
            name=self.name,
            seed=self.seed,
            settings=self.settings,
            device=self.plan.device,
            at_once=self.plan.at_once,
            run=BASE,
            data=data_settings(self.plan.recipes, self.plan.root, self.name),
            model=self.plan.recipes.part(self.name, "model")["class_path"],
        )

    def commands(self) -> list[list[str]]:
        """The processes that are left, arguments of `python -m`."""
        training = [] if (self.folder / TRAINING).is_file() else [["zoo", *self.fit_arguments()]]
        return [*training, ["zoo.comparison.evaluation", str(self.folder)]]

    def fit_arguments(self) -> list[str]:
        """Arguments of `zoo fit`."""
        options: dict[str, Any] = {
            "--seed_everything": self.seed,
            "--data.seed": self.seed,
            "--trainer.max_epochs": self.epochs,
            "--trainer.default_root_dir": self.folder,
            "--trainer.accelerator": "gpu" if self.plan.device == "cuda" else "cpu",
            "--trainer.devices": 1,
            "--trainer.enable_progress_bar": "false",
            **({"--ckpt_path": "last"} if any(self.folder.glob(f"{BASE}/checkpoints/*.ckpt")) else {}),
            **{f"--{setting}": "null" if value is None else value for setting, value in self.options.items()},
            **self._size(),
            **({"--data.root": self.plan.root} if self.plan.root else {}),
        }
        recipes = [part for name in (BASE, self.name) for part in ("--config", str(self.plan.recipes.path(name)))]
        return ["fit", *recipes, *(str(part) for option in options.items() for part in option)]

    def _size(self) -> dict[str, Any]:
        """A part of the data is read several times between two validations, so that as many steps lie between them."""
        if self.pairs is None:
            return {}
        times = max(1, round(self.plan.all_pairs / self.pairs))
        return {
            "--data.train_size": self.pairs,
            "--trainer.max_epochs": self.epochs * times,
            "--trainer.check_val_every_n_epoch": times,
        }

    def clean_up(self) -> None:
        """Removes what nobody needs once the job is done."""

    def report(self) -> str:
        """What came of the finished job, in a few words."""
        result, score = read_json(self.end), self.plan.recipes.task.score
        validation, test = (f"{result[part][score.key]:.{score.digits}f}" for part in ("validation", "test"))
        scores = f"{score.name} {validation} on validation, {test} on test"
        return f"{scores}, trained in {result['training']['seconds'] / 60:.1f} min"


@dataclass(frozen=True)
class Trial(Job):
    """A short training with the settings that the search tries. It sees validation data only, never the test set."""

    trial_epochs: int = 1

    @property
    def folder(self) -> Path:
        return self.plan.out / self.name / "search" / label(self.options, "_", "")

    @property
    def title(self) -> str:
        return f"{self.name}, trial {label(self.options)}"

    @property
    def end(self) -> Path:
        return self.folder / TRAINING

    @property
    def epochs(self) -> int:
        return min(self.trial_epochs, self.plan.epochs)

    def commands(self) -> list[list[str]]:
        return [["zoo", *self.fit_arguments()]]

    @property
    def best(self) -> float:
        """The best validation score."""
        score = self.plan.recipes.task.score
        found = [scores.get(score.key) for scores in read_json(self.end)["validation"]]
        best = score.best(value for value in found if value is not None)
        return (math.inf if score.falls else -math.inf) if best is None else best

    def clean_up(self) -> None:
        shutil.rmtree(self.folder / BASE / "checkpoints", ignore_errors=True)

    def report(self) -> str:
        score = self.plan.recipes.task.score
        minutes = read_json(self.end)["seconds"] / 60
        return f"{score.name} {self.best:.{score.digits}f} on validation, trained in {minutes:.1f} min"


def label(options: Mapping[str, Any], between: str = ", ", equals: str = " ") -> str:
    """Settings in a few words, e.g. "lr 0.002, dropout 0.3"."""
    return between.join(f"{setting.rpartition('.')[2]}{equals}{value}" for setting, value in options.items())


def read_settings(file: Path) -> dict[str, Any]:
    """Settings from a job.json or result.json."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is damaged: delete it") from error
