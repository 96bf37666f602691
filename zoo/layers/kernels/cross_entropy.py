"""An output layer and its cross-entropy together, some rows at a time.

The gradient of the scores is formed together with the loss, so that of the (N, V) scores only this gradient ever exists
as a whole, in the precision of the products.
"""

import torch
from torch import Tensor
from torch.nn import functional

from zoo.layers.kernels import product_dtype, wide
from zoo.layers.kernels.function import gradients_of_plain, is_differentiated_again, wants_gradient

_ROWS = 256  # rows whose scores exist at one time: few enough for the cache, enough for a full-speed product


def plain_linear_cross_entropy(x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Summed cross-entropy of x (N, D) weight^T (V, D) + bias (V,) and labels (N,)."""
    return functional.cross_entropy(
        wide(functional.linear(x, weight, bias)), labels, label_smoothing=smoothing, reduction="sum"
    )


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, labels, smoothing, dtype, train):
        vocab = weight.size(0)
        xs, w, b = x.to(dtype), weight.to(dtype), bias.to(dtype)
        grads = xs.new_empty(len(x), vocab) if train else None
        loss, rows = wide(x[:0]).new_zeros(()), wide(x[:0]).new_empty(len(x))
        d_bias = torch.zeros_like(bias, dtype=loss.dtype)
        for first in range(0, len(x), _ROWS):
            part = slice(first, first + _ROWS)
            scores = wide(torch.addmm(b, xs[part], w.t()))  # (R, V)
            label = labels[part].unsqueeze(-1)
            probs = torch.softmax(scores, dim=-1)
            log_norm = (
                scores.amax(-1, keepdim=True) - probs.amax(-1, keepdim=True).log_()
            )  # log sum exp, from what is never tiny
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
            ctx.save_for_backward(x, weight, bias, labels, xs, w, grads, d_bias)
            ctx.smoothing = smoothing
        ctx.mark_non_differentiable(rows)
        return loss, rows

    @staticmethod
    def backward(ctx, grad, _):
        x, weight, bias, labels, xs, w, grads, d_bias = ctx.saved_tensors
        if is_differentiated_again():

            def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
                return plain_linear_cross_entropy(x, weight, bias, labels, ctx.smoothing)

            return *gradients_of_plain(plain, (x, weight, bias), (grad,)), None, None, None, None
        d_x = torch.mm(grads, w).to(x.dtype).mul_(grad)
        d_weight = torch.mm(grads.t(), xs).to(weight.dtype).mul_(grad)
        return d_x, d_weight, d_bias.to(bias.dtype) * grad, None, None, None, None


def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """As `plain_linear_cross_entropy`, and -log p of each label, (N,), without label smoothing and without a
    gradient.
    """
    dtype, train = product_dtype(weight), wants_gradient(x, weight, bias)
    with torch.autocast(x.device.type, enabled=False):
        return _LinearCrossEntropy.apply(x, weight, bias, labels, smoothing, dtype, train)
