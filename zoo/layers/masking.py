"""Masks. One polarity everywhere: True = a real token. A fully masked row gives weights 0, never NaN."""

import torch
from torch import Tensor

from zoo.layers.checks import check_mask, check_scores_mask
from zoo.layers.kernels import wide


def lengths_to_mask(lengths: Tensor, size: int | None = None) -> Tensor:
    """Mask of real positions.

    Args:
        lengths: (B,) int, number of real tokens in each row.
        size: number of columns; the longest row if not given.

    Returns:
        (B, size) bool, True on real tokens.
    """
    if size is None:
        size = int(lengths.max()) if lengths.numel() else 0
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(-1)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis in fp32 at least, exactly 0 where `mask` is False.

    Args:
        scores: (..., S) float.
        mask: bool, the shape of `scores` or 1 in place of any dimension, True where attention may go.

    Returns:
        (..., S) weights; a row without any True gives zeros and zero gradient.

    Raises:
        ValueError: a mask of another type or shape.
    """
    check_scores_mask(mask, scores.shape)
    scores = wide(scores)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1) * mask


def masked_sparsemax(scores: Tensor, mask: Tensor) -> Tensor:
    """Sparsemax (Martins and Astudillo 2016, arXiv:1602.02068, Eq. 2-4), with the arguments of `masked_softmax`.

    sparsemax(z) is the point of the simplex nearest to z, with many exact zeros.

    Returns:
        (..., S) weights; a row without any True gives zeros and zero gradient.

    Raises:
        ValueError: a mask of another type or shape.
    """
    check_scores_mask(mask, scores.shape)
    scores = wide(scores)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    z = scores - scores.detach().amax(-1, keepdim=True)  # changes no weight, but loses fewer digits in the sums
    ordered = z.sort(dim=-1, descending=True).values  # z_(1) >= ... >= z_(S)
    k = torch.arange(1, z.size(-1) + 1, device=z.device)
    support = 1 + k * ordered > ordered.cumsum(-1)  # true up to k(z), the number of weights above 0
    tau = ((ordered * support).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)  # Eq. 4
    return (z - tau).clamp(min=0) * mask  # Eq. 3


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over real positions, summed in fp32 at least: x (B, S, D), mask (B, S) bool -> (B, D); an empty row: 0."""
    check_mask("mask", mask, "B, S", *x.shape[:2])
    real = wide(x).masked_fill(~mask.unsqueeze(-1), 0)  # not by a product, in which NaN would stay
    weights = mask.to(real.dtype)
    total = torch.einsum("bsd,bs->bd", real, weights)
    return (total / weights.sum(-1, keepdim=True).clamp(min=1)).to(x.dtype)


def reverse_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverses each row's real part and leaves the padding in place: x (B, S, ...), lengths (B,) -> (B, S, ...)."""
    position = torch.arange(x.size(1), device=x.device).expand(x.shape[:2])
    index = torch.where(position < lengths.unsqueeze(1), lengths.unsqueeze(1) - 1 - position, position)
    return x.gather(1, index.reshape(index.shape + (1,) * (x.dim() - 2)).expand_as(x))
