"""Whether the trainings whose mean is taken differ in the seed, and in nothing else.

A folder may hold trainings of several machines, put together by hand. Of the settings that `zoo fit` notes in
config.yaml all must be alike but the seed, and what belongs to a machine: places, the device and its precision.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from zoo.comparison.files import BASE, CONFIG
from zoo.comparison.recipes import Recipes, read_yaml
from zoo.comparison.results import Run

COMPARED = ("model", "optimizer", "lr_scheduler", "data", "trainer")  # sections of config.yaml
OF_A_TRAINING = (  # what of `trainer:` changes what is learnt
    "max_epochs", "max_steps", "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm",
    "limit_train_batches", "overfit_batches", "callbacks",
)  # fmt: skip
OF_A_MACHINE = ("root", "cache_dir", "num_workers", "dirpath")
SHOWN = 3  # settings that a message names
Config = dict[str, Any]  # content of config.yaml; empty without one


def config_file(folder: Path) -> Path | None:
    """The settings of a training: of a published one, or of the last call of `zoo fit`; None without any."""
    newest = sorted(folder.glob(f"{BASE}/*/{CONFIG}"), key=lambda path: path.stat().st_mtime)
    return next((file for file in (*newest[::-1], folder / CONFIG) if file.is_file()), None)


def check_runs(runs: Iterable[Run], recipes: Recipes) -> None:
    """Looks for trainings that have no common mean with the others of their mechanism.

    Args:
        runs: of all mechanisms.
        recipes: theirs.

    Raises:
        ValueError: one is in the folder of another one, two are the same, or differ in more than the seed.
    """
    alike: dict[Path, list[Run]] = {}
    configs: dict[Path, Config] = {}  # by the folder of the training
    for run in runs:
        configs[run.folder] = _config(run)
        _check_place(run, configs[run.folder])
        alike.setdefault(run.folder.parent, []).append(run)
    for found in alike.values():
        _check_seeds(found, configs, recipes)


def _check_place(run: Run, config: Config) -> None:
    """Raises ValueError for a training in the folder of another one."""
    name, seed, pairs = run.result["name"], run.result["seed"], run.result["settings"].get("pairs")
    expected = Path(name, f"pairs{pairs}" if pairs else "", f"seed{seed}")
    if run.folder.parts[-len(expected.parts) :] != expected.parts:
        raise ValueError(
            f"{run.folder} has the result of {expected.as_posix()}, so it is a copy of that: delete it, or train it"
        )
    if (known := config.get("seed_everything", seed)) != seed:
        raise ValueError(f"{run.folder} has the settings of seed {known}, so it is a copy: delete it, or train it")


def _check_seeds(runs: Sequence[Run], configs: Mapping[Path, Config], recipes: Recipes) -> None:
    """Raises ValueError if trainings of one mechanism differ in more than the seed, or if two are the same."""
    for run in runs[1:]:
        if differing := _differing(runs[0], run, configs, recipes):
            more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
            raise ValueError(
                f"{runs[0].folder} and {run.folder} differ in {', '.join(differing[:SHOWN])}{more}, so they have no "
                "common mean: keep one in another --out, or train it again"
            )
    for one, other in combinations(runs, 2):
        if (losses := _losses(one)) and losses == _losses(other):
            raise ValueError(
                f"{one.folder} and {other.folder} are the same training, with equal validation losses: delete one, "
                "or train it with its own seed"
            )


def _differing(one: Run, other: Run, configs: Mapping[Path, Config], recipes: Recipes) -> list[str]:
    """The settings in which two trainings differ, with both values."""
    sizes = [run.result.get("pairs") for run in (one, other)]
    if None not in sizes and sizes[0] != sizes[1]:  # files of the user may have changed in place
        return [f"the number of training examples ({sizes[0]:,} and {sizes[1]:,})"]
    pair = [configs[run.folder] for run in (one, other)]
    if all(pair):
        first, second = (dict(_settings(config)) for config in pair)
        return [  # an older version may not have a setting
            f"{name} ({first[name]!r:.60} and {second[name]!r:.60})"
            for name in first
            if name in second and first[name] != second[name]
        ]
    mine, yours = one.result["settings"], other.result["settings"]
    options = [settings.get("options") or {} for settings in (mine, yours)]
    found = ["the recipe"] if mine.get("recipe") != yours.get("recipe") else []
    if not recipes.are_same(one.result["name"], *options):
        found += [f"the choice of the search ({options[0]} and {options[1]})"]
    return found


def _config(run: Run) -> Config:
    file = config_file(run.folder)
    return read_yaml(file) if file else {}


def _settings(config: Config) -> Iterator[tuple[str, Any]]:
    """Name and value of each setting that all seeds of a mechanism share."""
    for section in COMPARED:
        for name, value in _flat(config.get(section), section):
            parts = name.split(".")
            if parts[-1] in OF_A_MACHINE or name == "data.init_args.seed":
                continue
            if section != "trainer" or (len(parts) > 1 and parts[1] in OF_A_TRAINING):
                yield name.replace(".init_args", ""), value


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Name and value of each setting in nested ones."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not parts:
        yield name, value
    for key, part in parts:
        yield from _flat(part, f"{name}.{key}")


def _losses(run: Run) -> list[float]:
    """The validation losses, by which two trainings are told apart; [] if some are unknown."""
    losses = [scores.get("loss") for scores in run.result["training"]["validation"]]
    known = [loss for loss in losses if isinstance(loss, float) and math.isfinite(loss)]
    return known if len(known) == len(losses) else []
