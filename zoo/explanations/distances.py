"""Distances of distributions, along the last axis."""

import torch
from torch import Tensor


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Half the sum of the differences, 0 to 1: (..., C), (..., C) -> (...)."""
    return (p - q).abs().sum(-1) / 2


def largest_change(p: Tensor, q: Tensor) -> Tensor:
    """Of labels that do not exclude each other: the largest change of any probability, (..., C), (..., C) -> (...)."""
    return (p - q).abs().amax(-1)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats, 0 to ln 2 = 0.693: (..., N), (..., N) -> (...)."""
    middle = (p + q) / 2
    return (_relative_entropy(p, middle) + _relative_entropy(q, middle)) / 2


def _relative_entropy(p: Tensor, q: Tensor) -> Tensor:
    tiny = torch.finfo(p.dtype).tiny  # 0 log 0 = 0, with a finite gradient
    return (p * ((p + tiny).log() - (q + tiny).log())).sum(-1)
