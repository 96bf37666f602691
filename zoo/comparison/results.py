"""The results of a comparison: a row for each mechanism, with one run for each seed."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.comparison.files import BASE, OUTPUTS, RESULT, SEEDS, SIZES, check_shape, read_json, read_outputs
from zoo.comparison.recipes import Recipes
from zoo.comparison.significance import half_interval
from zoo.comparison.tasks.base import ComparedTask
from zoo.comparison.tasks.known import TASKS
from zoo.utils.modules import imports
from zoo.utils.shell import command_line

NONE = "–"
FEEDING = "_input_feeding"  # end of the names of mechanisms that are others with input feeding
SAME = {"epochs": "epochs", "base": "base.yaml"}  # settings that all results of one page share

NUMBER = int | float
SHAPE = {
    "name": str,
    "seed": int,
    "settings": {"epochs": int},
    "parameters": int,
    "training": {"epochs": int, "steps": int, "tokens": int, "seconds": NUMBER, "validation": list},
    "validation": dict,
    "test": {"name": str},
    "device": str,
    "hardware": str,
    "threads": int,
}
OPTIONAL = {"options": dict, "pairs": int | None}  # settings that not all results have


@dataclass(frozen=True)
class Run:
    """The result of one training.

    Attributes:
        folder: where its files are.
        result: content of result.json.
        task: of the model.
        published: it comes from published results, not from this study.
    """

    folder: Path
    result: dict[str, Any]
    task: ComparedTask
    published: bool = False

    @property
    def has_outputs(self) -> bool:
        """Whether there are its outputs for the test set."""
        return (self.folder / OUTPUTS["test"]).is_file()

    def outputs(self) -> list[str]:
        """Its outputs for the test set."""
        return read_outputs(self.folder / OUTPUTS["test"])

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Seconds of training and validation score, for each validation."""
        return self.validations("seconds")

    def validations(self, place: str) -> list[tuple[float, float]]:
        """Place, "seconds" or "step" of the training, and validation score, for each validation that has both."""
        key, scores = self.task.score.key, self.result["training"]["validation"]
        return [(x[place], x[key]) for x in scores if x.get(key) is not None and place in x]


@dataclass(frozen=True)
class Row:
    """The results of one mechanism, one run per seed."""

    name: str
    runs: list[Run]

    @property
    def results(self) -> list[dict[str, Any]]:
        return [run.result for run in self.runs]

    @property
    def task(self) -> ComparedTask:
        return self.runs[0].task

    @property
    def published(self) -> bool:
        return all(run.published for run in self.runs)

    def values(self, *keys: str) -> list[float]:
        """One number per seed, without missing ones."""
        found = []
        for value in self.results:
            for key in keys:
                value = None if value is None else value.get(key)
            found.append(value)
        return [value for value in found if value is not None]

    def mean(self, *keys: str) -> float | None:
        values = self.values(*keys)
        return statistics.fmean(values) if values else None

    def show(self, digits: int, *keys: str, interval: bool = False, mean: float | None = None) -> str:
        """The mean (or `mean`) as text, with half the width of its interval if there are several seeds."""
        values = self.values(*keys)
        if not values:
            return NONE
        text = f"{statistics.fmean(values) if mean is None else mean:,.{digits}f}"
        half = half_interval(values) if interval else None
        return text if half is None else f"{text} ± {half:.{digits}f}"

    def score(self, part: str, mean: float | None = None) -> str:
        """The score of a part, "validation" or "test", with half the width of its interval.

        Args:
            part: the part.
            mean: its mean, if that of the stored scores is not exact enough.
        """
        return self.show(self.task.score.digits, part, self.task.score.key, interval=True, mean=mean)

    def scores(self, part: str) -> list[float]:
        """The score of a part for each seed."""
        return self.values(part, self.task.score.key)

    @property
    def minutes(self) -> float | None:
        """Training time without validation."""
        seconds = self.mean("training", "training_seconds")
        return seconds / 60 if seconds else None

    @property
    def milliseconds(self) -> float:
        """Time for one example of the test set, see `ComparedTask.cost`."""
        return 1000 / statistics.fmean(self.values(*self.task.speed.keys))


@dataclass(frozen=True)
class Results:
    """All results of a page.

    Attributes:
        rows: the mechanisms trained on all data, the one with the best test score first.
        sizes: number of training pairs -> the mechanisms trained on that many, in the same order; {} if none was
            trained on a part.
        left_out: folders of published results of another base.yaml or budget, which cannot be compared.
        changed: folder -> the mechanisms whose results there are of another version of the recipe beside them.
        instead: folder of published results -> those in whose place trainings here stand: mechanism, training pairs
            (None: all).
    """

    rows: list[Row]
    sizes: dict[int, list[Row]] = field(default_factory=dict)
    left_out: list[Path] = field(default_factory=list)
    changed: dict[Path, list[str]] = field(default_factory=dict)
    instead: dict[Path, list[tuple[str, int | None]]] = field(default_factory=dict)


def read_results(out: Path, recipes: Recipes) -> Results:
    """The results below a folder, and the published ones that can be compared with them.

    Raises:
        ValueError: there are none, one is damaged, or their budgets differ.
    """
    own = read_runs(out, recipes.task)
    if not any(run.result["settings"].get("pairs") is None for run in own):
        words = [*imports(), *([] if recipes.are_shipped else ["--recipes", str(recipes.folder)]), "--out", str(out)]
        raise ValueError(f"{out} has no results: train first, with zoo compare {command_line(words)}")
    for key, what in SAME.items():
        values = sorted({run.result["settings"].get(key) for run in own}, key=str)
        if len(values) > 1:
            many = f"{' and '.join(map(str, values))} {what}" if key == "epochs" else f"several versions of {what}"
            raise ValueError(f"{out} has results of {many}, which cannot be compared: keep them in separate folders")
    recipes.check_base()
    if own[0].result["settings"].get("base", recipes.fingerprint) != recipes.fingerprint:
        raise ValueError(
            f"{out} has results of another {recipes.path(BASE)}: restore that one, or train again elsewhere"
        )
    named = {run.result["name"]: run.result["settings"].get("recipe") for run in own}
    check_names(recipes, own[0].result["settings"]["epochs"], named)
    runs, left_out, changed, instead = list(own), [], {out: _changed(own, recipes)}, {}
    for folder in recipes.published:
        published = [] if folder.resolve() == out.resolve() else read_runs(folder, recipes.task, published=True)
        if published:
            changed[folder] = _changed(published, Recipes(folder.parent))
        fitting = [run for run in published if all(_same(run, own[0], key) for key in SAME)]
        left_out += [folder] * (len(fitting) < len(published))
        known = {_key(run) for run in runs}  # what was trained here replaces what was published
        runs += [run for run in fitting if _key(run) not in known]
        if twice := sorted({_key(run) for run in fitting} & {_key(run) for run in own}, key=str):
            instead[folder] = twice
    sizes = sorted({size for run in runs if (size := run.result["settings"].get("pairs"))})
    rows = _rows(run for run in runs if not run.result["settings"].get("pairs"))
    by_size = {size: _rows(run for run in runs if run.result["settings"].get("pairs") == size) for size in sizes}
    if by_size and len(whole := distinct(rows, "pairs")) == 1:
        partly = {row.name for several in by_size.values() for row in several}
        by_size[whole[0]] = [row for row in rows if row.name in partly]
    return Results(rows, by_size, left_out, {folder: names for folder, names in changed.items() if names}, instead)


def check_names(recipes: Recipes, epochs: int, own: Mapping[str, str | None]) -> None:
    """Looks for mechanisms that have the name of a published one beside which they would stand, and are another.

    Args:
        recipes: theirs.
        epochs: their budget.
        own: name -> fingerprint of the recipe.

    Raises:
        ValueError: there is one, or a published result is damaged.
    """
    beside = {"epochs": epochs, "base": recipes.fingerprint}
    for folder in recipes.published:
        if folder.parent.resolve() == recipes.folder.resolve():
            continue  # of these recipes: an earlier version of one is no other mechanism
        for run in read_runs(folder, recipes.task, published=True):
            name, settings = run.result["name"], run.result["settings"]
            fits = all(settings.get(key) == value for key, value in beside.items())
            if fits and name in own and settings.get("recipe") != own[name]:
                raise ValueError(
                    f"{recipes.path(name)} has the name of a published mechanism, and is another recipe than "
                    f"{folder.parent / name}.yaml: give it another name"
                )


def changed_recipes(folder: Path, recipes: Recipes) -> list[str]:
    """The mechanisms with a result in a folder that is not of the recipe of that name as it is now.

    Raises:
        ValueError: a result is damaged.
    """
    return _changed(read_runs(folder, recipes.task), recipes)


def _changed(runs: Iterable[Run], recipes: Recipes) -> list[str]:
    found = set()
    for run in runs:
        name, known = run.result["name"], run.result["settings"].get("recipe")
        if known and recipes.path(name).is_file() and recipes.fingerprints(name)["recipe"] != known:
            found.add(name)
    return sorted(found)


def read_runs(folder: Path, task: ComparedTask, published: bool = False) -> list[Run]:
    """All results below a folder.

    Raises:
        ValueError: one is damaged, or of another task.
    """
    return [
        Run(file.parent, read_result(file, task), task, published)
        for pattern in (SEEDS, SIZES)
        for file in sorted(folder.glob(f"{pattern}/{RESULT}"))
    ]


def read_result(file: Path, task: ComparedTask) -> dict[str, Any]:
    """Content of a result.json of a task.

    Raises:
        ValueError: it is damaged, or of another task.
    """
    try:
        result = read_json(file)
        check_shape(result, SHAPE)
        check_shape(result["settings"], {key: kind for key, kind in OPTIONAL.items() if key in result["settings"]})
        for part in ("training", "validation", "test"):
            _check_numbers({key: value for key, value in result[part].items() if (part, key) != ("test", "name")})
        found = [other.score for other in TASKS if other.score.key in result["test"]]
        is_own = not found or task.score in found
        scored = {part: {task.score.key: NUMBER} for part in ("validation", "test")}
        for shape in (scored, task.shape) if is_own else ():
            check_shape(result, shape)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} is damaged ({error}): delete it, and `zoo compare` evaluates that training again"
        ) from error
    if not is_own:
        raise ValueError(
            f"{file} has {found[0].name}, the models of these recipes {task.score.name}: name the folder of recipes "
            "that it was trained by with --recipes"
        )
    return result


def _check_numbers(value: Any) -> None:
    """Raises TypeError if there is anything but numbers, and None for missing ones, in dicts and lists."""
    if isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            _check_numbers(part)
    elif not isinstance(value, NUMBER | None):
        raise TypeError(f"{value!r:.40} in place of a number")


def _key(run: Run) -> tuple[str, int | None]:
    return run.result["name"], run.result["settings"].get("pairs")


def _same(first: Run, second: Run, key: str) -> bool:
    return first.result["settings"].get(key) == second.result["settings"].get(key)


def _rows(runs: Iterable[Run]) -> list[Row]:
    """The mechanism with the best test score first."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.result["name"], []).append(run)
    rows = [Row(name, sorted(several, key=lambda run: run.result["seed"])) for name, several in found.items()]
    return sorted(rows, key=lambda row: (row.task.score.order(statistics.fmean(row.scores("test"))), row.name))


def distinct(rows: Sequence[Row], *keys: str) -> list[Any]:
    """The distinct values of the results."""
    return list(dict.fromkeys(value for row in rows for value in row.values(*keys)))


def count_runs(rows: Sequence[Row]) -> int:
    """The number of trainings of some rows."""
    return sum(len(row.runs) for row in rows)
