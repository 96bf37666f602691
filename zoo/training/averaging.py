"""An exponential moving average (EMA) of the weights, which validation, checkpoints and the trained model take."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn


class EMAWeights(EMAWeightAveraging):
    """Lightning's average, which here is the current weights until it begins (`update_starting_at_step`), and keeps
    frozen weights as they are, to the bit.

    Lightning's own is the untrained weights so long: they are what it validates, saves, and ends a short training with.

    Args:
        device: of the average; None: the model's.
        use_buffers: average the buffers too.
        decay: share of the average that a step keeps.
        update_every_n_steps: optimizer steps between two updates.
        update_starting_at_step: step of the first update.
        update_starting_at_epoch: epoch of the first update.
        warmup: keep at most (1 + n) / (10 + n) at update n, so that the average is over about the last tenth of a
            training that is shorter than the horizon of `decay`. Without it the average hardly leaves the weights that
            a short training began with.
    """

    def __init__(
        self,
        device: torch.device | str | int | None = None,
        use_buffers: bool = True,
        decay: float = 0.999,
        update_every_n_steps: int = 1,
        update_starting_at_step: int | None = None,
        update_starting_at_epoch: int | None = None,
        warmup: bool = False,
    ) -> None:
        super().__init__(
            device, use_buffers, decay, update_every_n_steps, update_starting_at_step, update_starting_at_epoch
        )
        self._decay = None if warmup else decay  # of all updates
        if warmup:
            self._kwargs["avg_fn"] = _warmed_up(decay)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        model = self._average_model
        if stage != "fit" or model is None or (mean := model.avg_fn) is None:
            return
        if self._decay is not None and all(map(_is_usual, model.module.state_dict().values())):
            # one operation for all weights; the mean of equal numbers is exactly that number
            model.avg_fn, model.multi_avg_fn = None, get_ema_multi_avg_fn(self._decay)
        else:  # the mean of equal numbers is not quite that number
            model.avg_fn = lambda average, new, n: torch.where(average == new, new, mean(average, new, n))

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


def _warmed_up(decay: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The next average of (average, new weights, number n of earlier updates)."""

    @torch.no_grad()
    def mean(average: Tensor, new: Tensor, n: Tensor) -> Tensor:
        kept = ((1 + n) / (10 + n)).clamp(max=decay)
        return kept * average + (1 - kept) * new

    return mean


def _is_usual(values: Tensor) -> bool:
    """Whether torch's mean of equal numbers is that number: not for infinite ones, nor for integers."""
    return values.is_floating_point() and bool(values.isfinite().all())
