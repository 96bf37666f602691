"""When a fine-tuning ends: by the steps that its weights could learn from, not by epochs alone."""

import math
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from torch import Tensor

from zoo.training.monitored import check_known
from zoo.utils.numbers_given import check_at_least

ROUNDING = 1e-4  # of scores


class StopInTime(EarlyStopping):
    """Early stopping that suits a data set of any size: 90 photos make 3 steps per epoch, 30,000 texts a thousand.

    The training ends when the score has not improved for `patience` validations and `patience_steps` optimizer steps,
    and at the latest after `epochs` epochs or `steps` optimizer steps, whichever is later. The trainer's own
    `max_epochs` and `max_steps` remain hard limits.

    Args:
        monitor: the score, e.g. "val/loss".
        mode: "min" or "max", the direction in which it improves.
        patience: validations without improvement.
        patience_steps: optimizer steps without improvement.
        epochs: epochs after which a long training ends.
        steps: optimizer steps after which a short one ends.
        tie: a loss that decides between equal scores: while it falls, the score counts as improved. A score of whole
            answers, such as CIDEr-D or BLEU, may stay where it is for long if few answers are judged.
        perfect: score -> value from which it cannot improve, e.g. {"val/bleu": 100}. Once the best validation has one
            of them, `patience` validations without improvement are enough, whatever `patience_steps` and `tie` say.
    """

    def __init__(
        self,
        monitor: str,
        mode: str = "min",
        patience: int = 3,
        patience_steps: int = 0,
        epochs: int = 20,
        steps: int = 0,
        tie: str | None = None,
        perfect: dict[str, float] | None = None,
    ) -> None:
        check_at_least(patience=(patience, 1), patience_steps=(patience_steps, 0), epochs=(epochs, 1), steps=(steps, 0))
        super().__init__(monitor, patience=patience, mode=mode)
        self.patience_steps, self.epochs, self.steps = patience_steps, epochs, steps
        self.tie, self.perfect = tie, perfect or {}
        self._step = self._best_step = 0
        self._scores: dict[str, float] = {}
        self._tie_score, self._is_perfect = math.inf, False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends a resumed training that was over already."""
        self._end_if_over(trainer, trainer.current_epoch)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        self._end_if_over(trainer, trainer.current_epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        more = {"best_step": self._best_step, "tie_score": self._tie_score, "is_perfect": self._is_perfect}
        return {**super().state_dict(), **more}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._best_step = state_dict["best_step"]
        self._tie_score = state_dict.get("tie_score", math.inf)  # of a training begun before there were ties
        self._is_perfect = state_dict.get("is_perfect", False)

    def _end_if_over(self, trainer: Trainer, epochs: int) -> None:
        if epochs >= self.epochs and trainer.global_step >= self.steps:
            trainer.should_stop = True

    def _run_early_stopping_check(self, trainer: Trainer) -> None:
        known = trainer.callback_metrics
        for score in (self.monitor, self.tie):
            check_known(self, score, known)
        if self.monitor not in known:
            return  # max_steps ended the first epoch early, or there is no validation
        self._step = trainer.global_step
        self._scores = {name: value.item() for name, value in trainer.callback_metrics.items()}
        super()._run_early_stopping_check(trainer)

    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        equal = bool(current == self.best_score)
        stop, reason = super()._evaluate_stopping_criteria(current)
        loss = self._scores.get(self.tie or "", math.inf)
        if self.wait_count and equal and loss < self._tie_score and not self._is_perfect:
            self.wait_count, self.stopping_reason = 0, EarlyStoppingReason.NOT_STOPPED
            stop, reason = False, None
        if self.wait_count == 0:
            self._best_step, self._tie_score = self._step, loss
            reached = (self._scores.get(name, -math.inf) > value - ROUNDING for name, value in self.perfect.items())
            self._is_perfect = any(reached)
        early = self._step - self._best_step < self.patience_steps and not self._is_perfect
        if self.stopping_reason == EarlyStoppingReason.PATIENCE_EXHAUSTED and early:
            self.wait_count = self.patience - 1  # the next validation decides
            self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
            return False, None
        return stop, reason
