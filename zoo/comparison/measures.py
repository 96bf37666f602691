"""The speed of a training, and its validation curve over steps and time."""

import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from zoo.comparison.files import TRAINING
from zoo.comparison.tasks.known import task_of
from zoo.training.checkpoints import is_fast_dev_run
from zoo.utils.atomic import write_text
from zoo.utils.memory import peak_memory

WARM_UP = 20  # first steps of a process that are not timed


def clock(device: str) -> Callable[[], float]:
    """Seconds: with one CPU thread this process's processor time, without waiting for other work, else real time."""
    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


class TrainingMeter(Callback):
    """Times training steps and writes training.json into the run's folder at the end of training.

    A step lasts from the end of the previous one to its own end, including the loading of its batch. Validation and
    checkpoints are excluded, and from the speed the first steps of each process. Each validation gets the steps and the
    seconds of training so far. It continues after an interruption. Time is that of `clock`.
    """

    def __init__(self) -> None:
        self.rates: list[float] = []  # tokens per second, of each step
        self.epochs: list[dict[str, float | None]] = []  # validation scores
        self.seconds, self.memory, self.tokens = 0.0, 0.0, 0
        self.training_seconds = 0.0
        self._last: float | None = None
        self._steps = 0
        self._device, self._clock = torch.device("cpu"), time.perf_counter
        self._started = self._mark = self._clock()

    def state_dict(self) -> dict[str, Any]:
        return {
            "rates": self.rates,
            "epochs": self.epochs,
            "seconds": self._elapsed(),
            "memory": self._peak(),
            "tokens": self.tokens,
            "training_seconds": self.training_seconds,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rates, self.epochs = list(state_dict["rates"]), list(state_dict["epochs"])
        self.seconds, self.memory, self.tokens = state_dict["seconds"], state_dict["memory"], state_dict["tokens"]
        self.training_seconds = state_dict["training_seconds"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._device, self._clock = pl_module.device, clock(pl_module.device.type)
        self._started = self._mark = self._clock()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._last, self._mark = None, self._clock()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        tokens, now = self._read(pl_module, batch), self._clock()
        self._steps += 1
        self.tokens += tokens
        if self._last is not None and now > self._last and self._steps > WARM_UP:  # some clocks are coarse
            self.rates.append(tokens / (now - self._last))
        self.training_seconds += now - self._mark
        self._last = self._mark = now

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._last, self._mark = None, self._clock()
        if not trainer.sanity_checking:
            scores = {
                key.removeprefix("val/"): float(x)
                for key, x in trainer.callback_metrics.items()
                if key.startswith("val/")
            }
            finite = {key: value if math.isfinite(value) else None for key, value in scores.items()}
            self.epochs.append({"step": trainer.global_step, "seconds": round(self.training_seconds, 2), **finite})

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        report = {
            "epochs": trainer.current_epoch,
            "steps": trainer.global_step,
            "tokens": self.tokens,
            "seconds": round(self._elapsed(), 1),
            "training_seconds": round(self.training_seconds, 2),
            "tokens_per_second": round(statistics.median(self.rates), 1) if self.rates else None,
            "peak_memory_mb": round(self._peak(), 1) or None,
            "validation": self.epochs,
        }
        if trainer.is_global_zero and not is_fast_dev_run(trainer):
            write_text(Path(trainer.default_root_dir) / TRAINING, json.dumps(report, indent=2) + "\n")

    def _read(self, model: Any, batch: Any) -> int:
        return task_of(type(model), model.config).tokens(batch)

    def _elapsed(self) -> float:
        return self.seconds + self._clock() - self._started

    def _peak(self) -> float:
        """Peak MB: of the GPU's tensors, or of the whole process on a CPU; 0 if the system does not say."""
        if self._device.type == "cuda":
            return max(self.memory, torch.cuda.max_memory_allocated(self._device) / 1e6)
        return max(self.memory, (peak_memory() or 0) / 1e6)
