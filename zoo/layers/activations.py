"""Nonlinear functions."""

import torch
from torch import Tensor

from zoo.layers.kernels import usable
from zoo.layers.kernels.tanh import tanh_by_sigmoid

_WORTH_A_KERNEL = 2**13  # elements; fewer are not worth three calls instead of one


def tanh(x: Tensor) -> Tensor:
    """torch.tanh(x)."""
    return tanh_by_sigmoid(x) if x.numel() >= _WORTH_A_KERNEL and usable("tanh", x) else torch.tanh(x)
