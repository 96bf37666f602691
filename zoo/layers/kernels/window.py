"""Attention of every step to the L steps before it without a copy of any window, with hand-written gradients.

Shapes: T queries, B batch, L window, K size of the scores, V size of the values.
"""

import torch
from torch import Tensor

from zoo.layers.kernels import wide
from zoo.layers.kernels.cells import tanh_
from zoo.layers.kernels.function import gradients_of_plain, is_differentiated_again


def plain_window_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """query (T, B, K), keys (L + T - 1, B, K), v (K,) -> (T, B, L), the nearest step first."""
    window = len(keys) - len(query) + 1
    hidden = torch.tanh(
        wide(query).unsqueeze(-1) + wide(keys).unfold(0, window, 1)
    )  # (T, B, K, L), the farthest step first
    return torch.einsum("tbkl,k->tbl", hidden, wide(v)).flip(-1)


def plain_window_sum(weights: Tensor, values: Tensor) -> Tensor:
    """weights (T, B, L), the nearest step first, values (L + T - 1, B, V) -> (T, B, V)."""
    windows = wide(values).unfold(0, weights.size(-1), 1)  # (T, B, V, L), the farthest step first
    return (windows * weights.flip(-1).unsqueeze(2)).sum(-1)


class _WindowScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, keys, v):
        window = len(keys) - len(query) + 1
        seen = wide(keys).contiguous().unfold(0, window, 1).movedim(-1, 0)  # (L, T, B, K), the farthest step first
        hidden = tanh_(wide(query) + seen)
        ctx.save_for_backward(query, keys, v, hidden)
        with torch.autocast(hidden.device.type, enabled=False):
            return torch.matmul(hidden, wide(v)).flip(0).movedim(0, -1)

    @staticmethod
    def backward(ctx, grad):
        query, keys, v, hidden = ctx.saved_tensors
        if is_differentiated_again():
            return tuple(gradients_of_plain(plain_window_score, (query, keys, v), (grad,)))
        grad = grad.movedim(-1, 0).flip(0)  # (L, T, B)
        d_v = torch.mv(hidden.flatten(0, 2).t(), grad.flatten())
        d_hidden = torch.mul(hidden, hidden).neg_().add_(1).mul_(wide(v)).mul_(grad.unsqueeze(-1))
        window, steps = d_hidden.shape[:2]
        d_keys = d_hidden.new_zeros(window + steps - 1, *d_hidden.shape[2:])
        for n in range(window):
            d_keys[n : n + steps] += d_hidden[n]
        return d_hidden.sum(0).to(query.dtype), d_keys.to(keys.dtype), d_v.to(v.dtype)


class _WindowSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights, values):
        ctx.save_for_backward(weights, values)
        steps, _, window = weights.shape
        values = wide(values)
        out = torch.mul(values[window - 1 :], weights[..., 0, None])
        for d in range(1, window):
            out.addcmul_(values[window - 1 - d : window - 1 - d + steps], weights[..., d, None])
        return out

    @staticmethod
    def backward(ctx, grad):
        weights, values = ctx.saved_tensors
        if is_differentiated_again():
            return tuple(gradients_of_plain(plain_window_sum, (weights, values), (grad,)))
        steps, _, window = weights.shape
        d_weights, d_values = torch.empty_like(weights), torch.zeros_like(values, dtype=grad.dtype)
        for d in range(window):
            seen = slice(window - 1 - d, window - 1 - d + steps)
            torch.sum(grad * values[seen], dim=-1, out=d_weights[..., d])
            d_values[seen].addcmul_(grad, weights[..., d, None])
        return d_weights, d_values.to(values.dtype)


def window_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """As `plain_window_score`."""
    return _WindowScore.apply(query, keys, v)


def window_sum(weights: Tensor, values: Tensor) -> Tensor:
    """As `plain_window_sum`."""
    return _WindowSum.apply(weights, values)
