"""tanh(x) as 2 sigmoid(2x) - 1: on a CPU torch's sigmoid takes a sixth of the time of its tanh."""

from typing import Any

import torch
from torch import Tensor

from zoo.layers.kernels import wide


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        found = torch.mul(x, 2, out=torch.empty_like(x, dtype=wide(x[:0]).dtype)).sigmoid_()
        found = torch.add(found.new_tensor(-1.0), found, alpha=2, out=found).to(x.dtype)
        ctx.save_for_backward(found)
        return found

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]  # torch declares any number
        return torch.ops.aten.tanh_backward(grad, *ctx.saved_tensors)


def tanh_by_sigmoid(x: Tensor) -> Any:
    """tanh(x), with an absolute error of two roundings of a number near 1."""
    return _Tanh.apply(x)
