"""Adversarial training of classifiers: a text is also learnt with its word vectors shifted where that hurts most.

Miyato, Dai and Goodfellow 2017, "Adversarial Training Methods for Semi-Supervised Text Classification", ICLR 2017,
https://arxiv.org/abs/1605.07725 (Eq. 2 and 5; without the virtual one, which needs no labels).

Differs from the paper:
- the length of the shift is a share of the length of the text's own vectors; the paper normalises all vectors instead,
  for the same reason: a model that makes them longer would otherwise escape;
- the loss is the mean of both losses instead of their sum, so that it stays comparable to that of other trainings.

Shapes: B texts, P words of all of them, E embedding size.
"""

from typing import Protocol, TypeVar

import torch
from torch import Tensor

from zoo.batches.classification import DocumentBatch, TextBatch
from zoo.layers.kernels import wide
from zoo.layers.packed import segment_ids
from zoo.utils.replaced import replaced

Batch = TypeVar("Batch", bound=TextBatch | DocumentBatch, contravariant=True)


class Reader(Protocol[Batch]):
    """A classifier that reads words through `embed_words`."""

    def embed_words(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens (P,) -> vectors (R, E) and the row of each token, (P,)."""
        ...

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Summed loss of a batch, and the number of its texts."""
        ...


def adversarial_loss(model: Reader[Batch], batch: Batch, size: float) -> tuple[Tensor, int]:
    """The mean of a batch's loss and of that with shifted vectors, summed over its texts, and their number.

    Args:
        model: classifier.
        batch: texts with labels.
        size: see `worst_shift`.
    """
    embed, vectors = model.embed_words, []

    def read(tokens: Tensor) -> tuple[Tensor, Tensor]:
        found, rows = embed(tokens)
        vectors.append(found[rows])  # (P, E): each word can be shifted in its own direction
        return vectors[-1], torch.arange(len(tokens), device=tokens.device)

    with replaced(model, "embed_words", read):
        loss, count = model.loss(batch)
    gradients = torch.autograd.grad(loss, vectors, retain_graph=True, allow_unused=True, materialize_grads=True)
    texts = zip(vectors, gradients, batch.word_counts(), strict=True)
    shifted = iter([x + worst_shift(x.detach(), slope, lengths, size) for x, slope, lengths in texts])

    def read_shifted(tokens: Tensor) -> tuple[Tensor, Tensor]:
        return next(shifted), torch.arange(len(tokens), device=tokens.device)

    with replaced(model, "embed_words", read_shifted):
        worse, _ = model.loss(batch)
    return (loss + worse) / 2, count


def worst_shift(vectors: Tensor, gradients: Tensor, lengths: Tensor, size: float) -> Tensor:
    """The shift of each text's vectors that raises its loss most, to first order (Eq. 5).

    Args:
        vectors: (P, E), text after text.
        gradients: (P, E), of the loss.
        lengths: (B,) number of words of each text.
        size: length of a text's shift, divided by that of its vectors, each taken as one long vector.

    Returns:
        (P, E), zeros for a text without a gradient.
    """
    text = segment_ids(lengths)

    def length(x: Tensor) -> Tensor:
        squares = wide(x).square().sum(-1)
        return squares.new_zeros(len(lengths)).index_add(0, text, squares).sqrt()

    slope = length(gradients)
    scale = size * length(vectors) / slope.clamp(min=torch.finfo(slope.dtype).tiny)
    return (scale[text].unsqueeze(-1) * gradients).to(vectors.dtype)
