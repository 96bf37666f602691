"""Maxout (Goodfellow et al. 2013, arXiv:1302.4389)."""

from torch import Tensor


def maxout(x: Tensor) -> Tensor:
    """Maximum of each pair of neighbours: (..., 2 D) -> (..., D)."""
    return x.unflatten(-1, (-1, 2)).amax(-1)
