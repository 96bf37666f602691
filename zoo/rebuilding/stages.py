"""The stages in which a weight is made, as its recipe lists them.

    stages:
    - fit: reference_structured_self_attention.caption_pairs    # a recipe next to this one; left out: this recipe
      settings: {data.seed: 2}          # as `zoo fit` takes them; {NAME} is the file or the folder of an earlier stage
      from: NAME                        # the weights it starts from: of an earlier stage, or a name of `zoo list`
      checkpoint: last                  # which one is exported; best if left out
      export: {beam_size: 2}            # arguments of the model that the exported weights get
      to: mixed                         # its name
    - {average: [NAME, NAME], to: mean}
    - prepare: gzip -dc "$(data multi30k/train.en.gz)" > train.en     # for bash; `data FILE` is a file of the data
      to: [train.en]                    # the files that it writes, each of them a name
    - {translate: train.en, by: [NAME, NAME], length_penalties: [1.2, 2.0], to: pairs.tsv}    # see consensus.py
    - {encoder: {epochs: 3, seed: 1}, to: teacher}    # learns this recipe's data and only classifies: see encoder.py
    - {classify: lines, by: [NAME, NAME], min_probability: 0.6, to: labelled.tsv}    # see labelling.py
    - {sample: 4000000, by: [NAME, NAME], to: more}    # words: see sampling.py
    - {predict: train, by: [NAME, NAME], extra_text: more, share: 0.8, words: 64, to: soft}    # see predicting.py
    - {vary: lines, vectors: vectors.txt, copies: 10, to: varied}    # see variants.py
    - {cross: lines, count: 60000, to: crossed}    # see crossing.py
    - {pair: lines, similar: 10, to: pairs}    # see pairing.py
    - {stages: RECIPE, up_to: NAME}     # the stages of a recipe next to this one, up to that name, stand here

A stage uses only earlier ones. The last one makes the weight. A recipe without stages is one fit.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from zoo import registry
from zoo.utils import recipe_yaml
from zoo.utils.regular import check_regular

WEIGHT = "weight"  # the name of a last stage that gives none
KEYS = {  # kind -> keys
    "fit": ("fit", "from", "settings", "checkpoint", "export", "int8", "to"),
    "average": ("average", "int8", "to"),
    "prepare": ("prepare", "to"),
    "translate": ("translate", "by", "length_penalties", "beam_size", "min_agreement", "to"),
    "encoder": ("encoder", "to"),
    "classify": ("classify", "by", "min_probability", "to"),
    "sample": ("sample", "by", "seed", "to"),
    "predict": ("predict", "by", "extra_text", "share", "words", "to"),
    "vary": ("vary", "vectors", "copies", "share", "common", "seed", "to"),
    "cross": ("cross", "count", "longest", "seed", "to"),
    "pair": ("pair", "similar", "others", "seed", "to"),
}
INFINITE = float("inf")
RANGES: dict[str, tuple[type, float, float]] = {  # of numbers: kind, least and most
    **dict.fromkeys(("beam_size", "epochs", "batch_size", "copies", "count", "words"), (int, 1, INFINITE)),
    **dict.fromkeys(("common", "similar", "others", "seed"), (int, 0, INFINITE)),
    "longest": (int, 3, INFINITE),
    "lr": (float, 0, INFINITE),
    **dict.fromkeys(("min_agreement", "min_probability", "share", "label_smoothing"), (float, 0, 1)),
}
ENCODER = ("epochs", "lr", "batch_size", "label_smoothing", "longest", "seed")  # settings
THINGS = {"weight": "a weight", "encoder": "an encoder", "file": "a file"}
OURS = ("config", "ckpt_path", "weights", "model.name", "data.root", "trainer.default_root_dir", "stages")
SETTING = r"[a-z_]+(\.\w+)*\+?"
_NAME = r"[A-Za-z0-9][\w.-]*"
_USED = re.compile(rf"\{{({_NAME})\}}")


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        kind: a key of `KEYS`.
        to: its names: of the weight, or of each file that it makes.
        given: its keys in the recipe.
        recipe: the recipe of a fit; of another stage, the one that lists it, whose data it learns or predicts.
        uses: names of earlier stages.
        weights: names of published weights.
    """

    kind: str
    to: tuple[str, ...]
    given: dict[str, Any]
    recipe: Path
    uses: tuple[str, ...]
    weights: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.to[0]

    @property
    def makes(self) -> str:
        """What it makes: one of `THINGS`."""
        return {"fit": "weight", "average": "weight", "encoder": "encoder"}.get(self.kind, "file")

    @property
    def what(self) -> str:
        """What it does, in a few words."""
        if self.kind == "fit":
            start = f" from {self.given['from']}" if "from" in self.given else ""
            return f"fit {self.recipe.stem}{start}"
        if self.kind == "prepare":
            return f"prepare {', '.join(self.to)}"
        if self.kind == "average":
            return f"average {', '.join(self.given['average'])}"
        if self.kind == "encoder":
            return "fine-tune a sentence encoder"
        if self.kind == "sample":
            return f"sample {self.given['sample']:,} words by {', '.join(self.given['by'])}"
        if self.kind in ("vary", "cross", "pair"):
            return f"{self.kind} {self.given[self.kind]}"
        return f"{self.kind} {self.given[self.kind]} by {', '.join(self.given['by'])}"

    def definition(self, settings: dict[str, str]) -> dict[str, Any]:
        """All that its result depends on, but for the data and earlier stages.

        Args:
            settings: those of the command line, for each fit.
        """
        found = {"kind": self.kind, **{key: value for key, value in self.given.items() if key != "fit"}}
        if self.kind == "fit":
            recipe = {key: value for key, value in read_recipe(self.recipe).items() if key != "stages"}
            found |= {"fit": self.recipe.stem, "recipe": recipe, "command_line": settings}
        if self.kind in ("encoder", "predict"):
            found["data"] = read_recipe(self.recipe).get("data")
        return found


def read_recipe(file: Path) -> dict[str, Any]:
    """The settings of a recipe.

    Raises:
        ValueError: it is none.
        OSError: it cannot be read.
    """
    check_regular(file)
    try:
        found = recipe_yaml.load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not YAML, or has a key twice: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise ValueError(f"{file} is not a recipe: it has no `model:`")
    return found


def read_stages(file: Path) -> list[Stage]:
    """The stages of a recipe, checked.

    Raises:
        ValueError: one is wrong; the message says which, and what is allowed.
        OSError: a recipe cannot be read.
    """
    listed = _all_listed(file)
    listed[-1][1].setdefault("to", WEIGHT)
    names: dict[str, str] = {}  # of earlier stages -> what it is, one of THINGS
    later = [name for _, given in listed for name in _listed(given.get("to"))]
    found = []
    for number, (recipe, given) in enumerate(listed, 1):
        try:
            stage = _stage(recipe, given, names, later)
        except ValueError as error:
            raise ValueError(f"{file}, stage {number}: {error}") from error
        names |= dict.fromkeys(stage.to, stage.makes)
        found.append(stage)
    if found[-1].makes != "weight":
        raise ValueError(
            f"{file}: the last stage must make a weight: a fit or an average; it is {_article(found[-1].kind)}"
        )
    return found


def _all_listed(file: Path, within: tuple[Path, ...] = ()) -> list[tuple[Path, dict[str, Any]]]:
    """The stages as a recipe lists them, with those of other recipes in their places; each with the recipe it is of."""
    listed = read_recipe(file).get("stages", [{}])
    if not isinstance(listed, list) or not listed or not all(isinstance(given, dict) for given in listed):
        raise ValueError(f"{file}: `stages:` must be a list of stages, each with keys like fit, from and to")
    found = []
    for number, given in enumerate(listed, 1):
        try:
            found += _borrowed(file, given, (*within, file)) if "stages" in given else [(file, given)]
        except ValueError as error:
            raise ValueError(f"{file}, stage {number}: {error}") from error
    return found


def _borrowed(file: Path, given: dict[str, Any], within: tuple[Path, ...]) -> list[tuple[Path, dict[str, Any]]]:
    """The stages of another recipe up to a name: what they do with "this recipe" they do with that one."""
    if given.keys() != {"stages", "up_to"}:
        raise ValueError(
            f"stages of another recipe are {{stages: RECIPE, up_to: NAME}}; got the keys {', '.join(given)}"
        )
    other = file.with_name(f"{given['stages']}.yaml")
    if not other.is_file():
        raise ValueError(f"stages: there is no recipe {other}")
    if other in within:
        raise ValueError(f"stages: {other.name} takes stages of this recipe, so this one cannot take its")
    listed = _all_listed(other, within)
    names = [_listed(stage.get("to")) for _, stage in listed]
    ends = [number for number, to in enumerate(names, 1) if given["up_to"] in to]
    if not ends:
        there = ", ".join(name for to in names for name in to) or "none with a name"
        raise ValueError(f"{other.name} has no stage '{given['up_to']}'; its stages are {there}")
    return listed[: ends[0]]


def _stage(file: Path, given: dict[str, Any], names: dict[str, str], later: list[str]) -> Stage:
    kinds = [kind for kind in KEYS if kind in given and kind != "fit"]
    kind = kinds[0] if kinds else "fit"
    if unknown := [key for key in given if key not in KEYS[kind]]:
        raise ValueError(f"'{unknown[0]}' is no key of {_article(kind)}; allowed: {', '.join(KEYS[kind])}")
    _check_numbers(given)
    to = tuple(_listed(given.get("to")))
    if not to:
        raise ValueError("it has no name; give to: NAME")
    for name in to:
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise ValueError(f"a name has letters, digits, dots, dashes and underscores; got {name!r}")
        if name in names or to.count(name) > 1:
            raise ValueError(f"there are two stages named '{name}'")
    if len(to) > 1 and kind != "prepare":
        raise ValueError(f"{_article(kind)} has one name; got {', '.join(to)}")
    if not isinstance(given.get("int8", False), bool):
        raise ValueError(f"int8 must be true or false; got {given['int8']!r}")
    if kind in ("translate", "classify", "sample", "predict"):
        given = {**given, "by": _listed(given.get("by"))}
    recipe = _recipe(file, given) if kind == "fit" else file
    of_weights, of_files, of_either = _mentioned(kind, given)
    if kind == "prepare":  # other braces are those of the shell
        of_either = [name for name in of_either if name in names or name in later]
    weights = [name for name in of_weights if name not in names]
    for name in weights:
        if name not in registry.TABLE:
            raise _missing(name, names, later, " and no weight of `zoo list`")
    for name in (*of_files, *of_either):
        if name not in names:
            raise _missing(name, names, later)
    models = ("weight", "encoder") if kind == "classify" else ("weight",)
    for wanted, mentioned in ((models, of_weights), (("file",), of_files)):
        for name in mentioned:
            if names.get(name, wanted[0]) not in wanted:
                needed = " or ".join(THINGS[thing] for thing in wanted)
                raise ValueError(f"'{name}' is {THINGS[names[name]]}, and {needed} is needed")
    uses = [name for name in (*of_weights, *of_files, *of_either) if name in names]
    return Stage(kind, to, given, recipe, tuple(dict.fromkeys(uses)), tuple(dict.fromkeys(weights)))


def _check_numbers(given: dict[str, Any]) -> None:
    """Raises ValueError for a number of a stage that is none, or out of its range."""
    for name, (kind, least, most) in RANGES.items():
        value = given.get(name, least)
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not least <= value <= most:
            what = "a whole number" if kind is int else "a number"
            span = f"at least {least}" if most == INFINITE else f"from {least} to {most}"
            raise ValueError(f"{name} must be {what}, {span}; got {value!r}")


def _recipe(file: Path, given: dict[str, Any]) -> Path:
    """The recipe of a fit, whose keys are checked."""
    settings = given.get("settings", {})
    if not isinstance(settings, dict):
        raise ValueError(f"settings must be like {{data.seed: 2}}; got {settings!r}")
    check_settings(settings)
    if given.get("checkpoint", "best") not in ("best", "last"):
        raise ValueError(f"checkpoint must be 'best' or 'last'; got {given['checkpoint']!r}")
    if not isinstance(given.get("export", {}), dict):
        raise ValueError(f"export must be like {{beam_size: 2}}; got {given['export']!r}")
    if given.get("export") and given.get("int8"):
        raise ValueError("a stage has export or int8, not both")
    recipe = file.with_name(f"{given['fit']}.yaml") if given.get("fit") else file
    if not recipe.is_file():
        raise ValueError(f"fit: there is no recipe {recipe}")
    if "from" in given and read_recipe(recipe)["model"].get("class_path") != "zoo.load":
        raise ValueError(f"from: {recipe.name} trains a model from scratch; its class_path would have to be zoo.load")
    return recipe


def check_settings(settings: dict[str, Any]) -> None:
    """Checks the names of settings for `zoo fit`.

    Raises:
        ValueError: one is not such a name, or `zoo rebuild` sets it itself.
    """
    for name in settings:
        if not isinstance(name, str) or not re.fullmatch(SETTING, name):
            raise ValueError(f"a setting is like trainer.max_epochs, as `zoo fit --help` names them; got {name!r}")
        if name in OURS:
            raise ValueError(f"{name} is set by `zoo rebuild` itself; leave it out")


def _mentioned(kind: str, given: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """What a stage names: weights, files, and what may be either."""
    if kind == "fit":
        return _listed(given.get("from")), [], _in(given.get("settings", {}))
    if kind == "average":
        if len(sources := _listed(given["average"])) < 2:
            raise ValueError("average needs two weights or more")
        return sources, [], []
    if kind == "prepare":
        if not isinstance(given["prepare"], str):
            raise ValueError("prepare must be lines for bash")
        return [], [], _in(given["prepare"])
    if kind == "encoder":
        given = given["encoder"]
        wrong = [key for key in given if key not in ENCODER] if isinstance(given, dict) else [given]
        if wrong:
            raise ValueError(f"encoder must be settings like {{epochs: 3}}, of {', '.join(ENCODER)}; got {wrong[0]!r}")
        _check_numbers(given)
        return [], [], []
    if kind == "vary":
        if "vectors" not in given:
            raise ValueError("vary needs vectors: a file of word vectors")
        return [], [given["vary"], given["vectors"]], []
    if kind in ("cross", "pair"):
        return [], [given[kind]], []
    if not (by := given["by"]):
        kept = "what they agree on" if kind == "translate" else "the mean of their probabilities"
        raise ValueError(f"{kind} needs a model under by, or several: then {kept} is kept")
    if kind == "predict":
        if given[kind] != "train":
            raise ValueError(f"predict must be 'train', the training text of this recipe; got {given[kind]!r}")
        return by, _listed(given.get("extra_text")), []
    if kind == "sample":
        if type(given[kind]) is not int or given[kind] < 1:
            raise ValueError(f"sample must be a number of words, at least 1; got {given[kind]!r}")
        return by, [], []
    penalties = given.get("length_penalties", [])
    if not isinstance(penalties, list) or len(penalties) not in (0, len(by)):
        raise ValueError(f"length_penalties must be one for each of {len(by)} models; got {penalties}")
    return by, _listed(given[kind]), []


def _missing(name: str, names: dict[str, str], later: list[str], also: str = "") -> ValueError:
    if name in later:
        return ValueError(
            f"it needs '{name}', which is not made before it; stages use only earlier ones, not in circles"
        )
    earlier = f"; earlier stages are {', '.join(names)}" if names else ", and it is the first"
    return ValueError(f"there is no stage '{name}'{also}{earlier}")


def _in(value: Any) -> list[str]:
    """The names in braces in a text, or in the texts of a list or a table."""
    return [match[1] for text in _texts(value) for match in _USED.finditer(text)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def filled(value: Any, places: dict[str, str]) -> Any:
    """The same value, with the place of each name in braces; other braces stay."""
    if isinstance(value, str):
        return _USED.sub(lambda match: places.get(match[1], match[0]), value)
    if isinstance(value, dict):
        return {key: filled(item, places) for key, item in value.items()}
    return [filled(item, places) for item in value] if isinstance(value, list) else value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _article(kind: str) -> str:
    return f"an {kind}" if kind in ("average", "encoder") else f"a {kind}"
