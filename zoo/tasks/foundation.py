"""The class from which `ZooModule` derives: Lightning's module, or a plain one in a process that only predicts.

Lightning imports torch._dynamo and torchmetrics, which takes longer than importing torch. `zoo predict` never trains,
so its process (zoo/utils/purpose.py) does without. Everywhere else a model is a LightningModule.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from zoo.tasks.checks import check_layer_name
from zoo.utils.purpose import predicts_only


class PredictionModule(nn.Module):
    """A module with those attributes of a LightningModule that predictions read. It asks its parameters for them.

    A layer with the name of a method would be hidden by it, so it is refused.

    Lightning's own know the module's calls of `to` only, and not that another one was moved of which it is a part.
    """

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        return next(self.parameters()).dtype

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Module | nn.Parameter) and name not in self.__dict__.get("_modules", ()):
            check_layer_name(self, name)
        super().__setattr__(name, value)


if TYPE_CHECKING or not predicts_only():
    from lightning.pytorch import LightningModule

    class Foundation(PredictionModule, LightningModule):  # pyright: ignore[reportIncompatibleMethodOverride]
        """A LightningModule."""

else:
    Foundation = PredictionModule
