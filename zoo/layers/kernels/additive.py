"""The additive score with a hand-written gradient, which keeps one tensor of (B, T, S, K) instead of three."""

import torch
from torch import Tensor

from zoo.layers.kernels import wide
from zoo.layers.kernels.cells import tanh_
from zoo.layers.kernels.function import gradients_of_plain, is_differentiated_again


def plain_additive_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """query (B, T, K), keys (B, S, K), v (K,) -> (B, T, S)."""
    hidden = torch.tanh(wide(query).unsqueeze(2) + wide(keys).unsqueeze(1))  # (B, T, S, K)
    with torch.autocast(hidden.device.type, enabled=False):
        return torch.matmul(hidden, wide(v))


class _AdditiveScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, keys, v):
        hidden = tanh_(wide(query).unsqueeze(2) + wide(keys).unsqueeze(1))
        ctx.save_for_backward(query, keys, v, hidden)
        with torch.autocast(hidden.device.type, enabled=False):
            return torch.matmul(hidden, wide(v))

    @staticmethod
    def backward(ctx, grad):
        query, keys, v, hidden = ctx.saved_tensors
        if is_differentiated_again():
            return tuple(gradients_of_plain(plain_additive_score, (query, keys, v), (grad,)))
        d_v = torch.einsum("btsk,bts->k", hidden, grad)
        d_hidden = torch.addcmul(grad.unsqueeze(-1), hidden * grad.unsqueeze(-1), hidden, value=-1).mul_(wide(v))
        return d_hidden.sum(2).to(query.dtype), d_hidden.sum(1).to(keys.dtype), d_v.to(v.dtype)


def additive_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """As `plain_additive_score`."""
    return _AdditiveScore.apply(query, keys, v)
