"""Measures of attention weights: how sharp they are, and how diagonal.

Shapes: T target tokens, S source tokens, in translation both with EOS; or T hops over S words of a text.
"""

import math
import statistics
from collections.abc import Iterable

import torch
from torch import Tensor

BAND = 0.1  # of the source length; at least one token


def attention_measures(attention: Tensor) -> dict[str, float] | None:
    """Measures of one text's weights (T, S), with each row divided by its sum; rows without weight are skipped.

    Returns:
        None if no row is left, else the means over the rows of

        entropy: -sum_s a_ts log a_ts, in nats.
        relative_entropy: the same divided by log S: 0 is one token, 1 is uniform (0 if S is 1).
        band: share of the weight on source tokens s (from 1, like t) with |t S / T - s| <= max(1, S / 10).
        uniform_band: `band` for uniform weights.
    """
    attention = attention.double()
    steps, length = attention.shape
    sums = attention.sum(-1)
    kept = sums > 0
    if not kept.any():
        return None
    weights = attention[kept] / sums[kept].unsqueeze(-1)
    entropy = -torch.special.xlogy(weights, weights).sum(-1).mean().item()
    t = torch.arange(1, steps + 1, dtype=torch.float64).unsqueeze(1)
    s = torch.arange(1, length + 1, dtype=torch.float64)
    near = ((t * length / steps - s).abs() <= max(1.0, BAND * length) + 1e-9).double()[kept]
    return {
        "entropy": abs(entropy),
        "relative_entropy": abs(entropy) / math.log(length) if length > 1 else 0.0,
        "band": (weights * near).sum(-1).mean().item(),
        "uniform_band": near.mean(-1).mean().item(),
    }


def mean_entropy(attentions: Iterable[Tensor | None]) -> dict[str, float] | None:
    """The entropies of `mean_attention_measures`, for attention without a diagonal."""
    found = mean_attention_measures(attentions)
    return found and {key: found[key] for key in ("entropy", "relative_entropy")}


def mean_attention_measures(attentions: Iterable[Tensor | None]) -> dict[str, float] | None:
    """Means over texts of `attention_measures`, rounded; None for a model without attention."""
    found = [attention_measures(weights) for weights in attentions if weights is not None and weights.numel()]
    found = [measures for measures in found if measures is not None]
    return {key: round(statistics.fmean(m[key] for m in found), 4) for key in found[0]} if found else None
