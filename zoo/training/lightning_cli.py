"""`zoo fit | validate | test`: LightningCLI over recipes, with defaults that make a run resumable."""

import importlib
import os
import re
import shlex
import signal
import subprocess
import sys
import warnings
from argparse import ArgumentError
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml
from filelock import FileLock, Timeout
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, EMAWeightAveraging, ModelCheckpoint
from lightning.pytorch.cli import (
    LightningArgumentParser,
    LightningCLI,
    LRSchedulerCallable,
    OptimizerCallable,
    SaveConfigCallback,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.utilities import rank_zero_info

from zoo.registry import load
from zoo.tasks.base import ZooModule
from zoo.tasks.optimizer import AdamW, WarmupCosine
from zoo.training import precision
from zoo.training.checkpoints import (
    AtomicCheckpointIO,
    ExactCheckpoints,
    NotWrittenError,
    StopAtNaN,
    is_fast_dev_run,
    is_full,
    read_checkpoint,
)
from zoo.training.signals import ending_by_signal
from zoo.utils.atomic import remove_leftovers, write_text
from zoo.utils.regular import check_regular

TRAINING = ("optimizer", "lr_scheduler")  # settings of a recipe that are no arguments of its model
INEXACT = {  # callbacks of Lightning, and what to take instead
    EMAWeightAveraging: "until it begins it is the untrained weights; zoo.training.averaging.EMAWeights follows",
    ModelCheckpoint: "a training is not resumed to the bit; it is with zoo.training.checkpoints.ExactCheckpoints",
}
WAIT = 6.0  # seconds for the worker processes of a killed training, which hold its lock a little longer
PROCESSES_OF_A_CORE = 4  # that may be asked for; more only wait for one another


class ConfigOfRun(SaveConfigCallback):
    """Saves the configuration next to the logs, and without a logger into the folder of the run."""

    folder: Path

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        folder = Path(trainer.log_dir) if trainer.loggers and trainer.log_dir else self.folder  # asks all processes
        if trainer.is_global_zero and not self.already_saved:
            text = self.parser.dump(self.config, skip_none=False)
            write_text(folder / self.config_filename, text)
        self.already_saved = True


class RestoreEnds(Callback):
    """Notes that a checkpoint was taken in as a whole: what fails from now on is not its fault."""

    def __init__(self, reader: CheckpointIO) -> None:
        self._reader = reader

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if isinstance(self._reader, AtomicCheckpointIO):
            self._reader.restoring = None

    on_train_start = on_validation_start = on_test_start = on_sanity_check_start


class TrainingCLI(LightningCLI):
    """LightningCLI in subclass mode for ZooModule and LightningDataModule.

    A run lives in runs/<name of the recipe>/: checkpoints/ (the best and the last) and one folder of logs per start.
    What a recipe or the command line sets itself is left alone.
    """

    def __init__(self, args: list[str]) -> None:
        self._arguments = args
        self.locks: list[FileLock] = []
        strict = {"exit_on_error": False}  # zoo.cli prints one line instead of the usage
        super().__init__(
            ZooModule,
            LightningDataModule,
            save_config_callback=ConfigOfRun,
            subclass_mode_model=True,
            subclass_mode_data=True,
            seed_everything_default=0,
            auto_configure_optimizers=False,
            parser_kwargs={"prog": "zoo", **strict, **{name: dict(strict) for name in self.subcommands()}},
            args=args,
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """fit, validate and test; `zoo predict` is another thing."""
        return {name: skip for name, skip in LightningCLI.subcommands().items() if name != "predict"}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Adds --weights, --optimizer and --lr_scheduler."""
        parser.add_argument("--weights", type=str | None, help="a pretrained name instead of the recipe's fresh model")
        for name, kind, usual in (
            ("optimizer", OptimizerCallable, AdamW),
            ("lr_scheduler", LRSchedulerCallable, WarmupCosine),
        ):
            parser.add_argument(f"--{name}", type=kind, default={"class_path": f"{usual.__module__}.{usual.__name__}"})

    def parse_arguments(self, parser: LightningArgumentParser, args: list[str]) -> None:
        """Parses; `--ckpt_path best` or `last` becomes the file that an earlier fit wrote."""
        for recipe in _values(args, "--config"):
            _check_recipe(recipe)
        self.config = parser.parse_args(args)
        config = self.config[self.config.subcommand]
        fits = self.config.subcommand == "fit"
        overrides = config.get("model.init_args.overrides") or {}
        overrides |= {
            key: None for key, value in overrides.items() if value == "None"
        }  # what jsonargparse makes of `null`
        self.run_folder = Path(config.trainer.default_root_dir or "runs") / (
            Path(str(config.config[0])).stem if config.config else "run"
        )
        _check_trainer(config.trainer)
        path = self.run_folder / "checkpoints" / f"{config.ckpt_path}.ckpt"
        if config.ckpt_path in ("best", "last") and (path.is_file() or not fits):
            if not path.is_file():
                raise ValueError(f"{path} does not exist: train first, or give the path of a checkpoint, or --weights")
            config.ckpt_path = str(path)
        elif not fits and not config.ckpt_path and not config.weights and config.model.class_path != "zoo.load":
            raise ValueError(
                f"{self.config.subcommand} of what? give --weights NAME, or --ckpt_path best (or last, or a file)"
            )
        given = _given(args, "model")
        if config.weights and given:
            raise ValueError(
                f"{given[0]} has no effect with --weights {config.weights}, which brings its own model; leave one of "
                "them out, "
                "or give the changes in a recipe: model: {class_path: zoo.load, init_args: {name: ..., overrides: "
                "{...}}}"
            )
        if config.weights and config.ckpt_path and not fits:
            raise ValueError(
                f"--weights {config.weights} and --ckpt_path {config.ckpt_path} are two models; give one of them"
            )
        self.checkpoint = None
        if config.ckpt_path and not (
            fits and config.ckpt_path == "last"
        ):  # without one Lightning says so and begins anew
            self.checkpoint = read_checkpoint(config.ckpt_path, resume=fits)
            config.ckpt_path = str(Path(config.ckpt_path).absolute())  # Lightning takes what begins with http for a URL
            _check_model(config.model, self.checkpoint, given, config.ckpt_path)
            if fits:
                _check_training(config, self.checkpoint, args)

    def instantiate_classes(self) -> None:
        """Builds everything; --weights takes the place of the model, and a checkpoint brings vocabulary and labels
        before the data is read.
        """
        super().instantiate_classes()
        if self.checkpoint:
            self.model.restore_assets(self.checkpoint)
            self.datamodule.changes_model = False
            self.checkpoint = None
        elif name := self._get(self.config, "weights"):
            self.model = load(name)
        self.model.training_settings = {name: self._get(self.config, name).as_dict() for name in TRAINING}
        for name, settings in self.model.training_settings.items():
            setattr(self.model, name, _builder(settings))
        parameter = torch.nn.Parameter(torch.zeros(1))
        self.model.lr_scheduler(self.model.optimizer([{"params": [parameter]}]))  # says what is wrong, early
        self.model.check_extras(self.config.subcommand, bool(self.trainer.limit_val_batches))

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Adds a CSV logger, checkpoints in a fixed place (for `--ckpt_path last`) and atomic writing of them."""
        config = self._get(self.config_init, "trainer")
        run = ConfigOfRun.folder = self.run_folder
        plugins, callbacks = _listed(config.plugins), _listed(config.callbacks)
        reader = next((plugin for plugin in plugins if isinstance(plugin, CheckpointIO)), AtomicCheckpointIO())
        if reader not in plugins:
            plugins.append(reader)
        callbacks += [RestoreEnds(reader), *([StopAtNaN()] if self.subcommand == "fit" else [])]
        folders = {run}
        if config.enable_checkpointing is not False and not config.fast_dev_run:
            if not any(isinstance(callback, Checkpoint) for callback in callbacks):
                callbacks.append(
                    ExactCheckpoints(filename="best", monitor="val/loss", save_last=True, enable_version_counter=False)
                )
            for callback in callbacks:
                if type(callback) in INEXACT:
                    rank_zero_info(f"{type(callback).__name__}: {INEXACT[type(callback)]}")
                if isinstance(callback, ModelCheckpoint):
                    callback.dirpath = str(callback.dirpath or run / "checkpoints")
                    folders.add(Path(callback.dirpath))
        chosen, about = precision.choose(
            config.precision,
            precision.device_type(config.accelerator),
            bool(_given(self._arguments, "trainer.precision")),
        )
        if about:
            rank_zero_info(about)
        logger = CSVLogger(run.parent, run.name) if config.logger in (None, True) else config.logger
        kwargs |= {"plugins": plugins, "callbacks": callbacks, "logger": logger, "precision": chosen}
        try:
            trainer = super().instantiate_trainer(**kwargs)
        except (
            TypeError,
            AssertionError,
            RuntimeError,
            KeyError,
            AttributeError,
            ImportError,
        ) as error:  # as Lightning meets a wrong setting
            raise ValueError(f"trainer: {error}") from error
        if (
            config.precision in (16, "16", "16-mixed") and trainer.strategy.root_device.type == "cpu"
        ):  # Lightning would take bf16-mixed
            raise ValueError(
                f"trainer.precision {config.precision} (fp16) needs a GPU; on the CPU use bf16-mixed or 32-true"
            )
        # Else Lightning repeats, in a run that is limited by steps, the end of the epoch from which it is resumed.
        trainer.fit_loop._iteration_based_training = lambda: False
        # In several processes it waits for the others, who may not come. See zoo/training/signals.py.
        trainer._signal_connector._sigterm_notifier_fn = lambda signum, _: None
        self._folders = folders
        return trainer

    def before_fit(self) -> None:
        """Takes the folder of the run, once nothing else can be wrong."""
        if self.trainer.global_rank == 0 and not is_fast_dev_run(self.trainer):
            self._take(self._folders)

    def _take(self, folders: set[Path]) -> None:
        """Locks the folders of a training, and keeps what an earlier one left there.

        Raises:
            ValueError: another training is at it, or was and is not resumed.
        """
        for folder in sorted(folders):
            if "://" in str(folder) or folder.parent in folders:
                continue
            folder.mkdir(parents=True, exist_ok=True)
            self.locks.append(FileLock(folder / ".lock"))
            try:
                self.locks[-1].acquire(WAIT)
            except Timeout as error:
                raise ValueError(
                    f"another training is writing to {folder}: wait for its end, or choose another place with "
                    "--trainer.default_root_dir"
                ) from error
            except NotImplementedError:
                rank_zero_info(
                    f"{folder} is on a file system without locks: take care that no other training writes to it"
                )
        for folder in folders:
            remove_leftovers(folder, ".ckpt")
        earlier = [
            folder
            for folder in sorted(folders)
            for place in (folder, folder / "checkpoints")
            if any(place.glob("*.ckpt"))
        ]
        if earlier and not self.config.fit.ckpt_path:
            raise ValueError(
                f"{earlier[0]} holds the checkpoints of an earlier run: resume it with --ckpt_path last, "
                "or move them away, or choose another place with --trainer.default_root_dir"
            )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _given(args: list[str], name: str) -> list[str]:
    """The options of the command line about a setting, e.g. `--model.dropout`."""
    options = [arg.split("=")[0] for arg in args if arg.startswith("--")]
    return [option for option in options if option == f"--{name}" or option.startswith(f"--{name}.")]


def _values(args: list[str], option: str) -> list[str]:
    """What the command line gives for an option, each time it does."""
    pairs = zip(args, [*args[1:], ""], strict=True)
    return [arg.partition("=")[2] or after for arg, after in pairs if arg == option or arg.startswith(f"{option}=")]


def _check_recipe(file: str) -> None:
    """Refuses what is no recipe, before anything in it is taken for a setting.

    Raises:
        ValueError: it is no text file with YAML settings. OSError: it cannot be read.
    """
    try:
        check_regular(file)
        found = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"--config {file}: there is no such file; give a recipe, e.g. recipes/NAME.yaml") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"--config {file}: byte {error.start:,} is not utf-8 text; give a recipe in YAML") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        what = getattr(error, "problem", None) or "a character that YAML does not allow"
        raise ValueError(
            f"--config {file}: {where}{what}; a recipe is YAML, and this is none, or is cut off"
        ) from error
    if not isinstance(found, dict):
        raise ValueError(f"--config {file}: expected settings like `model:` and `data:`; got {found!r:.50}")


def _check_trainer(config: Any) -> None:
    """Raises ValueError for settings of the trainer with which Lightning would fail later, or go wrong."""
    for name in ("accumulate_grad_batches", "check_val_every_n_epoch", "num_nodes", "log_every_n_steps"):
        least = int(name != "log_every_n_steps")
        if (value := config.get(name)) is not None and value < least:
            raise ValueError(f"trainer.{name} must be at least {least}; got {value}")
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


def _check_model(model: Any, checkpoint: dict[str, Any], given: list[str], path: str) -> None:
    """Checks that a checkpoint is of the model of the command line: the checkpoint's own arguments are used.

    Raises:
        ValueError: it is of another class, or the command line asks for another argument.
    """
    trained = dict(checkpoint["hyper_parameters"])
    class_path = trained.pop("_class_path")
    if model.class_path not in (class_path, "zoo.load"):
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


def _check_training(config: Any, checkpoint: dict[str, Any], args: list[str]) -> None:
    """Checks that a training is resumed with the optimiser and the schedule that it began with, which the checkpoint
    restores.

    Raises:
        ValueError: the command line asks for others.
    """
    began = checkpoint.get("zoo_training", {})
    for name in TRAINING:
        if (given := _given(args, name)) and (wanted := config[name].as_dict()) != began.get(name, wanted):
            raise ValueError(
                f"{given[0]}: {config.ckpt_path} was trained with {name} {_short(began[name])}, which cannot become "
                f"{_short(wanted)}; leave it out, or begin a new training"
            )


def _builder(settings: dict[str, Any]) -> Callable[..., Any]:
    """What builds an optimiser of parameters, or a schedule of an optimiser; unlike jsonargparse's it can be copied."""
    module, _, name = settings["class_path"].rpartition(".")
    return partial(getattr(importlib.import_module(module), name), **settings.get("init_args", {}))


def _short(settings: dict[str, Any]) -> str:
    arguments = ", ".join(f"{name} {value}" for name, value in settings.get("init_args", {}).items())
    return f"{settings['class_path'].rpartition('.')[2]} ({arguments})"


def run(args: list[str]) -> None:
    """Runs `fit`, `validate` or `test` with command-line arguments.

    Raises:
        ValueError: A setting is wrong; the message names it.
        SystemExit: A signal asked for the end, or another process of the run is gone.
    """
    # Scores are of all processes already; a mean of them would only round.
    warnings.filterwarnings("ignore", r"It is recommended to use `self\.log\(.*, sync_dist=True\)`")
    cli = TrainingCLI.__new__(TrainingCLI)  # known here while it is still at work
    with ending_by_signal(lambda number: _say_stopped(cli, args, number), lambda: _children(cli)):
        try:
            cli.__init__(args)
        except (ArgumentError, ValueError, OSError, MisconfigurationException) as error:
            raise _explained(error, cli, args) from error
        except Exception as error:
            if os.environ.get("ZOO_DEBUG"):
                raise
            if path := _restoring(cli):
                raise ValueError(f"{path} does not fit this training: {_first_line(error)}") from error
            if _is_of_lost_process(error):
                what = str(error).splitlines()[0][:200]
                sys.exit(
                    "zoo: error: another process of this run ended, so this one ends too; its own message says why "
                    f"({what})"
                )
            raise
        finally:
            for lock in getattr(cli, "locks", []):
                lock.release()


def _explained(error: Exception, cli: TrainingCLI, args: list[str]) -> Exception:
    """What is to be said of an error; if nothing can be written any more, what is left of the training."""
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    for cause in causes:  # a logger may have failed after a checkpoint did
        if isinstance(cause, NotWrittenError):
            cure = "make room" if is_full(cause.__cause__) else "make it writable"
            left = _left(cli, args)
            return ValueError(f"{cause}; {cure}{', then ' if left.startswith('resume') else '; '}{left}")
    if isinstance(error, OSError) and is_full(error):
        return ValueError(
            f"{error.filename or 'a file of this run'} could not be written ({error.strerror}); {_left(cli, args)}"
        )
    if isinstance(error, OSError):
        return error
    if isinstance(error, MisconfigurationException):
        return ValueError(str(error))
    path = _restoring(cli)
    return ValueError(f"{path}: " * bool(path) + _what_is_wrong(str(error)))


def _say_stopped(cli: TrainingCLI, args: list[str], number: int) -> None:
    left = f"; {_left(cli, args)}" if args[0] == "fit" else ""
    print(f"zoo: stopped by {signal.Signals(number).name}{left}", file=sys.stderr, flush=True)


def _left(cli: TrainingCLI, args: list[str]) -> str:
    """How a training that ends now is resumed."""
    callbacks = getattr(getattr(cli, "trainer", None), "callbacks", [])
    folders = [
        Path(callback.dirpath) for callback in callbacks if isinstance(callback, ModelCheckpoint) and callback.dirpath
    ]
    if any((folder / "last.ckpt").is_file() for folder in folders):
        return f"resume with: {_resume(args)}"
    return "no checkpoint was written yet, so the same command begins again"


def _resume(args: list[str]) -> str:
    before = [
        arg
        for n, arg in enumerate(args)
        if not arg.startswith("--ckpt_path") and (n == 0 or args[n - 1] != "--ckpt_path")
    ]
    return shlex.join(["zoo", *before, "--ckpt_path", "last"])


def _children(cli: TrainingCLI) -> list[subprocess.Popen]:
    """The processes that Lightning started for the run."""
    launcher = getattr(getattr(getattr(cli, "trainer", None), "strategy", None), "launcher", None)
    return getattr(launcher, "procs", [])


def _restoring(cli: TrainingCLI) -> str | None:
    """The checkpoint that is being taken in now."""
    trainer = getattr(cli, "trainer", None)
    return getattr(trainer.strategy.checkpoint_io, "restoring", None) if trainer else None


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _is_of_lost_process(error: Exception) -> bool:
    """Whether a collective operation failed; gloo has no error class of its own."""
    if not (isinstance(error, RuntimeError) and dist.is_initialized()):
        return False
    return isinstance(error, dist.DistError) or bool(re.search("by peer|Broken pipe", str(error)))


def _what_is_wrong(message: str) -> str:
    """The telling part of a message of jsonargparse, which is a page long."""
    noise = ("Does not validate against", "Subtypes:", "Errors:", "- Expected a <class 'NoneType'>", "Given value")
    lines = [line.strip() for line in message.splitlines()]
    kept = [line.removeprefix("- ").rstrip(":") for line in lines if line and not line.startswith(noise)]
    return re.sub(r'Parser key "([^"]+)"', r"\1", ": ".join(kept))
