"""What a training writes down next to its checkpoints: one table of all its starts, learning curves, lines of a log."""

import csv
import io
import math
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from zoo.plots.curves import Curve, learning_curves
from zoo.utils.atomic import write_text
from zoo.utils.extras import missing

TABLE, PICTURE = "metrics.csv", "learning_curves.png"
LOSS = "val/loss"
DEFAULT_STEPS = 50  # of the Trainer, between two logs


class RunTable(Callback):
    """Writes runs/NAME/metrics.csv after each validation: the logs of all starts of a training as one table."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Logs the training loss at least once an epoch, unless the recipe says how often."""
        settings: Any = trainer  # whose type does not list this one
        if settings.log_every_n_steps == DEFAULT_STEPS:
            steps = trainer.num_training_batches / trainer.accumulate_grad_batches
            settings.log_every_n_steps = max(1, int(min(DEFAULT_STEPS, steps)))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            with suppress(OSError):  # the checkpoint that follows is what matters, and says it
                self._write(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._write(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        with suppress(OSError):  # the exception says more
            self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        logger = _table_logger(trainer)
        if logger is None or not trainer.is_global_zero:
            return
        logger.save()
        if rows := joined(Path(logger.root_dir)):
            names = sorted({name for row in rows for name in row} - {"epoch", "step"})
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, ["epoch", "step", *names])
            writer.writeheader()
            writer.writerows(rows)
            write_text(Path(logger.root_dir) / TABLE, text.getvalue())


class Lines(Callback):
    """Prints one short line after each validation, for logs in files, where a progress bar takes a line a step."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start = time.monotonic()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        scores = {name: value.item() for name, value in trainer.callback_metrics.items()}
        names = [name for name in scores if name == "train/loss" or name.startswith("val/")]
        order = sorted(names, key=lambda name: (name != "train/loss", name != LOSS))
        shown = "".join(f", {name} {scores[name]:.4f}" for name in order)
        where = f"epoch {trainer.current_epoch + 1:,}, step {trainer.global_step:,}"
        print(f"{where}{shown}, {time.monotonic() - self._start:,.0f} s", flush=True)


def is_terminal() -> bool:
    """Whether standard output, to which Lightning draws its progress bar, is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def joined(folder: Path) -> list[dict[str, str]]:
    """The rows of all starts of the training in a folder, in the order of their steps.

    A start that was resumed repeats the steps after the last checkpoint. Its rows take the place of those of the
    earlier starts, from its first step on.

    Args:
        folder: runs/NAME, with version_0/metrics.csv, version_1/metrics.csv and so on.
    """
    found: list[dict[str, str]] = []
    for start in sorted(folder.glob("version_*"), key=_number):
        if rows := _rows(start):
            first = min(int(row["step"]) for row in rows)
            found = [row for row in found if int(row["step"]) < first] + rows
    return found


def draw(trainer: Trainer, saving: ModelCheckpoint | None) -> Path | None:
    """Draws runs/NAME/learning_curves.png.

    Args:
        trainer: after the training.
        saving: what saved the best checkpoint, by a score of the validation.

    Returns:
        The picture; None without matplotlib, without a table, or if no curve has two points.
    """
    logger = _table_logger(trainer)
    if logger is None or missing("plots"):
        return None
    folder = Path(logger.root_dir)
    curves = _curves(joined(folder))
    if all(len(curve) < 2 for curve in curves.values()):
        return None
    monitor = (saving.monitor if saving else None) or LOSS
    score = monitor if monitor != LOSS else next((name for name in curves if name not in ("train/loss", LOSS)), None)
    best = None
    if saving and (watched := curves.get(monitor)):
        best = (max if saving.mode == "max" else min)(watched, key=lambda point: point[1])[0]
    losses = {name: curves[name] for name in ("train/loss", LOSS) if name in curves}
    scores = {score: curves[score]} if score in curves else {}
    return learning_curves(folder / PICTURE, losses, scores, best, folder.name)


def _table_logger(trainer: Trainer) -> CSVLogger | None:
    return next((logger for logger in trainer.loggers if isinstance(logger, CSVLogger)), None)


def _number(start: Path) -> int:
    number = start.name.removeprefix("version_")
    return int(number) if number.isdecimal() else -1


def _rows(start: Path) -> list[dict[str, str]]:
    """The rows of one start; none if it was `zoo validate` or `zoo test`, which have a setting `verbose`."""
    config, table = start / "config.yaml", start / TABLE
    if config.is_file() and re.search(r"^verbose:", config.read_text(encoding="utf-8"), re.MULTILINE):
        return []
    if not table.is_file():
        return []
    # A process that was killed while it wrote may leave half a line.
    whole, end, _ = table.read_text(encoding="utf-8").rpartition("\n")
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(whole + end, newline="")))
    return [row for row in rows if None not in row.values() and None not in row and row["step"].isdecimal()]


def _curves(rows: list[dict[str, str]]) -> dict[str, Curve]:
    """The losses and the scores of validation: number of optimizer steps and value; without NaN and infinity."""
    names = sorted({name for row in rows for name in row if name == "train/loss" or name.startswith("val/")})
    return {
        name: [
            (int(row["step"]) + 1, value) for row in rows if row.get(name) and math.isfinite(value := float(row[name]))
        ]
        for name in names
    }
