"""`zoo recipes`: the recipes that this package ships, and `--config NAME`, which finds one by its name."""

import argparse
import os
import re
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from zoo.utils.shipped import shipped

RECIPES = shipped("recipes")


def run(options: argparse.Namespace) -> None:
    """Lists the recipes, with the first sentence of each, or prints one.

    Args:
        options: name: None for all; a shell pattern for some; else the recipe to print.

    Raises:
        ValueError: no recipe has that name, or fits the pattern.
    """
    if options.name is not None and not re.search(r"[*?\[]", options.name):
        print(find(options.name).read_text(encoding="utf-8"), end="")
        return
    # those of the comparison only on request: each is a part of a recipe, for `zoo compare`
    every = {name: file for name, file in shipped_recipes().items() if options.name or "/" not in name}
    found = {name: file for name, file in every.items() if fnmatchcase(name, options.name or "*")}
    if not found:
        raise ValueError(f"no recipe matches '{options.name}'; `zoo recipes` shows all")
    width = max(map(len, found))
    for name, file in found.items():
        print(f"{name:{width}}  {summary(file)}")


def shipped_recipes() -> dict[str, Path]:
    """Name, e.g. `han.imdb` or `comparison/dot` -> file."""
    files = [*sorted(RECIPES.glob("*.yaml")), *sorted(RECIPES.glob("*/*.yaml"))]
    return {file.relative_to(RECIPES).with_suffix("").as_posix(): file for file in files}


def summary(file: Path) -> str:
    """The first sentence of the comment with which a recipe begins."""
    lines = file.read_text(encoding="utf-8").splitlines()
    comment = re.match(r"(?:#.*\n)*", "\n".join([*lines, ""]))
    text = " ".join((comment[0] if comment else "").replace("#", " ").split())
    sentence = re.match(r".+?[.?](?= [A-Z]|$)", text)
    return sentence[0] if sentence else text


def find(name: str) -> Path:
    """The file of a shipped recipe, by its name with or without `recipes/` and `.yaml`.

    Raises:
        ValueError: there is none; the message names the nearest.
    """
    every, plain = shipped_recipes(), name.removeprefix("recipes/").removesuffix(".yaml")
    if plain not in every:
        nearest = get_close_matches(plain, [known for known in every if "/" not in known or "/" in plain], cutoff=0.3)
        raise ValueError(
            f"there is no recipe '{plain}'{'; nearest: ' * bool(nearest)}{', '.join(nearest)}; `zoo recipes` lists them"
        )
    return every[plain]


def located(args: list[str]) -> list[str]:
    """The arguments of a training, with the file of each shipped recipe that `--config` names.

    A file that exists is taken as it is, so a recipe of one's own goes before a shipped one.

    Raises:
        ValueError: there is neither a file nor a shipped recipe.
    """
    before = ["", *args]
    return [
        _located(arg)
        if last == "--config"
        else f"--config={_located(arg.removeprefix('--config='))}"
        if arg.startswith("--config=")
        else arg
        for last, arg in zip(before, args)
    ]


def _located(config: str) -> str:
    is_file = os.path.exists(config) and not os.path.isdir(config)
    if is_file or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", config):  # other paths: the training says what is wrong
        return config
    try:
        return str(find(config))
    except ValueError as error:
        if os.path.isdir(config):
            return config
        raise ValueError(f"--config {config}: there is no such file, and {error}") from error
