"""Sequences of different lengths without any padding.

Sequences are *flat*: the items of all sequences concatenated, (P, ...), with `lengths` (N,). A recurrence runs them
step by step: step t processes the sequences that have an item t, the longest first, so that they are the first rows of
the previous step. A backward direction does the same and reads each sequence from its end.

Shapes: N sequences, P items of all of them, D directions (1 or 2).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from zoo.layers.kernels import wide


class Packing(NamedTuple):
    """The order in which a recurrence reads flat sequences. A place is a number from 0 to P - 1 in that order.

    Attributes:
        counts: Number of active sequences at each step, never increasing; their sum is P.
        order: (D, P) the flat item at each place of each direction; None if the items already lie step after step.
        places: (D, P) the inverse, the place of each flat item; None likewise.
        last: (N,) the place of each sequence's final step, in either direction; -1 for an empty sequence.
        ranks: (N,) the sequences, the longest first.
    """

    counts: list[int]
    order: Tensor | None
    places: Tensor | None
    last: Tensor
    ranks: Tensor


def segment_ids(lengths: Tensor) -> Tensor:
    """Index of the sequence that each flat item belongs to: lengths (N,) -> (P,)."""
    return torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)


def to_padded(flat: Tensor, mask: Tensor) -> Tensor:
    """Moves flat items (P, ...) to the True places of mask (B, S), zeros elsewhere -> (B, S, ...)."""
    padded = flat.new_zeros(*mask.shape, *flat.shape[1:])
    padded[mask] = flat
    return padded


def pack(lengths: Tensor, directions: int = 2) -> Packing:
    """Plans a recurrence over flat sequences.

    Args:
        lengths: (N,) int64 number of items in each sequence; 0 is allowed.
        directions: 2 to also run from the end to the start.
    """
    owner = segment_ids(lengths)  # (P,)
    items = torch.arange(len(owner), device=lengths.device)
    position = items - (lengths.cumsum(0) - lengths)[owner]
    ranks = lengths.argsort(descending=True, stable=True)
    rank = torch.empty_like(ranks).scatter_(0, ranks, torch.arange(len(ranks), device=ranks.device))
    counts = torch.bincount(position) if len(owner) else lengths.new_zeros(0)
    offsets = counts.cumsum(0) - counts
    steps = torch.stack([position, lengths[owner] - 1 - position][:directions])  # (D, P)
    places = offsets[steps] + rank[owner] if len(owner) else steps
    order = torch.empty_like(places).scatter_(1, places, items.expand_as(places))
    last = lengths.new_full((len(lengths),), -1)
    real = lengths > 0
    last[real] = offsets[lengths[real] - 1] + rank[real]
    return Packing(counts.tolist(), order, places, last, ranks)


def step_major(steps: int, rows: int, device: torch.device) -> Packing:
    """The packing of `rows` sequences with `steps` items each that already lie step after step: (steps * rows, ...)."""
    ranks = torch.arange(rows, device=device)
    return Packing([rows] * steps, None, None, (steps - 1) * rows + ranks, ranks)


def segment_sum(x: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """Weighted sum over each flat sequence, in at least fp32; zeros for an empty one.

    x (P, D), weights (P,), lengths (N,) -> (N, D).
    """
    weighted = wide(x) * weights.unsqueeze(-1)
    return weighted.new_zeros(len(lengths), x.size(1)).index_add(0, segment_ids(lengths), weighted)


def segment_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """Softmax in at least fp32 over each flat sequence: scores (P,), lengths (N,) -> (P,)."""
    owner = segment_ids(lengths)
    scores = wide(scores)
    top = scores.new_full((len(lengths),), -torch.inf).scatter_reduce(0, owner, scores.detach(), "amax")
    weights = (scores - top[owner]).exp()
    return weights / weights.new_zeros(len(lengths)).index_add(0, owner, weights)[owner]
