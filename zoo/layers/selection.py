"""The largest of many numbers, as `topk` and `argmax` find them, faster on CPUs where a vocabulary is large.

Shapes: b sentences, k hypotheses, V vocabulary.
"""

import torch
from torch import Tensor

_BLOCK = 64  # numbers whose maximum is looked at first


def largest(logits: Tensor, bias: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` largest of logits (b, k, V) + bias (b, k) of its hypothesis in each row b, sorted.

    Only blocks whose maximum is among the `count` largest maxima can contain them. Finding the maxima is one vectorised
    pass; the selection itself then reads about V / 64 + 64 * count numbers instead of V.

    Returns:
        values, hypotheses (0 ... k-1) and tokens (0 ... V-1), (b, count) each.
    """
    batch, width, vocab = logits.shape
    blocks = vocab // _BLOCK
    if blocks * width <= 2 * count:  # too small to gain from blocks
        values, index = (logits + bias[..., None]).flatten(1).topk(count)
        return values, index // vocab, index % vocab
    full = blocks * _BLOCK
    maxima = logits[..., :full].unflatten(-1, (blocks, _BLOCK)).amax(-1)  # (b, k, blocks)
    best = (maxima + bias[..., None]).flatten(1).topk(count, sorted=False).indices  # (b, count)
    owner = best // blocks  # hypothesis of each block
    index = owner * vocab + best % blocks * _BLOCK
    index = index[..., None] + torch.arange(_BLOCK, device=logits.device)  # (b, count, 64) into k V numbers
    values = logits.flatten(1).gather(1, index.flatten(1)).view_as(index) + bias.gather(1, owner)[..., None]
    index, values = index.flatten(1), values.flatten(1)
    if full < vocab:  # the tail is not a whole block: take all of it
        tail = torch.arange(width * vocab, device=logits.device).view(width, vocab)[:, full:].flatten()
        index = torch.cat((index, tail.expand(batch, -1)), 1)
        values = torch.cat((values, (logits[..., full:] + bias[..., None]).flatten(1)), 1)
    values, order = values.topk(count)
    index = index.gather(1, order)
    return values, index // vocab, index % vocab


def first_largest(logits: Tensor) -> Tensor:
    """(b, k, V) -> (b, k), the first of ties; by blocks, because torch.argmax is not vectorised on CPUs."""
    vocab = logits.shape[-1]
    if vocab < 2 * _BLOCK:
        return logits.argmax(-1)
    blocks = vocab // _BLOCK
    maxima = logits[..., : blocks * _BLOCK].unflatten(-1, (blocks, _BLOCK)).amax(-1)  # (b, k, blocks)
    maxima = torch.cat((maxima, logits[..., -_BLOCK:].amax(-1, keepdim=True)), -1)  # one more block covers the tail
    start = (maxima.argmax(-1, keepdim=True) * _BLOCK).clamp(max=vocab - _BLOCK)
    inside = logits.gather(-1, start + torch.arange(_BLOCK, device=logits.device))
    return start[..., 0] + inside.argmax(-1)
