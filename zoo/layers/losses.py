"""Losses over large vocabularies."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, smoothing):
        log_probs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)  # (N, V)
        loss = -(1 - smoothing) * log_probs.gather(-1, labels.unsqueeze(-1)).sum()
        if smoothing:
            loss -= smoothing / logits.size(-1) * log_probs.sum()
        ctx.save_for_backward(log_probs, labels)
        ctx.smoothing, ctx.dtype = smoothing, logits.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        log_probs, labels = ctx.saved_tensors
        out = log_probs.exp_()  # the only user of this (N, V) tensor
        if ctx.smoothing:
            out.sub_(ctx.smoothing / out.size(-1))
        out.scatter_add_(-1, labels.unsqueeze(-1), out.new_full((labels.size(0), 1), ctx.smoothing - 1))
        return out.mul_(grad).to(ctx.dtype), None, None


def cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Summed cross-entropy in nats with label smoothing (Szegedy et al. 2016), equal to
    `torch.nn.functional.cross_entropy(..., reduction="sum")` with half of its passes over the (N, V) scores.

    Args:
        logits: (N, V) float, any precision; the loss is computed in fp32.
        labels: (N,) int64.
        label_smoothing: share of the target probability spread evenly over the vocabulary.

    Returns:
        A scalar.
    """
    return _CrossEntropy.apply(logits, labels, label_smoothing)
