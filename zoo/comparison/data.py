"""The data of a comparison: `data:` of base.yaml, the same for all mechanisms."""

from collections.abc import Mapping
from typing import Any

from zoo.comparison.recipes import Recipes
from zoo.utils.modules import load_class


def data_settings(recipes: Recipes, root: str | None) -> dict[str, Any]:
    """`data:` of base.yaml, with the folder of the command line, if there is one."""
    data = dict(recipes.base["data"])
    return data | {"init_args": {**(data.get("init_args") or {}), **({"root": root} if root else {})}}


def load_data(settings: Mapping[str, Any]) -> Any:
    """The data module of a recipe's `data:`, with its files in place.

    Raises:
        ValueError: it is no data module of translations, or files are missing.
    """
    cls = load_class(settings["class_path"])
    try:
        data = cls(**(settings.get("init_args") or {}))
    except TypeError as error:  # an argument that it does not have
        raise ValueError(f"data: {error}") from error
    if not hasattr(data, "test_sets"):
        raise ValueError(f"`zoo compare` compares translators, and {settings['class_path']} has no sentence pairs")
    data.fetch()
    return data


def count_pairs(data: Any) -> int:
    """The number of training pairs."""
    return sum(1 for _ in data.train_pairs())
