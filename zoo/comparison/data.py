"""The data of a comparison: `data:` of base.yaml, and what a mechanism reads otherwise, such as whole documents."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.comparison.files import BASE
from zoo.comparison.recipes import Recipes
from zoo.comparison.tasks.base import ComparedTask
from zoo.utils.modules import load_class


def data_settings(recipes: Recipes, root: str | None, name: str = BASE) -> dict[str, Any]:
    """`data:` of a recipe on top of base.yaml, with the folder of the command line, if there is one."""
    data = recipes.part(name, "data")
    return data | {"init_args": {**data["init_args"], **({"root": root} if root else {})}}


def files_of(settings: Mapping[str, Any]) -> Iterator[Path]:
    """The files that `data:` of a recipe names, in a fixed order; looked for as the data modules do."""
    yield from _files_in(settings, settings["init_args"].get("root") or os.environ.get("ZOO_DATA") or "")


def _files_in(settings: Any, root: str) -> Iterator[Path]:
    if isinstance(settings, Mapping):
        settings = list(settings.values())
    if isinstance(settings, list):
        for value in settings:
            yield from _files_in(value, root)
    elif isinstance(settings, str):
        found = [path for path in (os.path.join(root, settings), settings) if os.path.isfile(path)]
        yield from map(Path, found[:1])


def load_data(settings: Mapping[str, Any], task: ComparedTask) -> Any:
    """The data module of a recipe's `data:`, with its files in place.

    Raises:
        ValueError: it is no data module of the task, or files are missing.
    """
    cls = load_class(settings["class_path"])
    try:
        data = cls(**(settings.get("init_args") or {}))
    except TypeError as error:  # an argument that it does not have
        raise ValueError(f"data: {error}") from error
    if getattr(data, "task", None) != task.name:
        raise ValueError(f"{task.kinds} need data for {task.name}, and {settings['class_path']} is none")
    task.prepare(data)
    return data
