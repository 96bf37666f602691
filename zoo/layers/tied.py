"""An output layer with the matrix of an embedding (Press and Wolf 2017, arXiv:1608.05859)."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class TiedOutput(nn.Module):
    """A module whose `output` layer may have the matrix of its `table`, and keeps it.

    torch makes two parameters of it where it replaces parameters: in `to_empty` after a construction on the device
    "meta", and in `load_state_dict(..., assign=True)`. Both would be trained on their own.
    """

    output: nn.Linear
    tied_to = "table"  # attribute that holds the embedding

    def __init__(self):
        super().__init__()
        self.was_tied = False
        self.register_load_state_dict_post_hook(_tie_again)  # after the layers have their new parameters

    @property
    def is_tied(self) -> bool:
        """Whether both layers have the same matrix."""
        weight = getattr(self.output, "weight", None)
        return weight is not None and weight is getattr(getattr(self, self.tied_to), "weight", None)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self.was_tied = self.is_tied
        found = super()._apply(fn, recurse)
        _tie_again(self)
        return found

    def _load_from_state_dict(self, state_dict: Any, *others: Any, **more: Any) -> None:
        self.was_tied = self.is_tied
        super()._load_from_state_dict(state_dict, *others, **more)


def _tie_again(module: TiedOutput, *_: Any) -> None:
    if module.was_tied:
        module.output.weight = getattr(module, module.tied_to).weight
