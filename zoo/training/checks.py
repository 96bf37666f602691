"""What is wrong with the settings of a run, told in one line before anything long begins."""

import inspect
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace
from lightning.pytorch.utilities import rank_zero_info

from zoo.registry import model_class, open_bundle
from zoo.training import precision
from zoo.utils import recipe_yaml
from zoo.utils.modules import load_class, path_of
from zoo.utils.regular import check_regular

TRAINING = ("optimizer", "lr_scheduler")  # settings of a recipe that are no arguments of its model
BATCHES = ("limit_train_batches", "limit_val_batches", "limit_test_batches")
PROCESSES_OF_A_CORE = 4  # that may be asked for; more only wait for one another


def given_options(args: list[str], *names: str) -> list[str]:
    """The options of the command line about settings, e.g. `--model.dropout`."""
    options = [arg.split("=")[0] for arg in args if arg.startswith("--")]
    return [option for option in options if any(f"{option}.".startswith(f"--{name}.") for name in names)]


def given_values(args: list[str], option: str) -> list[str]:
    """What the command line gives for an option, each time it does."""
    pairs = zip(args, [*args[1:], ""], strict=True)
    return [arg.partition("=")[2] or after for arg, after in pairs if arg == option or arg.startswith(f"{option}=")]


def whole_batches(recipes: list[dict[str, Any]], args: list[str]) -> dict[str, int]:
    """Settings like limit_train_batches: 1, which is one batch where the parser reads 1.0: all of them."""
    found: dict[str, int] = {}
    for recipe in recipes:
        trainer = recipe.get("trainer") or {}
        found |= {name: value for name, value in trainer.items() if name in BATCHES and type(value) is int}
    for name in BATCHES:
        for value in given_values(args, f"--trainer.{name}"):
            found.pop(name, None)
            found |= {name: int(value)} if value.isdecimal() else {}
    return found


def read_recipe(file: str) -> dict[str, Any]:
    """The settings of a recipe; refuses what is none, before anything in it is taken for a setting.

    Raises:
        ValueError: it is no text file with YAML settings. OSError: it cannot be read.
    """
    try:
        check_regular(file)
        found = recipe_yaml.load(Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"--config {file}: there is no such file; give a recipe, e.g. recipes/NAME.yaml") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"--config {file}: byte {error.start:,} is not utf-8 text; give a recipe in YAML") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        what = getattr(error, "problem", None) or "a character that YAML does not allow"
        broken = "" if "a second time" in what else "; a recipe is YAML, and this is none, or is cut off"
        raise ValueError(f"--config {file}: {where}{what}{broken}") from error
    if not isinstance(found, dict):
        raise ValueError(f"--config {file}: expected settings like `model:` and `data:`; got {found!r:.50}")
    return found


def check_trainer(config: Any) -> None:
    """Raises ValueError for settings of the trainer with which Lightning would fail later, or go wrong."""
    for name in ("accumulate_grad_batches", "check_val_every_n_epoch", "num_nodes", "log_every_n_steps"):
        least = int(name != "log_every_n_steps")
        if (value := config.get(name)) is not None and value < least:
            raise ValueError(f"trainer.{name} must be at least {least}; got {value}")
    if config.limit_train_batches == 0:
        raise ValueError(
            "trainer.limit_train_batches must be above 0, else nothing is trained; for scores alone use zoo validate"
        )
    if config.val_check_interval == 0:
        raise ValueError(
            "trainer.val_check_interval must be above 0; to leave validation out, give --trainer.limit_val_batches 0"
        )
    most, asked = PROCESSES_OF_A_CORE * (os.cpu_count() or 1), str(config.devices)
    if asked.isdecimal() and int(asked) > most and precision.device_type(config.accelerator) == "cpu":
        raise ValueError(
            f"trainer.devices must be at most {most} on this CPU, {PROCESSES_OF_A_CORE} processes for each core; got "
            f"{asked}"
        )
    allowed = ("32-true", "bf16-mixed", "16-mixed")
    if config.precision is not None and str(config.precision) not in (*allowed, "32", "16", "bf16"):
        raise ValueError(f"trainer.precision must be one of {', '.join(allowed)}; got {config.precision}")


def check_model(model: Any, checkpoint: dict[str, Any], given: list[str], path: str) -> None:
    """Checks that a checkpoint is of the model of the command line: the checkpoint's own arguments are used.

    Raises:
        ValueError: it is of another class, or the command line asks for another argument.
    """
    trained = dict(checkpoint["hyper_parameters"])
    class_path = trained.pop("_class_path")
    if model.class_path not in (class_path, "zoo.load") and path_of(load_class(model.class_path)) != class_path:
        raise ValueError(
            f"{path} holds a {class_path}, and the model of the recipe and the command line is a {model.class_path}"
        )
    arguments, wanted = model.get("init_args"), {}
    if arguments:
        wanted = dict(arguments.get("overrides") or {}) if model.class_path == "zoo.load" else arguments.as_dict()
    for option in given:
        parts = [part for part in option.split(".")[1:] if part not in ("init_args", "overrides", "class_path", "name")]
        for name in parts[:1] or wanted:
            if name in trained and name in wanted and trained[name] != wanted[name]:
                raise ValueError(
                    f"{option}: the model of {path} was trained with {name} {trained[name]}, which cannot become "
                    f"{wanted[name]}; "
                    "leave it out, or begin a new training"
                )


def ask_for_data(error: str) -> None:
    """Asks for the files of the user that a recipe leaves open.

    Args:
        error: what jsonargparse says of the settings.

    Raises:
        ValueError: such a file is what it misses.
    """
    found = re.search(r"class_path '([\w.]+)':[\s-]*the following arguments are required: ([\w, ]+)", error)
    needed = getattr(load_class(found[1]), "own_files", {}) if found else {}
    if found and (asked := [name for name in found[2].split(", ") if name in needed]):
        wanted = "; ".join(
            f"--data.{name} {'FOLDER' if name == 'folder' else 'FILE'}, {needed[name]}" for name in asked
        )
        raise ValueError(f"the recipe needs your data: {wanted}")


def nearest_argument(error: str) -> str:
    """The question which argument was meant, if a class or function of a recipe has one that is similar to an unknown
    one; for a pretrained weight also where its own arguments are given.

    Args:
        error: what jsonargparse says of the settings.
    """
    found = re.search(r"class_path '([\w.]+)':[\s-]*Option '(\w+)' is not accepted", error)
    if not found:
        return ""
    named = load_class(found[1])
    made_by = [base.__init__ for base in named.__mro__] if inspect.isclass(named) else [named]
    names = {name for call in made_by for name in inspect.signature(call).parameters}
    near = get_close_matches(found[2], names - {"self", "args", "kwargs"}, n=1)
    if not near and found[1] == "zoo.load":
        return f"; the arguments of the weight itself are given as --model.overrides.{found[2]}"
    return f"; did you mean {near[0]}?" if near else ""


def check_data(data: Any, verb: str) -> None:
    """Looks for the files of the user, before anything is built.

    Raises:
        OSError, ValueError: one is missing, or cannot be read.
    """
    cls = load_class(data.class_path)
    if getattr(cls, "own_files", {}):
        cls(**data.init_args.as_dict()).check_files(verb)


def check_vocabulary(data: Any, args: list[str]) -> None:
    """Raises ValueError for options of the data which a pretrained weight, with its own vocabulary, would ignore."""
    names = getattr(load_class(data.class_path), "of_vocabulary", ())
    if given := given_options(args, *(f"data.{into}{name}" for name in names for into in ("", "init_args."))):
        raise ValueError(f"{given[0]} has no effect, as a pretrained weight keeps its vocabulary; leave it out")


def check_task(model: Any, data: Any) -> None:
    """Raises ValueError if a pretrained weight is for another task than the data."""
    if model.class_path != "zoo.load" or not model.get("init_args"):
        return
    cls = model_class(open_bundle(model.init_args.name).class_path)
    data_class = load_class(data.class_path)
    task = getattr(data_class, "task", cls.task.name)
    if task != cls.task.name:
        raise ValueError(
            f"{data_class.__name__} is data for {task}; {cls.__name__} is a model for {cls.task.name}: "
            "use other data or another model"
        )


def check_training(config: Any, checkpoint: dict[str, Any], args: list[str]) -> None:
    """Checks that a training is resumed with the weight, optimiser and schedule with which it began: the checkpoint
    restores them. A line says so if the recipe has other arguments of the model now.

    Raises:
        ValueError: the command line asks for others.
    """
    began = checkpoint.get("zoo_training", {})
    weight, options = begins_with(config.model, config.weights), ("model.name", "model.init_args.name", "weights")
    if "weight" in began and began["weight"] != weight and (given := given_options(args, *options)):
        raise ValueError(
            f"{given[0]} {weight}: the training of {config.ckpt_path} began with {began['weight'] or 'no weight'}; "
            "leave it out, or begin a new training"
        )
    for name in TRAINING:
        if (given := given_options(args, name)) and (wanted := config[name].as_dict()) != began.get(name, wanted):
            raise ValueError(
                f"{given[0]}: {config.ckpt_path} was trained with {name} {_short(began[name])}, which cannot become "
                f"{_short(wanted)}; leave it out, or begin a new training"
            )
    now, before = (model.get("init_args") or {} for model in (config.model.as_dict(), began.get("model", {})))
    if changed := [name for name in before if name in now and now[name] != before[name]]:
        rank_zero_info(
            f"resumed with the model of {config.ckpt_path}, {', '.join(f'{name} {before[name]}' for name in changed)}: "
            "what the recipe says of it now has no effect; for another model begin a new training"
        )


def keep_settings(config: Any, checkpoint: dict[str, Any]) -> None:
    """Gives optimiser and schedule of a recipe the arguments that the training began with, so that what a resumed
    training does and notes down is true; a line says so if they differ.

    Raises:
        ValueError: the recipe has one of another class, which cannot take the state.
    """
    for name in TRAINING:
        wanted = config[name].as_dict()
        began = checkpoint.get("zoo_training", {}).get(name, wanted)
        if began["class_path"] != wanted["class_path"]:  # a class is only ever taken from the recipe
            raise ValueError(
                f"{name}: {config.ckpt_path} was trained with {_short(began)}, which cannot become {_short(wanted)}; "
                "restore it in the recipe, or begin a new training"
            )
        given, before = (settings.get("init_args", {}) for settings in (wanted, began))
        if changed := {key: value for key, value in before.items() if key in given and value != given[key]}:
            rank_zero_info(
                f"resumed with the {name} of {config.ckpt_path}, {_short(began)}: that of the recipe, "
                f"{_short(wanted)}, has no effect; for another one begin a new training"
            )
            config[name].init_args.update(Namespace(**changed))


def begins_with(model: Any, weights: str | None) -> str | None:
    """The name of the pretrained weight with which a training begins; None if there is none.

    Args:
        model: its settings.
        weights: value of --weights.
    """
    return weights or (model.get("init_args.name") if model.class_path == "zoo.load" else None)


def _short(settings: dict[str, Any]) -> str:
    arguments = ", ".join(f"{name} {value}" for name, value in settings.get("init_args", {}).items())
    return f"{settings['class_path'].rpartition('.')[2]} ({arguments})"
