"""`zoo fit | validate | test`: LightningCLI over recipes, with defaults that make a run resumable."""

import os
import re
import sys
import threading
import warnings
import zipfile
from argparse import ArgumentError
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, EMAWeightAveraging, ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.io import CheckpointIO, TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from zoo.module import ZooModule
from zoo.registry import load
from zoo.utils.atomic import new_file

GRACE = 10.0  # seconds that a process goes on after the one that started it


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place, flushes it to the disk and renames it.

    Lightning's own writer moves a file over from the system's temporary folder, which copies, and so can leave half
    a checkpoint, when that is another file system.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Saves `checkpoint`; after a crash at any moment `path` is the old file or the new one."""
        if "://" in str(path):
            return super().save_checkpoint(checkpoint, path, storage_options)
        with new_file(path) as file:
            torch.save(checkpoint, file)

    def load_checkpoint(self, path: str | Path, *args: Any, **options: Any) -> dict[str, Any]:
        """Loads a checkpoint; what `--ckpt_path last` found is first looked at here."""
        _check_readable(path)
        return super().load_checkpoint(path, *args, **options)


class FollowingAverage(EMAWeightAveraging):
    """Is the current weights until the average begins (`update_starting_at_step`); keeps frozen weights as they are, to the bit.

    Lightning's own average is the untrained weights so long: they are what it validates, saves, and ends a short training with.
    """

    state_key = "EMAWeightAveraging"

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            mean = self._average_model.avg_fn
            # the mean of equal numbers is not quite that number
            self._average_model.avg_fn = lambda average, new, n: torch.where(average == new, new, mean(average, new, n))

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._follow(pl_module)
        super().on_validation_epoch_start(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._follow(pl_module)
        super().on_save_checkpoint(trainer, pl_module, checkpoint)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._follow(pl_module)
        super().on_train_end(trainer, pl_module)

    def _follow(self, pl_module: LightningModule) -> None:
        if self._average_model is not None and not self._average_model.n_averaged:
            self._average_model.module.load_state_dict(pl_module.state_dict())


class TrainingCLI(LightningCLI):
    """LightningCLI in subclass mode for ZooModule and LightningDataModule.

    A run lives in runs/<name of the recipe>/: checkpoints/ (the best and the last) and one folder of logs per start.
    What a recipe or the command line sets itself is left alone.
    """

    def __init__(self, args: list[str]) -> None:
        strict = {"exit_on_error": False}  # zoo.cli prints one line instead of the usage
        super().__init__(
            ZooModule,
            LightningDataModule,
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
        """Adds --weights."""
        parser.add_argument("--weights", type=str | None, help="a pretrained name instead of the recipe's fresh model")

    def parse_arguments(self, parser: LightningArgumentParser, args: list[str]) -> None:
        """Parses; `--ckpt_path best` or `last` of validate and test becomes the file that an earlier fit wrote."""
        self.config = parser.parse_args(args)
        config = self.config[self.config.subcommand]
        overrides = config.get("model.init_args.overrides") or {}
        overrides |= {key: None for key, value in overrides.items() if value == "None"}  # what jsonargparse makes of `null`
        self.run_folder = Path(config.trainer.default_root_dir or "runs") / (
            Path(str(config.config[0])).stem if config.config else "run"
        )
        if self.config.subcommand != "fit" and config.ckpt_path in ("best", "last"):
            path = self.run_folder / "checkpoints" / f"{config.ckpt_path}.ckpt"
            if not path.is_file():
                raise ValueError(f"{path} does not exist: train first, or give the path of a checkpoint, or --weights")
            config.ckpt_path = str(path)
        elif config.ckpt_path == "last" and (path := self.run_folder / "checkpoints" / "last.ckpt").is_file():
            config.ckpt_path = str(path)  # without one Lightning says so and begins anew
        elif self.config.subcommand != "fit" and not config.ckpt_path and not config.weights and config.model.class_path != "zoo.load":
            raise ValueError(f"{self.config.subcommand} of what? give --weights NAME, or --ckpt_path best (or last, or a file)")
        if config.ckpt_path:  # now, and not only after the data was prepared
            _check_readable(config.ckpt_path)

    def instantiate_classes(self) -> None:
        """Builds everything; --weights takes the place of the model, and a checkpoint brings vocabulary and labels before the data is read."""
        super().instantiate_classes()
        path = self._get(self.config, "ckpt_path")
        if name := self._get(self.config, "weights"):
            self.model = load(name)
        elif path and Path(path).is_file():
            self.model.on_load_checkpoint(torch.load(path, map_location="cpu", weights_only=True, mmap=True))
            self.datamodule.changes_model = False
        self.model.check_extras(self.subcommand, bool(self.trainer.limit_val_batches))

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Adds a CSV logger, checkpoints in a fixed place (for `--ckpt_path last`) and atomic writing of them."""
        config = self._get(self.config_init, "trainer")
        run = self.run_folder
        plugins, callbacks = _listed(config.plugins), _listed(config.callbacks)
        for callback in callbacks:
            if type(callback) is EMAWeightAveraging:
                callback.__class__ = FollowingAverage
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            plugins.append(AtomicCheckpointIO())
        if config.enable_checkpointing is not False and not config.fast_dev_run:
            if not any(isinstance(callback, Checkpoint) for callback in callbacks):
                callbacks.append(
                    ModelCheckpoint(filename="best", monitor="val/loss", save_last=True, enable_version_counter=False)
                )
            for callback in callbacks:
                if isinstance(callback, ModelCheckpoint) and callback.dirpath is None:
                    callback.dirpath = str(run / "checkpoints")
            if self.subcommand == "fit" and not self.config.fit.ckpt_path and any(run.glob("checkpoints/*.ckpt")):
                raise ValueError(
                    f"{run} holds the checkpoints of an earlier run: go on with --ckpt_path last, "
                    "or move them away, or choose another place with --trainer.default_root_dir"
                )
        logger = CSVLogger(run.parent, run.name) if config.logger in (None, True) else config.logger
        trainer = super().instantiate_trainer(**kwargs, plugins=plugins, callbacks=callbacks, logger=logger)
        if config.precision in (16, "16", "16-mixed") and trainer.strategy.root_device.type == "cpu":  # Lightning would take bf16-mixed
            raise ValueError(f"trainer.precision {config.precision} (fp16) needs a GPU; on the CPU use bf16-mixed or 32-true")
        return trainer


def _check_readable(path: str | Path) -> None:
    if Path(path).is_file() and not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a checkpoint, or is damaged")


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def run(args: list[str]) -> None:
    """Runs `fit`, `validate` or `test` with command-line arguments.

    Raises:
        ValueError: A setting is wrong; the message names it.
        SystemExit: Another process of the run is gone.
    """
    # Scores are of all processes already; a mean of them would only round.
    warnings.filterwarnings("ignore", r"It is recommended to use `self\.log\(.*, sync_dist=True\)`")
    try:
        with _ending_with_parent():
            TrainingCLI(args)
    except (ArgumentError, ValueError) as error:
        raise ValueError(_what_is_wrong(str(error))) from error
    except MisconfigurationException as error:
        raise ValueError(str(error)) from error
    except RuntimeError as error:
        if os.environ.get("ZOO_DEBUG") or not _is_of_lost_process(error):
            raise
        what = str(error).splitlines()[0][:200]
        sys.exit(f"zoo: error: another process of this run ended, so this one ends too; its own message says why ({what})")


def _is_of_lost_process(error: RuntimeError) -> bool:
    """Whether a collective operation failed; gloo has no error class of its own."""
    return dist.is_initialized() and (isinstance(error, dist.DistError) or bool(re.search("by peer|Broken pipe", str(error))))


@contextmanager
def _ending_with_parent() -> Iterator[None]:
    """Ends a process that another one started for the run soon after that one ended, even in the middle of a collective operation."""
    done, parent = threading.Event(), os.getppid()

    def watch() -> None:
        while not done.wait(1.0):
            if os.getppid() != parent and not done.wait(GRACE):
                print("zoo: error: the process that started this one ended, so this one ends too", file=sys.stderr, flush=True)
                os._exit(1)

    if "LOCAL_RANK" in os.environ:  # set by whatever starts the processes of a run
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _what_is_wrong(message: str) -> str:
    """The telling part of a message of jsonargparse, which is a page long."""
    noise = ("Does not validate against", "Subtypes:", "Errors:", "- Expected a <class 'NoneType'>", "Given value")
    lines = [line.strip() for line in message.splitlines()]
    kept = [line.removeprefix("- ").rstrip(":") for line in lines if line and not line.startswith(noise)]
    return re.sub(r'Parser key "([^"]+)"', r"\1", ": ".join(kept))
