"""A decision: one answer of a model about one input, and what may be asked of it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import compress

import torch
from torch import Tensor

from zoo.explanations.counterfactual import Distance
from zoo.explanations.distances import total_variation


class Decision(ABC):
    """Base class, one subclass a task.

    Shapes: N words (or regions of an image), W attention weights behind the decision, K variants, C outputs.

    Attributes:
        size: N; units beyond the first N, such as the end of a sentence, are attended to but never erased.
        weights: (W,) the attention weights, flat.
        groups: (W,) int, weights with the same number come from one softmax.
        answer: which output the model chose.
        distance: of two outputs.
        exclusive: the outputs are probabilities of which one is true, so that they sum to 1.
    """

    exclusive: bool = True
    size: int
    weights: Tensor
    groups: Tensor
    answer: int
    distance: Distance = staticmethod(total_variation)

    @abstractmethod
    def output(self, kept: Tensor) -> Tensor:
        """The output for variants of the input: kept bool (K, N), which words stay -> (K, C)."""

    @abstractmethod
    def attend(self, weights: Tensor) -> Tensor:
        """The output with other weights, differentiable: (K, W) -> (K, C)."""

    @abstractmethod
    def show(self, weights: Tensor) -> Tensor:
        """What a picture shows of weights, with sum 1: (K, W) -> (K, N or more)."""

    @abstractmethod
    def embedded(self) -> Tensor:
        """The embeddings that the model reads, or the features of an image: (1, N or more, E)."""

    @abstractmethod
    def read(self, embedded: Tensor) -> Tensor:
        """The output for other embeddings, differentiable: (K, N or more, E) -> (K, C)."""

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Of the probability of the answer with respect to each word's embedding (or each region's features).

        Returns:
            (N,) the Euclidean norm of the gradient, and (N,) the absolute value of gradient times input.
        """
        embedded = self.embedded().requires_grad_()
        output = self.read(embedded)[0]
        value = output[self.answer]
        if self.exclusive and float(value.detach()) > 0.5:
            # 1 minus the others: the same, but of a probability of almost 1 its own derivative is lost in rounding
            value = -torch.cat([output[: self.answer], output[self.answer + 1 :]]).sum()
        (gradient,) = torch.autograd.grad(value, [embedded])
        products = (gradient * embedded.detach()).sum(-1).abs()
        return gradient[0, : self.size].norm(dim=-1), products[0, : self.size]

    def more(self) -> dict[str, float]:
        """Measures that only this task has, by name."""
        return {}

    def outputs(self, kept: Tensor) -> Tensor:
        """As `output`, but each variant is computed once: several measures ask for the input without one word."""
        variants, place = kept.unique(dim=0, return_inverse=True)
        keys = [row.numpy().tobytes() for row in variants]
        new = [n for n, key in enumerate(keys) if key not in self._known]
        if new:
            self._known.update(zip([keys[n] for n in new], self.output(variants[new]), strict=True))
        return torch.stack([self._known[key] for key in keys])[place]

    @cached_property
    def _known(self) -> dict[bytes, Tensor]:
        return {}

    def probability(self, kept: Tensor) -> Tensor:
        """The probability of the answer for variants of the input: (K, N) -> (K,)."""
        return self.outputs(kept)[:, self.answer]

    def attention(self) -> Tensor:
        """The attention to each word that may be erased: (N,)."""
        return self.show(self.weights.unsqueeze(0))[0, : self.size]

    def left_out(self, words: Tensor) -> Tensor:
        """How far the output moves without each of some words: (M,) int -> (M,)."""
        kept = torch.ones(1 + len(words), self.size, dtype=torch.bool)
        kept[1 + torch.arange(len(words)), words] = False
        found = self.outputs(kept)
        return self.distance(found[1:], found[:1])


def chosen(words: Sequence[int], kept: Tensor) -> list[int]:
    """The words that stay: kept bool (N,)."""
    return list(compress(words, kept.tolist()))
