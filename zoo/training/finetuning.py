"""What fine-tuning from a recipe needs beside Lightning's own callbacks: parts that stay frozen for a while, or learn
at their own rate.
"""

from typing import cast

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BaseFinetuning
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_info

from zoo.tasks.base import ZooModule
from zoo.tasks.optimizer import longest_prefix


class FineTuning(BaseFinetuning):
    """Freezes parts of a model until an epoch, and gives parts their own learning rate.

    Parts are named by modules or parameters, e.g. "embedding" or "decoder.lstm"; "" is the whole model. Where several
    names hold a parameter, the longest counts. Unlike Lightning's BackboneFinetuning, whose late groups of parameters a
    schedule that is stepped with every batch refuses, all parameters are in the optimiser from the beginning: a part
    that thaws takes the rate that the
    schedule has then.

    Args:
        frozen_until: part -> epoch (from 0) in which its training begins; null: never.
        learning_rates: part -> peak rate, in place of the optimiser's.
    """

    def __init__(
        self, frozen_until: dict[str, int | None] | None = None, learning_rates: dict[str, float] | None = None
    ) -> None:
        super().__init__()
        self.frozen_until, self.learning_rates = frozen_until or {}, learning_rates or {}
        for name, epoch in self.frozen_until.items():
            if epoch is not None and epoch < 0:
                raise ValueError(f"frozen_until must give epochs from 0, or null for never; got {epoch} for {name!r}")
        for name, rate in self.learning_rates.items():
            if rate <= 0:
                raise ValueError(
                    f"learning_rates must be above 0 (to freeze a part use frozen_until); got {rate} for {name!r}"
                )
        self._trained: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Freezes for good what is never trained, and hands the rates to the model, before the optimiser is built.

        Raises:
            ValueError: a name that is no part of the model, nothing to train at the beginning, or a strategy that
                cannot do it.
        """
        if stage != "fit":
            return
        super().setup(trainer, pl_module, stage)
        _set_rates(pl_module, self.learning_rates)
        thaws = any(self.frozen_until.values())  # at an epoch after the first
        if (
            thaws
            and isinstance(trainer.strategy, DDPStrategy)
            and not trainer.strategy._ddp_kwargs.get("find_unused_parameters")
        ):
            raise ValueError(
                "frozen_until on several processes needs --trainer.strategy ddp_find_unused_parameters_true"
            )

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Takes the rates away from the model: they are those of one training."""
        _set_rates(pl_module, {})

    def freeze_before_training(self, pl_module: LightningModule) -> None:
        """Checks the names, and freezes what is never trained."""
        names = [name for name, _ in pl_module.named_parameters()]
        for prefix in (*self.frozen_until, *self.learning_rates):
            if not any(longest_prefix(name, [prefix]) is not None for name in names):
                parts = ", ".join(dict.fromkeys(name.split(".")[0] for name in names))
                raise ValueError(
                    f"{type(pl_module).__name__} has no part {prefix!r} with parameters; its parts: {parts} (and "
                    "parts of these)"
                )
        if all(self._is_frozen(name, 0) for name in names):
            raise ValueError(
                "frozen_until leaves nothing to train in epoch 0; give one part the epoch 0, e.g. the last layer"
            )
        for name, parameter in pl_module.named_parameters():
            if (prefix := longest_prefix(name, self.frozen_until)) is not None and self.frozen_until[prefix] is None:
                parameter.requires_grad_(False)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Freezes what is frozen now; also after a training that is resumed within an epoch."""
        self._set(pl_module, trainer.current_epoch)

    def finetune_function(self, pl_module: LightningModule, epoch: int, optimizer: torch.optim.Optimizer) -> None:
        """Called when an epoch begins: thaws what is due."""
        self._set(pl_module, epoch)

    def _is_frozen(self, name: str, epoch: int) -> bool:
        prefix = longest_prefix(name, self.frozen_until)
        until = 0 if prefix is None else self.frozen_until[prefix]
        return until is None or epoch < until

    def _set(self, pl_module: LightningModule, epoch: int) -> None:
        # Only what is named: a model may have frozen other parts by itself.
        for name, parameter in pl_module.named_parameters():
            if longest_prefix(name, self.frozen_until) is not None:
                parameter.requires_grad_(not self._is_frozen(name, epoch))
        sizes = [(parameter.numel(), parameter.requires_grad) for parameter in pl_module.parameters()]
        trained = sum(size for size, trains in sizes if trains)
        if trained != self._trained:
            rank_zero_info(f"epoch {epoch}: {trained:,} of {sum(size for size, _ in sizes):,} parameters are trained")
            self._trained = trained


def _set_rates(pl_module: LightningModule, rates: dict[str, float]) -> None:
    # Hooks are declared for any module; the one that is trained here is the zoo's.
    cast(ZooModule, pl_module).learning_rates = rates
