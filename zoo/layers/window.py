"""Attention of every step to the L steps before it, for all steps at once.

What is attended to is one sequence of L + T - 1 steps: the L that came before the first of T queries, then the steps of
the queries themselves but the last, which no window holds. Distance d = 1 .. L means d steps back; a table of weights
has the nearest step first.

Shapes: T queries, B batch, L window, K size of the scores, V size of the values.
"""

import torch
from torch import Tensor

from zoo.layers.kernels import wide


def window_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """v^T tanh(query + key), at least in fp32, for each query and each step of its window.

    Args:
        query: (T, B, K).
        keys: (L + T - 1, B, K).
        v: (K,).

    Returns:
        (T, B, L) scores, the nearest step first.
    """
    hidden = torch.tanh(wide(query).unsqueeze(2) + _windows(keys, len(keys) - len(query) + 1))  # (T, B, L, K)
    with torch.autocast(hidden.device.type, enabled=False):
        return torch.matmul(hidden, wide(v)).flip(-1)


def window_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Weighted sum over each window, at least in fp32: weights (T, B, L), the nearest step first, values (L + T - 1, B,
    V) -> (T, B, V).
    """
    return (_windows(values, weights.size(-1)) * weights.flip(-1).unsqueeze(-1)).sum(2)


def _windows(steps: Tensor, window: int) -> Tensor:
    """(L + T - 1, B, K) -> (T, B, L, K), a view, at least in fp32, the farthest step first."""
    return wide(steps).unfold(0, window, 1).transpose(2, 3)


def window_mask(known: Tensor, steps: int, window: int) -> Tensor:
    """Which steps of each window exist: known (B,) steps that came before the first query -> (T, B, L) bool, the
    nearest first.
    """
    before = torch.arange(steps, device=known.device).unsqueeze(1) + known  # (T, B) steps before each query
    return before.unsqueeze(-1) > torch.arange(window, device=known.device)
