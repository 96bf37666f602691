"""Fine-tuning from a recipe: parts that stay frozen for a while, have their own learning rate, or begin weakened."""

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

    Parts are named by modules or parameters, e.g. "embedding" or "decoder.lstm"; "" is the whole model. If several
    names contain a parameter, the longest applies. All parameters are in the optimiser from the beginning, so a part
    that is unfrozen takes the schedule's current rate. (Lightning's BackboneFinetuning adds parameter groups later,
    which does not work with a schedule that is stepped after every batch.)

    Args:
        frozen_until: part -> epoch (from 0) from which it is trained; null: never.
        learning_rates: part -> peak learning rate, instead of the optimiser's.
        shrink: part -> factor of its weights at the beginning of a training for other labels. Weights that were
            trained for another task learn slowly at first; shrunk ones learn faster and keep their directions (Ash and
            Adams 2020, "On Warm-Starting Neural Network Training", arXiv:1910.08475, who add noise as well). Weights
            that keep their labels stay as they are.
        penalty: the highest coefficient of the loss term that keeps the attention hops of a model apart; models without
            such a term ignore it. The weights' own was chosen for the texts that they learnt from. Ten hops cannot be
            apart in a short text, so that a large coefficient makes this term most of the loss, and nothing is learnt.
    """

    def __init__(
        self,
        frozen_until: dict[str, int | None] | None = None,
        learning_rates: dict[str, float] | None = None,
        shrink: dict[str, float] | None = None,
        penalty: float | None = None,
    ) -> None:
        super().__init__()
        if penalty is not None and penalty < 0:
            raise ValueError(f"penalty must be at least 0; got {penalty}")
        self.penalty = penalty
        self.frozen_until, self.learning_rates = frozen_until or {}, learning_rates or {}
        self.shrink = shrink or {}
        for name, epoch in self.frozen_until.items():
            if epoch is not None and epoch < 0:
                raise ValueError(f"frozen_until must give epochs from 0, or null for never; got {epoch} for {name!r}")
        for name, rate in self.learning_rates.items():
            if rate <= 0:
                raise ValueError(
                    f"learning_rates must be above 0 (to freeze a part use frozen_until); got {rate} for {name!r}"
                )
        for name, factor in self.shrink.items():
            if not 0 < factor <= 1:
                raise ValueError(f"shrink must give factors above 0 and up to 1; got {factor} for {name!r}")
        self._trained: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Freezes what is never trained, shrinks, and sets rates and penalty, before the optimiser is built.

        Raises:
            ValueError: a name is not a part of the model, nothing is trained in the beginning, or the strategy
                cannot do it.
        """
        if stage != "fit":
            return
        super().setup(trainer, pl_module, stage)
        _set_rates(pl_module, self.learning_rates)
        if getattr(pl_module, "has_new_labels", False):
            self.shrink_parts(pl_module)
        config = getattr(pl_module, "config", {})
        if self.penalty is not None and "penalty" in config:
            config["penalty"] = min(self.penalty, config["penalty"])
        thaws = any(self.frozen_until.values())  # after epoch 0
        if (
            thaws
            and isinstance(trainer.strategy, DDPStrategy)
            and not trainer.strategy._ddp_kwargs.get("find_unused_parameters")
        ):
            raise ValueError(
                "frozen_until on several processes needs --trainer.strategy ddp_find_unused_parameters_true"
            )

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Removes the rates from the model: they belong to one training only."""
        _set_rates(pl_module, {})

    def freeze_before_training(self, pl_module: LightningModule) -> None:
        """Checks the names, and freezes what is never trained."""
        names = [name for name, _ in pl_module.named_parameters()]
        for prefix in (*self.frozen_until, *self.learning_rates, *self.shrink):
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
        """Freezes what is frozen now, also if training resumes within an epoch."""
        self._set(pl_module, trainer.current_epoch)

    def finetune_function(self, pl_module: LightningModule, epoch: int, optimizer: torch.optim.Optimizer) -> None:
        """Called at the start of an epoch: unfreezes what is due."""
        self._set(pl_module, epoch)

    @torch.no_grad()
    def shrink_parts(self, pl_module: LightningModule) -> None:
        """Multiplies the weights of the parts in `shrink`."""
        for name, parameter in pl_module.named_parameters():
            if (prefix := longest_prefix(name, self.shrink)) is not None:
                parameter.mul_(self.shrink[prefix])

    def _is_frozen(self, name: str, epoch: int) -> bool:
        prefix = longest_prefix(name, self.frozen_until)
        until = 0 if prefix is None else self.frozen_until[prefix]
        return until is None or epoch < until

    def _set(self, pl_module: LightningModule, epoch: int) -> None:
        # Only the named parts: the model itself may have frozen others.
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
