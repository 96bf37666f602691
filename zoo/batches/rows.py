"""Sub-batches, and batches of rows of similar size."""

from collections.abc import Sequence

import torch
from torch import Tensor

Rows = slice | Sequence[int]
WORDS_AT_ONCE = 20_000  # in one batch of a user's texts


def members(lengths: Tensor, groups: Tensor) -> Tensor:
    """Indices of the members of some groups, for members that are numbered through all groups of `lengths` members."""
    first = (lengths.cumsum(0) - lengths)[groups]
    chosen = lengths[groups]
    # Number the members of the chosen groups from 0, then shift each group to where its members really are.
    moves = (first - (chosen.cumsum(0) - chosen)).repeat_interleave(chosen)
    return torch.arange(len(moves), device=moves.device) + moves


def groups_of_similar_size(sizes: list[int]) -> list[list[int]]:
    """Indices of texts to read together: similar in size, at most WORDS_AT_ONCE words in all."""
    groups: list[list[int]] = []
    total = 0
    for n in sorted(range(len(sizes)), key=sizes.__getitem__):
        if not groups or total + sizes[n] > WORDS_AT_ONCE:
            groups.append([])
            total = 0
        groups[-1].append(n)
        total += sizes[n]
    return groups
