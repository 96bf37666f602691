"""`zoo test NAME` and `zoo validate NAME`: the recipe and the weights that a name or a folder stands for."""

from pathlib import Path

from zoo import registry
from zoo.bundles.card import has_front_matter, split_card
from zoo.bundles.files import HF_HUB, LOCAL_DIR, README, read_text
from zoo.commands.recipes import find
from zoo.utils.places import at_home

EVALUATES = ("validate", "test")


def expanded(args: list[str]) -> tuple[list[str], str | None]:
    """The arguments with --config and --weights in place of a name after the verb, and the name of the card.

    Args:
        args: Of `zoo test` or `zoo validate`; the name may be one of the registry, a folder of weights, or a source
            with its prefix as for `zoo.load`.

    Returns:
        The arguments as they are, and None, if they give no name.

    Raises:
        ValueError: There is no such weight, no recipe is known for it, or --weights names another.
    """
    verb, *rest = args
    if verb not in EVALUATES or not rest or rest[0].startswith("-"):
        return args, None
    name, *rest = rest
    given = {arg.partition("=")[0] for arg in rest}
    if twice := given & {"--weights", "--ckpt_path"}:
        raise ValueError(f"{name} and {min(twice)} are two models; give one of them")
    weights = _source(name)
    recipe = _recipe_name(weights)
    if "--config" in given:
        return [verb, "--weights", weights, *rest], None
    try:
        file = find(recipe)
    except ValueError as error:
        raise ValueError(f"no recipe is known for {name}, so nor is its data: give --config RECIPE") from error
    return [verb, "--config", str(file), "--weights", weights, *rest], recipe


def _source(name: str) -> str:
    """The weight as `zoo.load` takes it; a folder may have no prefix here."""
    if name in registry.TABLE or name.startswith((LOCAL_DIR, HF_HUB)):
        return name
    if Path(name).is_dir():
        return LOCAL_DIR + name
    raise registry.unknown(name)


def _recipe_name(weights: str) -> str:
    """The recipe that the card in a folder of weights names, else one with the name of the weight."""
    if not weights.startswith(LOCAL_DIR):
        return weights.removeprefix(HF_HUB).partition("@")[0].rpartition("/")[2]
    folder = at_home(weights.removeprefix(LOCAL_DIR)).absolute()
    if (folder / README).is_file():
        card = read_text(folder, README)
        recipe = split_card(card, folder / README)[0].get("recipe") if has_front_matter(card) else None
        if isinstance(recipe, str):
            return Path(recipe).name.removesuffix(".yaml")
    return folder.name
