"""Sinusoidal positions (Vaswani et al. 2017, section 3.5)."""

import math

import torch
from torch import Tensor


def positions(count: int, size: int, first: int | Tensor = 0, device: torch.device | None = None) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / D)), PE(pos, 2i + 1) = cos(same), from position `first`: (count, D)."""
    exact = torch.promote_types(torch.get_default_dtype(), torch.float32)  # bf16 knows few positions above 256
    rates = torch.exp(torch.arange(0, size, 2, dtype=exact, device=device) * (-math.log(10000) / size))
    angles = (torch.arange(count, device=device) + first).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :size]
