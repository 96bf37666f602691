"""Dropout with one random byte per element; torch draws 24 bits per element, one element after the other."""

import torch
from torch import Tensor


def byte_dropout(x: Tensor, p: float) -> Tensor:
    """Zeroes elements with probability `p`, rounded to a multiple of 1/256, and scales the others by 1 / (1 - p)."""
    drop = min(255, max(1, round(p * 256)))
    draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device="cpu").random_(-(2**63), 2**63 - 1)
    keep = (draws.view(torch.uint8)[: x.numel()] >= drop).view(x.shape)
    return x * keep.to(x.dtype).mul_(256 / (256 - drop))
