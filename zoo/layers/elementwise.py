"""Elementwise functions that matter for speed in a loop."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


_MINUS_ONE = torch.tensor(-1.0, dtype=torch.float32, device="cpu")


def tanh_(x: Tensor) -> Tensor:
    """In-place tanh for tensors outside autograd. On CPU as 2 sigmoid(2x) - 1, several times faster than torch.tanh."""
    if x.is_cuda:
        return x.tanh_()
    return torch.add(_MINUS_ONE, x.mul_(2).sigmoid_(), alpha=2, out=x)


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = tanh_(x.clone())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return torch.addcmul(grad, grad * y, y, value=-1)


def tanh(x: Tensor) -> Tensor:
    """tanh(x), fast on CPU; equal to torch.tanh within 2e-7."""
    return _Tanh.apply(x)


def maxout(x: Tensor) -> Tensor:
    """Largest of each pair of neighbours (Goodfellow et al. 2013): (..., 2 D) -> (..., D)."""
    return x.unflatten(-1, (-1, 2)).amax(-1)
