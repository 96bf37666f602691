"""The recipes of a comparison: base.yaml, what all mechanisms share, and one short file per mechanism."""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from zoo.comparison.files import BASE, PUBLISHED, RECIPES, SPACE
from zoo.comparison.tasks.base import ComparedTask
from zoo.comparison.tasks.known import task_of
from zoo.data.common.files import fingerprint
from zoo.registry import register
from zoo.tasks.checks import check_arguments, check_choices, check_methods
from zoo.utils.modules import load_class
from zoo.utils.regular import check_regular

LONGEST = 40  # characters of a mechanism's name: longer ones leave no room for the pictures
METER, UNTIL = "zoo.comparison.measures.TrainingMeter", "zoo.training.plateau.HalveThenStop"
BUDGET = "max_epochs", "max_steps", "max_time", "min_epochs", "min_steps", "limit_train_batches", "overfit_batches"
PART = {"class_path", "init_args"}  # of all sections but the trainer
SECTIONS = ("model", "optimizer", "lr_scheduler", "data", "trainer")
USUAL = {"optimizer": "zoo.tasks.optimizer.AdamW", "lr_scheduler": "zoo.tasks.optimizer.WarmupCosine"}  # of `zoo fit`


@dataclass(frozen=True)
class Recipes:
    """A folder of recipes.

    Raises:
        ValueError: a recipe that is asked for cannot be read.
    """

    folder: Path
    _known: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def are_shipped(self) -> bool:
        """Whether these are the recipes that `zoo compare` takes without --recipes."""
        return self.folder.resolve() == RECIPES.resolve()

    @property
    def task(self) -> ComparedTask:
        """The task of the models.

        Raises:
            ValueError: base.yaml does not say which, or its models cannot be compared.
        """
        model = self.base["model"]
        path = model.get("class_path")
        if not path:
            raise ValueError(f"{self.path(BASE)}: `model:` must have a class_path, that of most mechanisms")
        return task_of(load_class(path), model.get("init_args") or {})

    @property
    def published(self) -> list[Path]:
        """Folders of published results: next to these recipes, and next to the shipped ones."""
        folders = [self.folder, *(folder for folder in shipped_folders() if self._has_data_of(folder))]
        found = [folder / PUBLISHED for folder in folders if (folder / PUBLISHED).is_dir()]
        return list({folder.resolve(): folder for folder in found}.values())

    def _has_data_of(self, folder: Path) -> bool:
        """Whether other recipes are for the same data set."""
        return _data_set(Recipes(folder).base) == _data_set(self.base)

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.yaml"

    def read(self, name: str) -> dict[str, Any]:
        """Content of a recipe."""
        if name not in self._known:
            found = read_yaml(self.path(name))
            if not isinstance(found.get("model"), dict):
                raise ValueError(f"{self.path(name)} is not a recipe: it has no `model:`")
            _check_sections(self.path(name), found)
            self._known[name] = found
        return self._known[name]

    @property
    def base(self) -> dict[str, Any]:
        return self.read(BASE)

    @property
    def data(self) -> str:
        """Description of base.yaml's data."""
        data = self.base["data"]
        options = data.get("init_args") or {}
        both = {"src_lang", "tgt_lang"} <= options.keys()
        languages = f" ({options['src_lang']} to {options['tgt_lang']})" if both else ""
        return data["class_path"].rpartition(".")[2] + languages

    def check_base(self) -> None:
        """Raises ValueError if base.yaml lacks the data, the budget, or the callback that measures."""
        trainer = self.base.get("trainer")
        if not (isinstance(self.base.get("data"), dict) and isinstance(trainer, dict) and trainer.get("max_epochs")):
            raise ValueError(f"{self.path(BASE)} must have `data:` and, as the budget, `trainer: {{max_epochs: N}}`")
        self.check_callbacks(BASE)

    def check_callbacks(self, name: str) -> None:
        """Raises ValueError if a training with the recipe would not be measured, or has a budget of its own."""
        own = self.read(name).get("trainer") or {}
        if name != BASE and (key := next((key for key in BUDGET if key in own), None)):
            raise ValueError(
                f"{self.path(name)}: `trainer: {key}:` is the budget, which all mechanisms share: give it in "
                f"{BASE}.yaml"
            )
        if "callbacks" not in own and name != BASE:  # those of base.yaml
            return
        classes = [one.get("class_path") for one in own.get("callbacks") or [] if isinstance(one, dict)]
        if METER not in classes:
            raise ValueError(
                f"{self.path(name)}: `trainer: callbacks:` lacks {METER}, which notes down what a training took: add it"
            )
        if rule_of(own) != (shared := rule_of(self.base["trainer"])):
            ends = f"end its training by {UNTIL} with {shared}" if shared is not None else f"not have {UNTIL}"
            raise ValueError(f"{self.path(name)}: `trainer: callbacks:` must {ends}, as {BASE}.yaml says for all")

    def names(self, only: Sequence[str] = ()) -> list[str]:
        """The mechanisms, or those of `only`.

        Raises:
            ValueError: no such folder, or an unknown name.
        """
        if not self.path(BASE).is_file():
            raise ValueError(
                f"{self.folder} has no {BASE}.yaml: give the folder of recipes with --recipes "
                f"(the shipped ones: {RECIPES})"
            )
        names = sorted(path.stem for path in self.folder.glob("*.yaml") if path.stem not in (BASE, SPACE))
        for name in names:
            if not re.fullmatch(rf"[\w.-]{{1,{LONGEST}}}", name):
                raise ValueError(
                    f"{self.path(name)}: the name of a mechanism, that of its file, may have {LONGEST} letters, digits "
                    f"and _ . -; got {name!r}: rename it"
                )
        for name in only:
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f"; did you mean '{near[0]}'?" if near else "."
                raise ValueError(f"no mechanism '{name}'{hint} There are {', '.join(names)}")
        return list(dict.fromkeys(only)) or names

    def part(self, name: str, section: str) -> dict[str, Any]:
        """A section (`model`, `optimizer`, ...) of a recipe on top of base.yaml, merged as `zoo fit` does."""
        base, own = (self.read(recipe).get(section) or {} for recipe in (BASE, name))
        usual = base.get("class_path", USUAL.get(section))
        path, shared = own.get("class_path", usual), base.get("init_args") or {}
        if path != usual:  # another class keeps the arguments that it has too
            known = inspect.signature(load_class(path)).parameters
            shared = {key: value for key, value in shared.items() if key in known}
        return {"class_path": path, "init_args": {**shared, **(own.get("init_args") or {})}}

    def are_same(self, name: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
        """Whether two choices of a search are the same: a setting that one leaves out has the recipe's own value there.

        Without the recipe, as of a published mechanism, that value is not known.
        """
        if first == second or not self.path(name).is_file():
            return first == second
        own = {setting: self.value(name, setting) for setting in {*first, *second}}
        return {**own, **first} == {**own, **second}

    def value(self, name: str, setting: str) -> Any:
        """The value that a recipe has for a setting such as "optimizer.lr".

        Raises:
            ValueError: its class has no such argument.
        """
        section, _, argument = setting.partition(".")
        if section not in ("model", *USUAL):
            raise ValueError(f"{setting} is no setting of {self.path(name)}: expected model.NAME or optimizer.NAME")
        part = self.part(name, section)
        if argument in part["init_args"]:
            return part["init_args"][argument]
        known = inspect.signature(load_class(part["class_path"])).parameters
        if argument not in known:
            raise ValueError(f"{self.path(name)}: there is no setting {setting}")
        return known[argument].default

    @property
    def fingerprint(self) -> str:
        """What tells whether two results are of the same base.yaml."""
        return fingerprint(self.base)

    def fingerprints(self, name: str) -> dict[str, str]:
        """What tells whether two results are of the same base.yaml, and of the same recipe on top of it."""
        return {"base": self.fingerprint, "recipe": fingerprint(self.base, self.read(name))}

    def check_model(self, name: str) -> None:
        """Raises ValueError if the recipe's class is of another task, or does not take the recipe's arguments."""
        where, model = self.path(name), self.part(name, "model")
        cls = load_class(model["class_path"])
        if not self.task.compares(cls, model["init_args"]):
            several = " with multi_label: True" if model["init_args"].get("multi_label") else ""
            raise ValueError(
                f"{where}: base.yaml compares {self.task.kinds}, and {model['class_path']} is none{several}"
            )
        signature = inspect.signature(cls.__init__)
        check_methods(cls)
        check_arguments(cls, signature, cls.required)
        defaults = {key: parameter.default for key, parameter in signature.parameters.items()}
        if unknown := sorted(model["init_args"].keys() - defaults.keys()):
            raise ValueError(
                f"{where}: {cls.__name__} has no argument {unknown[0]}; it has {', '.join([*defaults][1:])}"
            )
        check_choices(cls, {**defaults, **model["init_args"]})
        register(cls)

    def about(self, name: str) -> str:
        """The comment with which a recipe begins, as one line."""
        comments = []
        for line in self.path(name).read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            comments.append(line[1:].strip())
        return " ".join(comments)


def shipped_folders() -> list[Path]:
    """The folders of recipes for `zoo compare` that the package has."""
    return sorted(path.parent for path in RECIPES.parent.glob(f"{RECIPES.name}*/{BASE}.yaml"))


def _data_set(base: Mapping[str, Any]) -> str | None:
    data = base.get("data")
    return data.get("class_path") if isinstance(data, dict) else None


class _Loader(yaml.SafeLoader):
    """Reads numbers as `zoo fit` does: 1e-3 is one, too."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$"), [*"-+0123456789"]
)


def rule_of(trainer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of the callback that ends trainings, or None without it."""
    callbacks = [one for one in trainer.get("callbacks") or [] if isinstance(one, dict)]
    return next((one.get("init_args") or {} for one in callbacks if one.get("class_path") == UNTIL), None)


def _check_sections(path: Path, found: Mapping[str, Any]) -> None:
    """Raises ValueError for a section that is no mapping, or a value that `zoo fit` would not take."""
    for section in SECTIONS:
        parts = {f"{section}:": found.get(section)}
        if isinstance(parts[f"{section}:"], dict):
            parts[f"{section}: init_args:"] = found[section].get("init_args")
        for name, value in parts.items():
            if not (value is None or isinstance(value, dict)):
                raise ValueError(f"{path}: `{name}` must have names and values below it; got {value!r:.60}")
        if section != "trainer" and (others := (found.get(section) or {}).keys() - PART):
            raise ValueError(
                f"{path}: `{section}:` may only have `class_path:` and `init_args:`, below which all arguments stand; "
                f"got {min(map(str, others))!r:.60}"
            )
    try:
        fingerprint(found)
    except TypeError as error:  # of a date, say
        raise ValueError(f"{path}: {error}; write it in quotes") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; without one an empty mapping.

    Raises:
        ValueError: it is not YAML.
    """
    check_regular(path)
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    return found if isinstance(found, dict) else {}
