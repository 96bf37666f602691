"""Training until a score stops rising: the learning rate falls step by step, then the training ends."""

from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from torch import Tensor

from zoo.training.monitored import check_known
from zoo.utils.numbers_given import check_at_least


class HalveThenStop(EarlyStopping):
    """Halves the learning rate when the score has not improved for `patience` validations, and at last stops.

    The training stops once the rate was halved `halvings` times and the score did still not improve. An improvement
    starts the count of halvings again, at the rate that was reached. The schedule of the recipe stays: its peak rate is
    what is halved, so a warm-up followed by a constant rate is the usual one (`WarmupCosine` without `total_steps`).

    Args:
        monitor: the score, e.g. "val/bleu".
        mode: "min" or "max", the direction in which it improves.
        patience: validations without improvement before the rate is halved, or the training stops.
        halvings: halvings without improvement before it stops.
        factor: what a halving multiplies the rate by.
        min_delta: an improvement counts if it is larger than this, in units of the score.
    """

    def __init__(
        self,
        monitor: str,
        mode: str = "min",
        patience: int = 2,
        halvings: int = 3,
        factor: float = 0.5,
        min_delta: float = 0.0,
    ) -> None:
        check_at_least(patience=(patience, 1), halvings=(halvings, 0), min_delta=(min_delta, 0))
        if not 0 < factor < 1:
            raise ValueError(f"factor must be between 0 and 1; got {factor}")
        super().__init__(monitor, min_delta=min_delta, patience=patience, mode=mode)
        self.halvings, self.factor = halvings, factor
        self._halved = 0  # since the last improvement
        self._due = False

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "halved": self._halved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._halved = state_dict["halved"]

    def _run_early_stopping_check(self, trainer: Trainer) -> None:
        check_known(self, self.monitor, trainer.callback_metrics)
        if self.monitor not in trainer.callback_metrics:
            return  # max_steps ended the first epoch early, or there is no validation
        super()._run_early_stopping_check(trainer)
        if self._due:
            self._due = False
            _scale_rates(trainer, self.factor)

    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        stop, reason = super()._evaluate_stopping_criteria(current)
        if not stop and self.wait_count == 0:
            self._halved = 0
        if self.stopping_reason != EarlyStoppingReason.PATIENCE_EXHAUSTED or self._halved == self.halvings:
            return stop, reason
        self._halved += 1
        self._due, self.wait_count = True, 0
        self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
        return False, None


def _scale_rates(trainer: Trainer, factor: float) -> None:
    """Multiplies the peak rates and those of the next step; both are in the checkpoints, so a resumed run has them."""
    for config in trainer.lr_scheduler_configs:
        for schedule in _parts(config.scheduler):
            for name in ("base_lrs", "max_lrs"):
                if rates := getattr(schedule, name, None):
                    setattr(schedule, name, [factor * rate for rate in rates])
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            for name in ("lr", "initial_lr", "max_lr", "min_lr"):  # OneCycleLR keeps its rates here
                if name in group:
                    group[name] *= factor


def _parts(schedule: Any) -> Iterator[Any]:
    """A schedule, and those that it is made of, as SequentialLR is."""
    yield schedule
    for part in getattr(schedule, "_schedulers", []):
        yield from _parts(part)
