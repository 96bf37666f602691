"""An exponential moving average (EMA) of the weights, which validation, checkpoints and the trained model take."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging


class EMAWeights(EMAWeightAveraging):
    """Lightning's average, which here is the current weights until it begins (`update_starting_at_step`), and keeps
    frozen weights as they are, to the bit.

    Lightning's own is the untrained weights so long: they are what it validates, saves, and ends a short training with.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        model = self._average_model
        if stage == "fit" and model is not None and (mean := model.avg_fn) is not None:
            # the mean of equal numbers is not quite that number
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
