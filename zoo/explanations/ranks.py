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
    a, b = first.double(), second.double()
    agreement = ordered_a = ordered_b = 0.0
    for n in range(len(a) - 1):  # not all pairs at once: a long document has billions
        of_a, of_b = torch.sign(a[n] - a[n + 1 :]), torch.sign(b[n] - b[n + 1 :])
        agreement += float(of_a @ of_b)
        ordered_a += float(of_a.square().sum())
        ordered_b += float(of_b.square().sum())
    norm = math.sqrt(ordered_a * ordered_b)
    return agreement / norm if norm else math.nan
