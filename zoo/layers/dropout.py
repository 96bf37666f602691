"""Dropout of elements, per step or the same at all steps."""

from torch import Tensor, nn

from zoo.layers.kernels import usable
from zoo.layers.kernels.dropout import byte_dropout


class Dropout(nn.Module):
    """Zeroes elements with probability `p` in training and scales the others by 1 / (1 - p) (Srivastava et al. 2014).

    The CPU kernel rounds `p` to a multiple of 1/256.
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must be in [0, 1); got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        return byte_dropout(x, self.p) if usable("dropout", x) else nn.functional.dropout(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class LockedDropout(Dropout):
    """Dropout of the same elements at all steps of a sequence (Gal and Ghahramani 2016)."""

    def forward(self, x: Tensor) -> Tensor:
        """Steps first: (T, B, D) -> (T, B, D)."""
        return x * super().forward(x.new_ones(1, *x.shape[1:])) if self.training and self.p else x
