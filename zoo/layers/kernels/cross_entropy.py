"""An output layer and its cross-entropy together, a few rows at a time: the (N, V) scores never exist as a whole.

The forward pass also forms the gradients: of all rows they take less memory than the scores of a few.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from zoo.layers.kernels import product_dtype, wide
from zoo.layers.kernels.function import gradients_of_plain, is_differentiated_again, wants_gradient

_ROWS = 512  # rows whose scores exist at one time: enough for a product at full speed
# float16 would need the loss scaled before this gradient is formed
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def plain_linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy of x (N, D) weight^T (V, D) + bias (V,) and labels (N,), and -log p of each label (N,)."""
    log_probs = functional.log_softmax(wide(functional.linear(x, weight, bias)), dim=-1)  # (N, V)
    rows = functional.nll_loss(log_probs, labels, reduction="none")
    loss = rows.sum()
    if smoothing:
        loss = (1 - smoothing) * loss - smoothing / log_probs.size(-1) * log_probs.sum()
    return loss, rows.detach()


def plain_linear_soft_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor, words: Tensor, probabilities: Tensor
) -> Tensor:
    """Summed cross-entropy with distributions: words and their probabilities (N, K), the rest of 1 for all others."""
    return soft_cross_entropy(functional.linear(x, weight, bias), words, probabilities)


def soft_cross_entropy(logits: Tensor, words: Tensor, probabilities: Tensor) -> Tensor:
    """Summed cross-entropy in nats with distributions of which K words are known (Hinton et al. 2015, 1503.02531).

    All other words count as one, with the probability that is left.

    Args:
        logits: (N, V).
        words: (N, K) int64, different ones in each row.
        probabilities: (N, K) float, each row with a sum of at most 1, up to rounding.

    Returns:
        A scalar, in at least fp32.
    """
    log_probs = functional.log_softmax(wide(logits), dim=-1).gather(-1, words)
    known, left = _shares(log_probs.exp(), probabilities)
    return -(probabilities * log_probs).sum() - (left * torch.log1p(-known)).sum()


def _shares(found: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """What the K words have together in a prediction, below 1, and what is left for others in the target, (N,) each."""
    known = found.sum(-1).clamp(max=1 - torch.finfo(found.dtype).eps)
    return known, (1 - expected.sum(-1)).clamp(min=0)


class _LinearSoftCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, words, probabilities, dtype, train):
        xs, w, b = x.to(dtype), weight.to(dtype), bias.to(dtype)
        loss = wide(x[:0]).new_zeros(())
        sums = _zeros((x, weight, bias), ctx.needs_input_grad, loss.dtype) if train else [None] * 3
        of_scores = loss.new_empty(min(_ROWS, len(x)), len(weight))  # p, then the gradient of the scores
        for first in range(0, len(x), _ROWS):
            part = slice(first, first + _ROWS)
            some, expected = words[part], probabilities[part].to(loss.dtype)
            scores, grad = torch.addmm(b, xs[part], w.t()), of_scores[: len(some)]  # (R, V)
            torch.log_softmax(scores, -1, dtype=grad.dtype, out=grad)
            log_probs = grad.gather(-1, some)  # (R, K)
            found = log_probs.exp()
            known, left = _shares(found, expected)
            loss -= (expected * log_probs).sum() + (left * torch.log1p(-known)).sum()
            if train:
                ratio = left / (1 - known)
                grad.exp_().mul_((expected.sum(-1) - known * ratio).unsqueeze(-1))
                grad.scatter_add_(-1, some, found * ratio.unsqueeze(-1) - expected)
                _accumulate(grad, xs[part], w, part, *sums)
        if train:
            ctx.save_for_backward(x, weight, bias, words, probabilities, *sums)
        return loss

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]  # torch declares any number
        x, weight, bias, words, probabilities, *found = ctx.saved_tensors
        if is_differentiated_again():

            def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
                return plain_linear_soft_cross_entropy(x, weight, bias, words, probabilities)

            return *gradients_of_plain(plain, (x, weight, bias), (grad,)), None, None, None, None
        return *_scaled(found, (x, weight, bias), grad), None, None, None, None


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, labels, smoothing, dtype, train):
        vocab, xs, w, b = len(weight), x.to(dtype), weight.to(dtype), bias.to(dtype)
        rows = wide(x[:0]).new_empty(len(x))
        loss, spread = rows.new_zeros(()), rows.new_zeros(())
        sums = _zeros((x, weight, bias), ctx.needs_input_grad, rows.dtype) if train else [None] * 3
        of_scores = rows.new_empty(min(_ROWS, len(x)), vocab)  # log p, then the gradient of the scores
        for first in range(0, len(x), _ROWS):
            part, label = slice(first, first + _ROWS), labels[first : first + _ROWS].unsqueeze(-1)
            scores, grad = torch.addmm(b, xs[part], w.t()), of_scores[: len(label)]  # (R, V)
            torch.log_softmax(scores, -1, dtype=grad.dtype, out=grad)
            rows[part] = -grad.gather(-1, label).squeeze(-1)
            if smoothing:
                spread -= grad.sum()
            if train:  # d loss / d scores = softmax - target
                grad.exp_()
                if smoothing:
                    grad.sub_(smoothing / vocab)
                grad.scatter_add_(-1, label, grad.new_full(label.shape, smoothing - 1))
                _accumulate(grad, xs[part], w, part, *sums)
        loss += (1 - smoothing) * rows.sum() + smoothing / vocab * spread
        if train:
            ctx.save_for_backward(x, weight, bias, labels, *sums)
            ctx.smoothing = smoothing
        ctx.mark_non_differentiable(rows)
        return loss, rows

    @staticmethod
    def backward(ctx, grad, _):  # pyright: ignore[reportIncompatibleMethodOverride]  # torch declares any number
        x, weight, bias, labels, *found = ctx.saved_tensors
        if is_differentiated_again():

            def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
                return plain_linear_cross_entropy(x, weight, bias, labels, ctx.smoothing)[0]

            return *gradients_of_plain(plain, (x, weight, bias), (grad,)), None, None, None, None
        return *_scaled(found, (x, weight, bias), grad), None, None, None, None


def _zeros(tensors: Sequence[Tensor], needed: Sequence[bool], dtype: torch.dtype) -> list[Tensor | None]:
    """Sums in which the gradient of each tensor is formed; None for one that needs none."""
    return [torch.zeros_like(x, dtype=dtype) if needs else None for x, needs in zip(tensors, needed)]


def _scaled(sums: Sequence[Tensor | None], tensors: Sequence[Tensor], grad: Tensor) -> list[Tensor | None]:
    """Their gradients, from the sums and the gradient of the loss."""
    return [None if d is None else (d * grad).to(x.dtype) for d, x in zip(sums, tensors, strict=True)]


def _accumulate(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    part: slice,
    d_x: Tensor | None,
    d_weight: Tensor | None,
    d_bias: Tensor | None,
) -> None:
    """Adds what the gradient of some rows' scores (R, V) gives to the gradients of x, weight and bias."""
    of_products = grad.to(weight.dtype)
    if d_x is not None:
        d_x[part] = torch.mm(of_products, weight)
    if d_weight is not None and d_weight.dtype == of_products.dtype:
        d_weight.addmm_(of_products.t(), x)
    elif d_weight is not None:
        d_weight += torch.mm(of_products.t(), x)
    if d_bias is not None:
        d_bias += grad.sum(0)


def suits(weight: Tensor) -> bool:
    """Whether the products with this weight are of a precision that the kernel has."""
    return product_dtype(weight) in DTYPES


def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float
) -> tuple[Any, Tensor]:
    """As `plain_linear_cross_entropy`."""
    dtype, train = product_dtype(weight), wants_gradient(x, weight, bias)
    with torch.autocast(x.device.type, enabled=False):  # the precision is already chosen
        return _LinearCrossEntropy.apply(x, weight, bias, labels, smoothing, dtype, train)


def linear_soft_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor, words: Tensor, probabilities: Tensor) -> Tensor:
    """As `plain_linear_soft_cross_entropy`."""
    dtype, train = product_dtype(weight), wants_gradient(x, weight, bias)
    with torch.autocast(x.device.type, enabled=False):  # the precision is already chosen
        return _LinearSoftCrossEntropy.apply(x, weight, bias, words, probabilities, dtype, train)  # pyright: ignore[reportReturnType]
