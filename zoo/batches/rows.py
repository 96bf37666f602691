"""Some rows of a batch, and rows of similar size."""

from collections.abc import Sequence

import torch
from torch import Tensor

Rows = slice | Sequence[int]
WORDS_AT_ONCE = 20_000  # in one batch of texts that a user gives


def members(lengths: Tensor, groups: Tensor) -> Tensor:
    """Numbers of the members of some groups; the members are counted through all groups, which have `lengths`
    members.
    """
    first = (lengths.cumsum(0) - lengths)[groups]
    chosen = lengths[groups]
    # Members of the chosen groups are counted through from 0; each group is moved to where its members really are.
    moves = (first - (chosen.cumsum(0) - chosen)).repeat_interleave(chosen)
    return torch.arange(len(moves), device=moves.device) + moves


def groups_of_similar_size(sizes: list[int]) -> list[list[int]]:
    """Numbers of texts that are read together: similar in size, together at most WORDS_AT_ONCE words."""
    groups: list[list[int]] = []
    total = 0
    for n in sorted(range(len(sizes)), key=sizes.__getitem__):
        if not groups or total + sizes[n] > WORDS_AT_ONCE:
            groups.append([])
            total = 0
        groups[-1].append(n)
        total += sizes[n]
    return groups
