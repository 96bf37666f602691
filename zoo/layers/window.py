"""Attention of every step to the L previous steps, for all steps at once.

The memory is one sequence of L + T - 1 steps: the L before the first of T queries, then the steps of the queries except
the last, which is in no window. Distance d = 1 .. L means d steps back; a table of weights has the nearest step first.

Shapes: T queries, B batch, L window, K size of the scores, V size of the values.
"""

import torch
from torch import Tensor

from zoo.layers.kernels import wide


def window_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """v^T tanh(query + key), in at least fp32, for each query and each step of its window.

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
    """Weighted sum over each window, in at least fp32: weights (T, B, L), values (L + T - 1, B, V) -> (T, B, V)."""
    return (_windows(values, weights.size(-1)) * weights.flip(-1).unsqueeze(-1)).sum(2)


def _windows(steps: Tensor, window: int) -> Tensor:
    """(L + T - 1, B, K) -> (T, B, L, K), a view, in at least fp32, the farthest step first."""
    return wide(steps).unfold(0, window, 1).transpose(2, 3)


def window_mask(known: Tensor, steps: int, window: int) -> Tensor:
    """Which steps of each window exist, nearest first: known (B,) steps before the first query -> (T, B, L) bool."""
    before = torch.arange(steps, device=known.device).unsqueeze(1) + known  # (T, B) steps before each query
    return before.unsqueeze(-1) > torch.arange(window, device=known.device)


def last_steps(rows: Tensor, count: int, lengths: Tensor | None) -> Tensor:
    """The last `count` steps of each row, where `count` older ones precede T new ones.

    Args:
        rows: (B, count + T, ...).
        count: L.
        lengths: (B,) number of real ones of the T; all if not given.

    Returns:
        (B, L, ...).
    """
    if lengths is None:
        return rows[:, rows.size(1) - count :]
    here = torch.arange(len(lengths), device=lengths.device).unsqueeze(1)
    return rows[here, lengths.unsqueeze(1) + torch.arange(count, device=lengths.device)]
