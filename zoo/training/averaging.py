"""An exponential moving average (EMA) of the weights, which validation, checkpoints and the trained model take."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from zoo.utils.numbers_given import check_at_least


class EMAWeights(EMAWeightAveraging):
    """Lightning's average, which here is the current weights until it begins (`update_starting_at_step`), and keeps
    frozen weights as they are, to the bit.

    Lightning's own is the untrained weights so long: they are what it validates, saves, and ends a short training with.
    It also begins with the first step whatever `update_starting_at_epoch` says.

    Args:
        device: of the average; None: the model's.
        use_buffers: average the buffers too.
        decay: share of the average that a step keeps.
        update_every_n_steps: optimizer steps between two updates, at least 1.
        update_starting_at_step: no update before this step, counted from 0.
        update_starting_at_epoch: no update before this epoch, counted from 0.
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
        check_at_least(update_every_n_steps=(update_every_n_steps, 1))
        super().__init__(
            device, use_buffers, decay, update_every_n_steps, update_starting_at_step, update_starting_at_epoch
        )
        self._decay = None if warmup else decay  # of all updates
        if warmup:
            self._kwargs["avg_fn"] = _warmed_up(decay)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Copies the model.

        Raises:
            ValueError: some checkpoints would be without the average.
        """
        if stage == "fit" and any(getattr(one, "save_weights_only", False) for one in trainer.checkpoint_callbacks):
            raise ValueError(
                f"{type(self).__name__}: a checkpoint with save_weights_only is without the average of the weights; "
                "leave save_weights_only out, and store the model of the checkpoint with zoo export"
            )
        super().setup(trainer, pl_module, stage)
        model = self._average_model
        if stage != "fit" or model is None or (mean := model.avg_fn) is None:
            return
        if self._decay is not None and all(map(_is_usual, model.module.state_dict().values())):
            # one operation for all weights; the mean of equal numbers is exactly that number
            model.avg_fn, model.multi_avg_fn = None, get_ema_multi_avg_fn(self._decay)
        else:  # the mean of equal numbers is not quite that number
            model.avg_fn = lambda average, new, n: torch.where(average == new, new, mean(average, new, n))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.current_epoch >= (self.update_starting_at_epoch or 0):
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Does nothing: the last step was averaged, and the validation has judged the average as it is."""

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
