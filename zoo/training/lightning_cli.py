"""`zoo fit | validate | test`: LightningCLI over recipes, with defaults that make a run resumable."""

import os
import sys
from argparse import ArgumentError
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, EMAWeightAveraging, ModelCheckpoint, ProgressBar
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

from zoo.registry import load, register
from zoo.tasks.base import ZooModule
from zoo.tasks.forked import is_forked
from zoo.tasks.language_modelling import LanguageModelModule
from zoo.tasks.optimizer import AdamW, WarmupCosine
from zoo.tasks.scored import ScoredModule
from zoo.training import precision
from zoo.training.checkpoints import (
    AtomicCheckpointIO,
    ExactCheckpoints,
    StopAtNaN,
    is_fast_dev_run,
    read_checkpoint,
)
from zoo.training.checks import (
    TRAINING,
    ask_for_data,
    begins_with,
    check_data,
    check_model,
    check_task,
    check_trainer,
    check_training,
    check_vocabulary,
    given_options,
    given_values,
    keep_settings,
    read_recipe,
    whole_batches,
)
from zoo.training.endings import children, explained, first_line, is_of_lost_process, restoring, say_stopped
from zoo.training.loggers import check, loggers
from zoo.training.logs import Lines, RunTable, is_terminal
from zoo.training.quiet import quiet
from zoo.training.report import Report
from zoo.training.sharding import strategy
from zoo.training.signals import ending_by_signal
from zoo.utils.atomic import remove_leftovers, write_text
from zoo.utils.continuous_cache import ContinuousCache
from zoo.utils.modules import load_class
from zoo.utils.search_options import SearchSettings

INEXACT = {  # callbacks of Lightning, and what to take instead
    EMAWeightAveraging: "until it begins it is the untrained weights; zoo.training.averaging.EMAWeights follows",
    ModelCheckpoint: "a training is not resumed to the bit; it is with zoo.training.checkpoints.ExactCheckpoints",
}
WAIT = 6.0  # seconds for the worker processes of a killed training, which hold its lock a little longer


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

    Attributes:
        typed: what the user wrote for the arguments, if it was something else.
    """

    typed: list[str] | None = None

    def __init__(self, args: list[str], callbacks: Sequence[Callback] = ()) -> None:
        self._arguments, self._more_callbacks = args, callbacks
        self.locks: list[FileLock] = []
        strict = {"exit_on_error": False, "allow_abbrev": False}  # zoo.cli prints one line instead of the usage
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

    def subcommands(self) -> dict[str, set[str]]:  # pyright: ignore[reportIncompatibleMethodOverride]  # static there
        """The one asked for; building the parsers of all would take longer than the rest of the start."""
        return {name: skip for name, skip in LightningCLI.subcommands().items() if name == self._arguments[0]}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Adds --weights, --cache, --log, --stages, --optimizer, --lr_scheduler; of scores --precision, --search."""
        parser.add_argument("--weights", type=str | None, help="a pretrained name instead of the recipe's fresh model")
        parser.add_argument(
            "--cache", type=ContinuousCache | None, help="a continuous cache for the perplexity of language models"
        )
        parser.add_argument("--log", type=str | None, help="tensorboard or wandb, in addition to metrics.csv")
        if self._arguments[0] != "fit":
            parser.add_argument("--precision", type=str, default="fp32", help="of the scores: fp32 or bf16")
            parser.add_argument(
                "--search",
                type=SearchSettings | None,
                help="how outputs to be scored are searched for",
            )
        # of a bare list jsonargparse leaves the items as they are: classes named in them are for later trainings
        parser.add_argument("--stages", type=list | None, help="for `zoo rebuild`; not used here")
        for name, kind, usual in (
            ("optimizer", OptimizerCallable, AdamW),
            ("lr_scheduler", LRSchedulerCallable, WarmupCosine),
        ):
            parser.add_argument(f"--{name}", type=kind, default={"class_path": f"{usual.__module__}.{usual.__name__}"})

    def parse_arguments(self, parser: LightningArgumentParser, args: list[str]) -> None:
        """Parses; `--ckpt_path best` or `last` becomes the file that an earlier fit wrote."""
        recipes = [read_recipe(file) for file in given_values(args, "--config")]
        self._whole_batches = whole_batches(recipes, args)
        try:
            self.config = parser.parse_args(args)
        except ArgumentError as error:
            ask_for_data(str(error))
            raise
        config = self.config[self.config.subcommand]
        fits = self.config.subcommand == "fit"
        overrides = config.get("model.init_args.overrides") or {}
        # what jsonargparse makes of `null`
        overrides |= {key: None for key, value in overrides.items() if value == "None"}
        self.run_folder = Path(config.trainer.default_root_dir or "runs") / (
            Path(str(config.config[0])).stem if config.config else "run"
        )
        check_trainer(config.trainer)
        check(config.log)
        path = self.run_folder / "checkpoints" / f"{config.ckpt_path}.ckpt"
        if config.ckpt_path in ("best", "last") and (path.is_file() or not fits):
            if not path.is_file():
                raise ValueError(f"{path} does not exist: {_instead_of(path)}")
            config.ckpt_path = str(path)
        elif fits and config.ckpt_path == "last":
            rank_zero_info(f"{path} does not exist yet: a new training begins")
        elif not fits and not config.ckpt_path and not config.weights and config.model.class_path != "zoo.load":
            raise ValueError(
                f"{self.config.subcommand} of what? give --weights NAME, or --ckpt_path best (or last, or a file)"
            )
        given = given_options(args, "model")
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
        if config.weights and config.model.class_path == "zoo.load":  # the recipe's own need not exist yet
            config.model.init_args.name = config.weights
            if not fits:  # they are settings of a training
                config.model.init_args.overrides = None
        check_data(config.data, self.config.subcommand)
        if begins_with(config.model, config.weights):
            check_vocabulary(config.data, args)
        self.checkpoint = None
        # without one Lightning says so and begins anew
        if config.ckpt_path and not (fits and config.ckpt_path == "last"):
            self.checkpoint = read_checkpoint(config.ckpt_path, resume=fits)
            config.ckpt_path = str(Path(config.ckpt_path).absolute())  # Lightning takes what begins with http for a URL
            check_model(config.model, self.checkpoint, given, config.ckpt_path)
            if fits:
                check_training(config, self.checkpoint, args)
                keep_settings(config, self.checkpoint)

    def instantiate_classes(self) -> None:
        """Builds everything; --weights takes the place of the model, and a checkpoint brings vocabulary and labels
        before the data is read.
        """
        try:
            super().instantiate_classes()
        except ValueError:
            check_task(self._get(self.config, "model"), self._get(self.config, "data"))  # it may be the reason
            raise
        register(type(self.model))  # a recipe may name a class of the user, whose checkpoints are then the user's too
        if self.checkpoint:
            self.model.restore_assets(self.checkpoint)
            self.datamodule.changes_model = False
            self.checkpoint = None
        elif (name := self._get(self.config, "weights")) and self._get(self.config, "model").class_path != "zoo.load":
            self.model = load(name)
        training = {name: self._get(self.config, name).as_dict() for name in TRAINING}
        for name, settings in training.items():
            setattr(self.model, name, _builder(settings))
        began_with = begins_with(self._get(self.config, "model"), self._get(self.config, "weights"))
        model = self._get(self.config, "model").as_dict()
        self.model.training_settings = {**training, "weight": began_with, "model": model}
        if self.subcommand != "fit":
            self.model.precision = self._get(self.config, "precision")
            if settings := self._get(self.config_init, "search"):
                self._search_by(settings)
        if cache := self._get(self.config_init, "cache"):
            self._give_cache(cache)
        if check := getattr(self.datamodule, "check_task", None):
            check(self.model)
        parameter = torch.nn.Parameter(torch.zeros(1))
        self.model.lr_scheduler(self.model.optimizer([{"params": [parameter]}]))  # says what is wrong, early
        self.model.check_extras(self.config.subcommand, bool(self.trainer.limit_val_batches), self.datamodule)

    def _give_cache(self, cache: ContinuousCache) -> None:
        if not isinstance(self.model, LanguageModelModule):
            raise ValueError(f"--cache is for language models; {type(self.model).__name__} is not one: leave it out")
        self.model.cache = cache

    def _search_by(self, settings: SearchSettings) -> None:
        if not isinstance(self.model, ScoredModule) or "beam_size" not in self.model.config:
            name = type(self.model).__name__
            raise ValueError(f"--search is for scores of translations and captions; {name} has none: leave it out")
        self.model.search_settings = settings

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Adds a CSV logger, checkpoints in a fixed place (for `--ckpt_path last`) and atomic writing of them."""
        config = self._get(self.config_init, "trainer")
        run = ConfigOfRun.folder = self.run_folder
        self.report = Report(self._pretrained())
        plugins, callbacks = _listed(config.plugins), _listed(config.callbacks)
        reader = next((plugin for plugin in plugins if isinstance(plugin, CheckpointIO)), AtomicCheckpointIO())
        if reader not in plugins:
            plugins.append(reader)
        fits = self.subcommand == "fit"
        last = [StopAtNaN(), self.report] if fits else []
        callbacks += [*self._more_callbacks, RestoreEnds(reader), *last]
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
            bool(given_options(self._arguments, "trainer.precision")),
        )
        if about:
            rank_zero_info(about)
        tables = [CSVLogger(run.parent, run.name)] if config.logger in (None, True) else _listed(config.logger or None)
        step = self.checkpoint["global_step"] if self.checkpoint and fits else None
        logger = [*tables, *loggers(self._get(self.config, "log"), run, step)] or False
        if fits:
            callbacks.append(RunTable())  # after the checkpoints, so that it never delays one
        bars = any(isinstance(callback, ProgressBar) for callback in callbacks)
        if config.enable_progress_bar is None and not bars and not is_terminal():
            kwargs["enable_progress_bar"] = False
            callbacks += [Lines()] if fits else []
        kwargs |= {"plugins": plugins, "callbacks": callbacks, "logger": logger, "precision": chosen}
        if config.enable_model_summary is None:
            kwargs["enable_model_summary"] = False  # before_fit says in one line how large it is
        kwargs |= {"strategy": strategy(config.strategy), **self._whole_batches}
        if fits and self._pretrained() and config.num_sanity_val_steps is None:
            kwargs["num_sanity_val_steps"] = -1  # all of the validation, for the scores before the fine-tuning
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
        # Lightning would take bf16-mixed
        if config.precision in (16, "16", "16-mixed") and trainer.strategy.root_device.type == "cpu":
            raise ValueError(
                f"trainer.precision {config.precision} (fp16) needs a GPU; on the CPU use bf16-mixed or 32-true"
            )
        launcher = trainer.strategy.launcher
        if launcher and is_forked(trainer) and (fits or not launcher.is_interactive_compatible):
            raise ValueError(
                "trainer: in several processes that are copies of this one, the checkpoints and scores are lost; take "
                "--trainer.strategy ddp (in a notebook with !zoo), or --trainer.devices 1"
            )
        # Else Lightning repeats, in a run that is limited by steps, the end of the epoch from which it is resumed.
        trainer.fit_loop._iteration_based_training = lambda: False
        for loop in (trainer.validate_loop, trainer.test_loop):
            loop._print_results = partial(_print_others, trainer, loop._print_results)
        # In several processes it waits for the others, who may not come. See zoo/training/signals.py.
        trainer._signal_connector._sigterm_notifier_fn = lambda signum, _: None
        self._folders = folders
        return trainer

    def _pretrained(self) -> str | None:
        """The weights that a fine-tuning starts from; None if the training starts from scratch, or is resumed."""
        config = self.config[self.config.subcommand]
        return None if self.checkpoint else begins_with(config.model, config.weights)

    def after_fit(self) -> None:
        """Says what came of the training."""
        self.report.show(self.trainer, self.model, self.typed or self._arguments)

    def before_fit(self) -> None:
        """Takes the folder of the run, once nothing else can be wrong."""
        size = sum(parameter.numel() for parameter in self.model.parameters())
        rank_zero_info(f"{type(self.model).__name__} with {size:,} parameters")
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


def _print_others(trainer: Trainer, table: Callable[..., None], results: list[dict[str, Any]], stage: str) -> None:
    """Prints Lightning's table of scores for a model that prints none itself."""
    if not isinstance(trainer.lightning_module, (ScoredModule, LanguageModelModule)):
        table(results, stage)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _builder(settings: dict[str, Any]) -> Callable[..., Any]:
    """What builds an optimiser of parameters, or a schedule of an optimiser; unlike jsonargparse's it can be copied."""
    return partial(load_class(settings["class_path"]), **settings.get("init_args", {}))


def run(args: list[str], typed: list[str] | None = None, callbacks: Sequence[Callback] = ()) -> None:
    """Runs `fit`, `validate` or `test` with command-line arguments, and callbacks besides the recipe's.

    Args:
        args: The verb and its arguments.
        typed: What the user wrote for them, which the command that resumes repeats (default: the same).
        callbacks: More callbacks than those of the recipe.

    Raises:
        ValueError: A setting is wrong; the message names it.
        SystemExit: A signal asked for the end, or another process of the run is gone.
    """
    cli, typed = TrainingCLI.__new__(TrainingCLI), typed or args  # known here while it is still at work
    cli.typed = typed
    with quiet(), ending_by_signal(lambda number: say_stopped(cli, typed, number), lambda: children(cli)):
        try:
            cli.__init__(args, callbacks)
        except (ArgumentError, ValueError, OSError, MisconfigurationException) as error:
            raise explained(error, cli, typed) from error
        except Exception as error:
            if os.environ.get("ZOO_DEBUG"):
                raise
            if path := restoring(cli):
                raise ValueError(f"{path} does not fit this training: {first_line(error)}") from error
            if isinstance(error, RuntimeError) and str(error).startswith("Early stopping conditioned on"):
                raise ValueError(first_line(error).partition(": ")[2]) from error
            if type(error).__module__.startswith("wandb"):
                hint = "log in with `wandb login`, or set WANDB_MODE=offline"
                raise ValueError(f"--log wandb: {first_line(error)}; {hint}") from error
            if is_of_lost_process(error):
                what = str(error).splitlines()[0][:200]
                sys.exit(
                    "zoo: error: another process of this run ended, so this one ends too; its own message says why "
                    f"({what})"
                )
            raise
        finally:
            for lock in getattr(cli, "locks", []):
                lock.release()


def _instead_of(path: Path) -> str:
    """What to do if a checkpoint is not there."""
    last = path.with_name("last.ckpt")
    if last.is_file():
        return "no validation has chosen a best one yet; give --ckpt_path last"
    return "train first, or give the path of a checkpoint, or --weights"
