"""Attention of every step to the L steps before it, for all steps at once and without a copy of any window.

What is attended to is one sequence of L + T - 1 steps: the L that came before the first of T queries, then the steps of the queries
themselves but the last, which no window holds. Distance d = 1 .. L means d steps back; a table of weights has the nearest step first.

Shapes: T queries, B batch, L window, K size of the scores, V size of the values.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.layers.elementwise import tanh_


def _wide(x: Tensor) -> Tensor:
    """At least fp32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _windows(x: Tensor, window: int) -> Tensor:
    """x (L + T - 1, B, K) -> a view (L, T, B, K), the farthest step first: entry (l, t) is step l + t."""
    return x.unfold(0, window, 1).movedim(-1, 0)


class _WindowScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, keys, v, window):
        hidden = tanh_(_wide(query) + _windows(_wide(keys).contiguous(), window))  # (L, T, B, K)
        ctx.save_for_backward(hidden, v)
        ctx.dtypes = query.dtype, keys.dtype
        with torch.autocast(hidden.device.type, enabled=False):
            return torch.matmul(hidden, v.to(hidden.dtype)).flip(0).movedim(0, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        hidden, v = ctx.saved_tensors
        grad = grad.movedim(-1, 0).flip(0)  # (L, T, B)
        d_v = torch.mv(hidden.flatten(0, 2).t(), grad.flatten())
        d_hidden = torch.mul(hidden, hidden).neg_().add_(1).mul_(v.to(hidden.dtype)).mul_(grad.unsqueeze(-1))
        window, steps = d_hidden.shape[:2]
        d_keys = d_hidden.new_zeros(window + steps - 1, *d_hidden.shape[2:])
        for n in range(window):
            d_keys[n : n + steps] += d_hidden[n]
        return d_hidden.sum(0).to(ctx.dtypes[0]), d_keys.to(ctx.dtypes[1]), d_v.to(v.dtype), None


def window_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """v^T tanh(query + key), at least in fp32, for each query and each step of its window.

    Args:
        query: (T, B, K).
        keys: (L + T - 1, B, K).
        v: (K,).

    Returns:
        (T, B, L) scores, the nearest step first.
    """
    return _WindowScore.apply(query, keys, v, len(keys) - len(query) + 1)


class _WindowSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights, values):
        ctx.save_for_backward(weights, values)
        steps, _, window = weights.shape
        values = _wide(values)
        out = torch.mul(values[window - 1 :], weights[..., 0, None])
        for d in range(1, window):
            out.addcmul_(values[window - 1 - d : window - 1 - d + steps], weights[..., d, None])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        weights, values = ctx.saved_tensors
        steps, _, window = weights.shape
        d_weights, d_values = torch.empty_like(weights), torch.zeros_like(values, dtype=grad.dtype)
        for d in range(window):
            seen = slice(window - 1 - d, window - 1 - d + steps)
            torch.sum(grad * values[seen], dim=-1, out=d_weights[..., d])
            d_values[seen].addcmul_(grad, weights[..., d, None])
        return d_weights, d_values.to(values.dtype)


def window_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Weighted sum over each window, at least in fp32: weights (T, B, L), the nearest step first, values (L + T - 1, B, V) -> (T, B, V)."""
    return _WindowSum.apply(weights, values)


def window_mask(known: Tensor, steps: int, window: int) -> Tensor:
    """Which steps of each window exist: known (B,) steps that came before the first query -> (T, B, L) bool, the nearest first."""
    before = torch.arange(steps, device=known.device).unsqueeze(1) + known  # (T, B) steps before each query
    return before.unsqueeze(-1) > torch.arange(window, device=known.device)
