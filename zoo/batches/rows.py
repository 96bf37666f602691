"""Sub-batches."""

from collections.abc import Sequence

import torch
from torch import Tensor

Rows = slice | Sequence[int]


def members(lengths: Tensor, groups: Tensor) -> Tensor:
    """Indices of the members of some groups, for members that are numbered through all groups of `lengths` members."""
    first = (lengths.cumsum(0) - lengths)[groups]
    chosen = lengths[groups]
    # Number the members of the chosen groups from 0, then shift each group to where its members really are.
    moves = (first - (chosen.cumsum(0) - chosen)).repeat_interleave(chosen)
    return torch.arange(len(moves), device=moves.device) + moves
