"""`--log tensorboard` and `--log wandb`: loggers in addition to the table, with their files next to the checkpoints."""

import os
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger

from zoo.utils.extras import LOGGERS, require


def check(log: str | None) -> list[str]:
    """The names in `--log A` or `--log A,B`.

    Raises:
        ValueError: one is unknown, or its package is missing.
    """
    names = log.split(",") if log else []
    for name in names:
        if name not in LOGGERS:
            raise ValueError(f"--log must be one of {', '.join(LOGGERS)}, or several joined by commas; got {log!r}")
        require(name, f"--log {name}")
    return names


def loggers(log: str | None, run: Path, step: int | None) -> list[Logger]:
    """The loggers that `--log` asks for.

    Args:
        log: its value.
        run: folder of the run.
        step: the one that the training is resumed from, if it is: TensorBoard then hides the later steps of the earlier
            start.
    """
    made: list[Logger] = []
    for name in check(log):
        if name == "tensorboard":
            # one folder for all starts, so that a resumed training is one curve
            options: dict[str, Any] = {} if step is None else {"purge_step": step}
            made.append(TensorBoardLogger(run, None, "tensorboard", default_hp_metric=False, **options))
        else:
            project = os.environ.get("WANDB_PROJECT", "attention-zoo")
            made.append(WandbLogger(name=run.name, save_dir=run, project=project))
    return made
