"""The search of `zoo compare --search`: as many short trainings for every mechanism, chosen on validation data alone.

search.yaml next to the recipes lists the values of each setting. For the first setting every value is tried with the
recipe's own values of the others; then the other values of the next setting, with the best of the first; and so on.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.comparison.files import CHOICE, RECIPES, SPACE, check_shape, read_json, write_json
from zoo.comparison.jobs import Job, Plan, Trial
from zoo.comparison.recipes import Recipes, read_yaml, shipped_folders
from zoo.comparison.tasks.base import Score

Options = dict[str, Any]  # setting, such as "optimizer.lr" -> value


@dataclass(frozen=True)
class Space:
    """What the search tries.

    Attributes:
        epochs: of a trial.
        seed: of all trials.
        settings: setting -> values.
        own: mechanism -> its own values of some settings, as many as the others have.
    """

    epochs: int
    seed: int
    settings: dict[str, list[Any]]
    own: dict[str, dict[str, list[Any]]]

    @classmethod
    def read(cls, recipes: Recipes) -> "Space":
        """Content of search.yaml.

        Raises:
            ValueError: there is none, or it gives some mechanisms more trials than others.
        """
        path = recipes.path(SPACE)
        if not path.is_file():
            raise ValueError(f"{path} is missing: it says what --search tries (the shipped one: {RECIPES})")
        found = {"seed": 1, "own": {}, **read_yaml(path)}
        settings, own = found.get("settings"), found["own"]
        lists = [values for name in (settings, *own.values()) if isinstance(name, dict) for values in name.values()]
        if not (isinstance(settings, dict) and isinstance(found.get("epochs"), int) and settings):
            raise ValueError(f"{path} must have `epochs: N` and `settings:`, a list of values for each setting")
        if not all(isinstance(values, list) and values for values in lists):
            raise ValueError(f"{path}: each setting needs a list of values, e.g. optimizer.lr: [0.001, 0.002]")
        names = recipes.names()
        shipped = {name for folder in shipped_folders() for name in Recipes(folder).names()}  # a copy may have fewer
        for name in own.keys() - names - shipped:
            raise ValueError(f"{path}: `own:` has values of {name}, which is no mechanism here: {', '.join(names)}")
        for name, values in own.items():
            for setting in values:
                if len(values[setting]) != len(settings.get(setting, ())):
                    raise ValueError(f"{path}: {name} must have as many values of {setting} as the other mechanisms")
        return cls(found["epochs"], found["seed"], settings, own)

    def of(self, name: str) -> dict[str, list[Any]]:
        """The values that are tried for a mechanism."""
        return {**self.settings, **self.own.get(name, {})}

    @property
    def trials(self) -> int:
        """Number of trials of each mechanism."""
        return 1 + sum(len(values) - 1 for values in self.settings.values())

    def start(self, recipes: Recipes, name: str) -> Options:
        """The recipe's own values, with which the search begins.

        Raises:
            ValueError: one is not among the values to try, so that this mechanism would have more trials than others.
        """
        start = {setting: recipes.value(name, setting) for setting in self.settings}
        for setting, values in self.of(name).items():
            if start[setting] not in values:
                raise ValueError(
                    f"{recipes.path(SPACE)}: {setting} of {name} is {start[setting]} in its recipe, which is not "
                    f"among {', '.join(map(str, values))}: give {name} its own values"
                )
        return start


def search(plan: Plan, space: Space, names: Sequence[str], run: Callable[[Sequence[Job]], None]) -> list[str]:
    """Runs the trials that are missing, and writes each mechanism's choice into OUT/NAME/search.json.

    Args:
        plan: the settings of all jobs.
        space: what to try.
        names: the mechanisms.
        run: runs jobs.

    Returns:
        The mechanisms that have a choice: those whose trials are all done.
    """
    best = {name: space.start(plan.recipes, name) for name in names}
    trials: dict[str, dict[Path, Trial]] = {name: {} for name in names}
    for setting in space.settings:
        stage = {
            name: [_trial(plan, space, name, {**best[name], setting: value}) for value in space.of(name)[setting]]
            for name in best
        }
        for trial in (every := [trial for found in stage.values() for trial in found]):
            trial.check()
        run([trial for trial in every if not trial.end.is_file()])
        for name, found in stage.items():
            if all(trial.end.is_file() for trial in found):
                trials[name] |= {trial.folder: trial for trial in found}
                best[name] = dict(min(found, key=lambda trial: plan.recipes.task.score.order(trial.best)).options)
            else:
                del best[name]
    for name, options in best.items():
        _write(plan, space, name, options, list(trials[name].values()))
    return list(best)


def _trial(plan: Plan, space: Space, name: str, options: Options) -> Trial:
    return Trial(plan, name, space.seed, options, trial_epochs=space.epochs)


def _write(plan: Plan, space: Space, name: str, options: Options, trials: Sequence[Trial]) -> None:
    write_json(
        plan.out / name / CHOICE,
        {
            "name": name,
            "options": options,
            "settings": {"epochs": trials[0].epochs, "seed": space.seed, **plan.recipes.fingerprints(name)},
            "trials": [
                {
                    "options": dict(trial.options),
                    plan.recipes.task.score.key: score if math.isfinite(score := trial.best) else None,
                    **{key: read_json(trial.end)[key] for key in ("steps", "seconds")},
                }
                for trial in trials
            ],
        },
    )


def chosen(plan: Plan, name: str) -> Options:
    """The settings that a search has chosen for a mechanism: one of OUT, else a published one; {} without any.

    Raises:
        ValueError: OUT has a search of another recipe, or a damaged one.
    """
    mine = plan.out / name / CHOICE
    if mine.is_file():
        if not _fits(found := read_choice(mine, plan.recipes.task.score), plan, name):
            raise ValueError(f"{mine} is of another recipe: choose another --out, or delete {mine.parent}")
        return found["options"]
    for file in _published(plan, name):
        if _fits(_read(file), plan, name):  # one of another recipe may have another score
            return read_choice(file, plan.recipes.task.score)["options"]
    return {}


def unused(plan: Plan, name: str) -> Path | None:
    """The published search of a mechanism whose choice is not taken, as it is of another recipe; None without one."""
    if chosen(plan, name):
        return None
    return next((file for file in _published(plan, name) if file.parents[2] == plan.recipes.folder), None)


def _published(plan: Plan, name: str) -> list[Path]:
    files = [folder / name / CHOICE for folder in plan.recipes.published]
    return [file for file in files if file.is_file()]


def _fits(choice: Mapping[str, Any], plan: Plan, name: str) -> bool:
    return plan.recipes.fingerprints(name).items() <= choice["settings"].items()


def read_choice(path: Path, score: Score) -> dict[str, Any]:
    """Content of a search.json, whose trials have that score.

    Raises:
        ValueError: it is damaged.
    """
    return _read(path, {"options": dict, score.key: int | float | None})


def _read(path: Path, trial_shape: Mapping[str, Any] | None = None) -> dict[str, Any]:
    try:
        found = read_json(path)
        check_shape(found, {"options": dict, "settings": dict, "trials": list})
        for trial in found["trials"] if trial_shape else ():
            check_shape(trial, trial_shape)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: delete it") from error
    return found
