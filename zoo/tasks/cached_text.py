"""A continuous cache (zoo/layers/continuous_cache.py) that goes with texts as a language model reads or writes them."""

import torch
from torch import Tensor

from zoo.layers.continuous_cache import Memory, appended, empty_memory, interpolate, latest, lookup, lookup_labels
from zoo.text import PAD
from zoo.utils.continuous_cache import ContinuousCache

CACHE_STATES = 3  # tensors in the state of a text that is being written


class CachedText:
    """What the cache holds of some texts that are read together.

    Args:
        cache: its options.
        readouts: (B, T, D) any readouts of the texts, for their shape.

    Attributes:
        memory: after what was read so far.
    """

    def __init__(self, cache: ContinuousCache, readouts: Tensor) -> None:
        self.cache, self.memory = cache, empty_memory(readouts, cache.size)

    def state(self) -> tuple[Tensor, ...]:
        """The state from which the texts are written on, as `next_words` takes it: CACHE_STATES tensors (B, ...)."""
        keys, words = self.memory
        return keys, words, torch.zeros_like(keys[:, :1])

    def losses(self, readouts: Tensor, labels: Tensor, losses: Tensor) -> Tensor:
        """Reads on: the losses (N,) of the labels (B, T) that are not PAD become those with the cache."""
        pairs = self.remember(readouts, labels)
        real = labels != PAD
        cached, is_filled = lookup_labels(readouts, pairs, self.cache.theta, labels, self.cache.half_life)
        return -interpolate(-losses, cached[real], is_filled[real], self.cache.share)

    def remember(self, readouts: Tensor, labels: Tensor) -> Memory:
        """Reads on: readouts (B, T, D), and the words that followed (B, T), PAD after the end. Returns all pairs."""
        pairs = appended(self.memory, readouts, labels)
        self.memory = latest(pairs, self.cache.size, (labels != PAD).sum(1))
        return pairs


def next_words(
    cache: ContinuousCache, logits: Tensor, readouts: Tensor, word: Tensor | None, state: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One step of texts that a model writes.

    Args:
        cache: its options.
        logits: (B, 1, V) of the model.
        readouts: (B, 1, D) of this step.
        word: (B, 1) the word that followed the readouts of the step before; None at the first step.
        state: the memory (B, N, D) and (B, N), and the readouts of the step before (B, 1, D).

    Returns:
        Log-probabilities (B, 1, V) with the cache, and the state after this step.
    """
    *memory, before = state
    if word is not None:
        memory = latest(appended((memory[0], memory[1]), before, word), cache.size, torch.ones_like(word[:, 0]))
    unknown = torch.full_like(logits[..., 0], PAD, dtype=torch.int64)  # what follows this step
    pairs = appended((memory[0], memory[1]), readouts, unknown)
    found = lookup(readouts, pairs, cache.theta, logits.size(-1), cache.half_life)
    return interpolate(logits.log_softmax(-1), *found, cache.share), (*memory, readouts)
