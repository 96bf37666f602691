"""Dropout that does not wait for its random numbers."""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zeroes elements with probability `p` in training and scales the others by 1 / (1 - p) (Srivastava et al. 2014).

    On a CPU torch draws one number an element, which takes longer than everything else a small model does to it. Here one
    draw serves eight elements, a byte each; `p` is therefore rounded to a multiple of 1/256.
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must be in [0, 1); got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p)
        drop = min(255, max(1, round(self.p * 256)))
        draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), 2**63 - 1)
        keep = (draws.view(torch.uint8)[: x.numel()] >= drop).view(x.shape)
        return x * keep.to(x.dtype).mul_(256 / (256 - drop))

    def extra_repr(self) -> str:
        return f"p={self.p}"


class LockedDropout(Dropout):
    """Dropout that leaves out the same elements at all steps of a sequence (Gal and Ghahramani 2016)."""

    def forward(self, x: Tensor) -> Tensor:
        """Steps first: (T, B, D) -> (T, B, D)."""
        return x * super().forward(x.new_ones(1, *x.shape[1:])) if self.training and self.p else x
