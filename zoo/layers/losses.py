"""Output layers over large vocabularies, and their losses."""

import math
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, nll_loss

from zoo.layers import kernels
from zoo.layers.checks import check_labels, check_shape
from zoo.layers.kernels import wide
from zoo.layers.kernels.cross_entropy import (
    linear_cross_entropy,
    linear_soft_cross_entropy,
    soft_cross_entropy,
    suits,
)
from zoo.layers.kernels.products import linear

_LINEAR = kernels.methods_of(nn.Linear, "forward")


def output_logits(layer: nn.Module, x: Tensor) -> Tensor:
    """layer(x): (..., D) -> (..., V). A search packs the weight (zoo/layers/kernels/products.py)."""
    return linear(x, layer.weight, layer.bias) if _is_plain(layer) else layer(x)


def output_loss(layer: nn.Module, x: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Summed cross-entropy in nats of the logits `layer(x)`.

    The same as `cross_entropy(layer(x), labels, label_smoothing=..., reduction="sum")`.

    Under autocast the products run in its precision and the softmax in fp32.

    Args:
        layer: (N, D) -> (N, V), usually nn.Linear with a bias.
        x: (N, D) float.
        labels: (N,) int64, from 0 to V - 1: no row is left out, so give those only that count.
        label_smoothing: Share of the target probability spread evenly over the vocabulary (Szegedy et al. 2016).

    Returns:
        A scalar.

    Raises:
        ValueError: another number of labels, or on a CPU a negative one.
    """
    return output_losses(layer, x, labels, label_smoothing)[0]


def output_losses(layer: nn.Module, x: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Returns `output_loss` and -log p of each label, (N,), without label smoothing and without a gradient."""
    check_labels(labels, len(x))
    if _is_plain(layer) and suits(layer.weight) and kernels.usable("cross_entropy", x, layer.weight, layer.bias):
        return linear_cross_entropy(x, layer.weight, layer.bias, labels, label_smoothing)
    log_probs = log_softmax(wide(layer(x)), dim=-1)  # (N, V)
    rows = nll_loss(log_probs, labels, reduction="none")
    loss = rows.sum()
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing / log_probs.size(-1) * log_probs.sum()
    return loss, rows.detach()


def sampled_output_loss(layer: nn.Linear, x: Tensor, labels: Tensor, sampled: int) -> Tensor:
    """`output_loss` with a sampled softmax, for training (cf. Jean et al. 2015, arXiv:1412.2007).

    The softmax covers the labels of all rows, the first `sampled // 2` words of the vocabulary (so order it by
    frequency), and as many of the others, drawn at each call. Each drawn word is weighted for the others that were not
    drawn, so the sum of the softmax is unbiased.

    Args:
        layer, x, labels: As in `output_loss`.
        sampled: Words other than the labels, at least 2; V or more gives the full softmax.

    Returns:
        A scalar.
    """
    check_labels(labels, len(x))
    vocab = layer.out_features
    if sampled >= vocab:
        return output_loss(layer, x, labels)
    sure = torch.zeros(vocab, dtype=torch.bool, device=x.device)
    sure[: sampled // 2] = True
    sure[labels] = True
    others = (~sure).nonzero().squeeze(-1)
    drawn = others[torch.randperm(len(others), device=x.device)[: sampled - sampled // 2]]
    words = torch.cat([sure.nonzero().squeeze(-1), drawn])
    stands_for = torch.zeros(len(words), dtype=wide(x[:0]).dtype, device=x.device)
    if len(drawn):
        stands_for[-len(drawn) :] = math.log(len(others) / len(drawn))
    place = torch.empty_like(sure, dtype=torch.int64)
    place[words] = torch.arange(len(words), device=x.device)
    if not _is_plain(layer):
        return cross_entropy(wide(layer(x))[:, words] + stands_for, place[labels], reduction="sum")
    weight, bias = layer.weight.index_select(0, words), layer.bias[words] + stands_for
    if suits(layer.weight) and kernels.usable("cross_entropy", x, weight, bias):
        return linear_cross_entropy(x, weight, bias, place[labels], 0.0)[0]
    return cross_entropy(wide(nn.functional.linear(x, weight, bias)), place[labels], reduction="sum")


def soft_output_loss(layer: nn.Module, x: Tensor, words: Tensor, probabilities: Tensor) -> Tensor:
    """The same as `soft_cross_entropy(layer(x), words, probabilities)`, see there.

    Args:
        layer, x: As in `output_loss`.
        words, probabilities: (N, K).

    Returns:
        A scalar.

    Raises:
        ValueError: another number of rows.
    """
    check_shape("words", words, "N, K", len(x), None)
    check_shape("probabilities", probabilities, "N, K", *words.shape)
    if _is_plain(layer) and suits(layer.weight) and kernels.usable("cross_entropy", x, layer.weight, layer.bias):
        return linear_soft_cross_entropy(x, layer.weight, layer.bias, words, probabilities)
    return soft_cross_entropy(layer(x), words, probabilities)


def _is_plain(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether using its weight directly is the same as calling the layer."""
    return kernels.is_as_written(layer, nn.Linear, _LINEAR) and layer.bias is not None
