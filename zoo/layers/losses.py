"""Losses over large vocabularies."""

import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.layers.steps import product_dtype, wants_gradient

_ROWS = 256  # rows whose scores exist at one time: few enough for the cache, enough for a full-speed product


class _LinearCrossEntropy(torch.autograd.Function):
    """Forms the gradient of the scores together with the loss, some rows at a time, so that of the (N, V) scores only this
    gradient ever exists as a whole, in the precision of the products."""

    @staticmethod
    def forward(ctx, x, weight, bias, labels, smoothing, dtype, train):
        vocab = weight.size(0)
        xs, w, b = x.to(dtype), weight.to(dtype), bias.to(dtype)
        grads = xs.new_empty(len(x), vocab) if train else None
        d_bias = torch.zeros_like(bias, dtype=torch.float32)
        loss = x.new_zeros((), dtype=torch.float32)
        rows = x.new_empty(len(x), dtype=torch.float32)
        for first in range(0, len(x), _ROWS):
            part = slice(first, first + _ROWS)
            scores = torch.addmm(b, xs[part], w.t()).float()  # (R, V)
            label = labels[part].unsqueeze(-1)
            probs = torch.softmax(scores, dim=-1)
            log_norm = scores.amax(-1, keepdim=True) - probs.amax(-1, keepdim=True).log_()  # log sum exp, from what is never tiny
            chosen = scores.gather(-1, label)
            loss += log_norm.sum() - (1 - smoothing) * chosen.sum()
            rows[part] = (log_norm - chosen).squeeze(-1)
            if smoothing:
                loss -= smoothing / vocab * scores.sum()
            if train:  # d loss / d scores = softmax - target
                if smoothing:
                    probs.sub_(smoothing / vocab)
                probs.scatter_add_(-1, label, probs.new_full(label.shape, smoothing - 1))
                d_bias += probs.sum(0)
                grads[part] = probs
        if train:
            ctx.save_for_backward(xs, w, grads, d_bias)
            ctx.dtypes = x.dtype, weight.dtype, bias.dtype
        ctx.mark_non_differentiable(rows)
        return loss, rows

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        xs, w, grads, d_bias = ctx.saved_tensors
        d_x = torch.mm(grads, w).to(ctx.dtypes[0]).mul_(grad)
        d_weight = torch.mm(grads.t(), xs).to(ctx.dtypes[1]).mul_(grad)
        return d_x, d_weight, d_bias.to(ctx.dtypes[2]) * grad, None, None, None, None


def linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Summed cross-entropy in nats of an output layer, equal to
    `torch.nn.functional.cross_entropy(x @ weight.T + bias, labels, label_smoothing=..., reduction="sum")`.

    Under autocast the products run in its precision and the softmax in fp32.

    Args:
        x: (N, D) float.
        weight: (V, D) float.
        bias: (V,) float.
        labels: (N,) int64.
        label_smoothing: share of the target probability spread evenly over the vocabulary (Szegedy et al. 2016).

    Returns:
        A scalar.
    """
    return linear_cross_entropy_rows(x, weight, bias, labels, label_smoothing)[0]


def linear_cross_entropy_rows(
    x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`linear_cross_entropy`, and -log p of each label, (N,) without label smoothing and without a gradient."""
    dtype, train = product_dtype(weight), wants_gradient(x, weight, bias)
    with torch.autocast(x.device.type, enabled=False):
        return _LinearCrossEntropy.apply(x, weight, bias, labels, label_smoothing, dtype, train)


def sampled_linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, sampled: int) -> Tensor:
    """`linear_cross_entropy` with a part of the vocabulary in the softmax, for training (cf. Jean et al. 2015, arXiv:1412.2007).

    The labels of all rows are in it, the first `sampled // 2` of the vocabulary (so order it by frequency), and as many of the others,
    drawn anew at each call. Each of those stands for all others that were not drawn: the sum of the softmax is right on average.

    Args:
        x, weight, bias, labels: as there.
        sampled: words besides the labels, at least 2; with V or more it is the whole softmax.

    Returns:
        A scalar.
    """
    vocab = len(weight)
    if sampled >= vocab:
        return linear_cross_entropy(x, weight, bias, labels)
    sure = torch.zeros(vocab, dtype=torch.bool, device=x.device)
    sure[: sampled // 2] = True
    sure[labels] = True
    others = (~sure).nonzero().squeeze(-1)
    drawn = others[torch.randperm(len(others), device=x.device)[: sampled - sampled // 2]]
    words = torch.cat([sure.nonzero().squeeze(-1), drawn])
    stands_for = torch.zeros_like(words, dtype=bias.dtype)
    if len(drawn):
        stands_for[-len(drawn) :] = math.log(len(others) / len(drawn))
    place = torch.empty_like(sure, dtype=torch.int64)
    place[words] = torch.arange(len(words), device=x.device)
    return linear_cross_entropy(x, weight.index_select(0, words), bias[words] + stands_for, place[labels])
