"""Agreement of two rankings: Kendall's tau-b, as Jain and Wallace 2019 (https://arxiv.org/abs/1902.10186) use it."""

import math

import torch
from torch import Tensor


def kendall_tau(first: Tensor, second: Tensor) -> float:
    """tau-b of two lists of N numbers: 1 for the same order, -1 for the opposite one, corrected for equal numbers.

    NaN if all numbers of a list are equal, or there are fewer than two.

    Args:
        first: (N,) float.
        second: (N,) float.
    """
    above = torch.ones(len(first), len(first), dtype=torch.bool).triu(1)
    a, b = (torch.sign(x.double().unsqueeze(1) - x.double())[above] for x in (first, second))
    norm = math.sqrt(float(a.square().sum()) * float(b.square().sum()))
    return float((a * b).sum()) / norm if norm else math.nan
