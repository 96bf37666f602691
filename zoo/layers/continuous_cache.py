"""Grave, Joulin, Usunier 2017: Improving Neural Language Models with a Continuous Cache.

https://arxiv.org/abs/1612.04426, section 3. A language model keeps pairs (h_i, x_{i+1}) of its last N steps: the state
that it was in, and the word that followed. A word is probable again where the state resembles one that it followed:

    p_cache(w) = sum_i 1[w = x_{i+1}] exp(theta h_t . h_i) / sum_i exp(theta h_t . h_i),    i = t - N, ..., t - 1
    p(w) = (1 - lambda) p_model(w) + lambda p_cache(w)

The state h_t predicts x_{t+1}, so the last pair ends with x_t: nothing here depends on a later word. While the cache is
empty, p is p_model. Nothing is trained; theta, lambda and N are chosen on validation data.

Not in the paper: with a half-life of H words, exp(theta h_t . h_i) becomes 2^(-(t - i) / H) exp(theta h_t . h_i). What
lies farther back counts less, as in the caches of Clarkson and Robinson 1997 (Language Model Adaptation Using Mixtures
and an Exponentially Decaying Cache).

A memory is the keys h_i (B, N, D) and the words x_{i+1} (B, N) of the last N steps, the oldest first; the word 0 (PAD)
marks an empty place. `lookup` is the equation for all words, and the reference. `lookup_labels` computes the same for
one word at each step of a text, a block of steps at a time.

Shapes: B texts, T steps, N size of the cache, D size of a key, V vocabulary.
"""

import math

import torch
from torch import Tensor

from zoo.layers.kernels import wide
from zoo.layers.masking import masked_softmax
from zoo.layers.window import last_steps

_EMPTY = 0  # PAD
_ROWS = 128  # steps of a block: their scores stay in the processor's cache

Memory = tuple[Tensor, Tensor]


def empty_memory(states: Tensor, size: int) -> Memory:
    """The memory before the first word, for texts with states (B, T, D)."""
    batch, _, dim = states.shape
    keys = wide(states).new_zeros(batch, size, dim)
    return keys, torch.zeros(batch, size, dtype=torch.int64, device=states.device)


def appended(memory: Memory, states: Tensor, following: Tensor) -> Memory:
    """The pairs of a memory and then those of T more steps, (B, N + T, D) and (B, N + T).

    Args:
        memory: N pairs.
        states: (B, T, D) h_i.
        following: (B, T) int64 x_{i+1}; PAD: none.
    """
    return torch.cat([memory[0], wide(states)], dim=1), torch.cat([memory[1], following], dim=1)


def latest(pairs: Memory, size: int, lengths: Tensor) -> Memory:
    """The memory after the first `lengths` (B,) of the T steps, from all pairs (B, N + T)."""
    keys, words = (last_steps(part, size, lengths) for part in pairs)
    return keys, words


def lookup(
    states: Tensor, pairs: Memory, theta: float, vocab_size: int, half_life: float | None = None
) -> tuple[Tensor, Tensor]:
    """p_cache of all words: the equation above.

    Args:
        states: (B, T, D) h_t.
        pairs: `appended`: N pairs before the first step, then those of the T steps.
        theta: sharpness.
        vocab_size: V.
        half_life: H, in words; None: a pair never fades.

    Returns:
        p_cache (B, T, V), which sums to 1 over the vocabulary, or to 0 where the cache is empty; and whether it holds
        anything, (B, T, 1) bool.
    """
    keys, words = pairs
    steps = states.size(1)
    with torch.autocast(states.device.type, enabled=False):
        scores = _faded(theta * torch.matmul(wide(states), keys.transpose(1, 2)), half_life)  # (B, T, N + T)
    mask = _is_cached(words, steps)
    weights = masked_softmax(scores, mask)
    none = weights.new_zeros(len(words), steps, vocab_size)
    cached = none.scatter_add(2, words.unsqueeze(1).expand_as(weights), weights)  # sum of all i with w = x_{i+1}
    return cached, mask.any(-1, keepdim=True)


def lookup_labels(
    states: Tensor, pairs: Memory, theta: float, labels: Tensor, half_life: float | None = None
) -> tuple[Tensor, Tensor]:
    """p_cache of one word at each step: `lookup` without the vocabulary.

    Args:
        states, pairs, theta, half_life: as in `lookup`.
        labels: (B, T) int64.

    Returns:
        p_cache of the labels (B, T), and whether the cache holds anything, (B, T) bool.
    """
    keys, words = pairs
    steps, size = states.size(1), words.size(1) - states.size(1)
    queries = theta * wide(states)
    probabilities, is_filled = torch.zeros_like(queries[..., 0]), torch.zeros_like(labels, dtype=torch.bool)
    with torch.autocast(states.device.type, enabled=False):
        for first in range(0, steps, _ROWS):
            here = slice(first, min(first + _ROWS, steps))
            seen = slice(first, here.stop + size)
            scores = _faded(torch.matmul(queries[:, here], keys[:, seen].transpose(1, 2)), half_life)
            scores.masked_fill_(~_is_cached(words[:, seen], here.stop - first), -torch.inf)
            highest = scores.amax(-1, keepdim=True)
            weights = scores.sub_(highest.clamp(min=torch.finfo(scores.dtype).min)).exp_()  # an empty row: zeros
            is_label = words[:, None, seen] == labels[:, here, None]
            total = weights.sum(-1)
            probabilities[:, here] = (weights * is_label).sum(-1) / total.clamp(min=1)  # the highest weight is 1
            is_filled[:, here] = total > 0
    return probabilities, is_filled


def interpolate(log_probs: Tensor, cached: Tensor, is_filled: Tensor, share: float) -> Tensor:
    """log p from log p_model (...), and from p_cache and whether there is any, as `lookup` or `lookup_labels` gives."""
    share_here = share * is_filled.to(cached.dtype)
    return torch.logaddexp((-share_here).log1p() + log_probs, (share_here * cached).log())


def _faded(scores: Tensor, half_life: float | None) -> Tensor:
    """Scores (..., M) of M pairs, lower by what their age takes from them; all of a step may have a constant more."""
    if half_life is None:
        return scores
    ages = torch.arange(scores.size(-1) - 1, -1, -1, dtype=scores.dtype, device=scores.device)  # of the latest: 0
    return scores.sub_(ages, alpha=math.log(2) / half_life)


def _is_cached(words: Tensor, steps: int) -> Tensor:
    """Which pairs are in the cache at each of the last `steps` of them: words (B, N + T) -> (B, T, N + T) bool."""
    ahead = torch.arange(words.size(1), device=words.device) - torch.arange(steps, device=words.device).unsqueeze(1)
    return (ahead >= 0) & (ahead < words.size(1) - steps) & (words != _EMPTY).unsqueeze(1)
