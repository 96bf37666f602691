"""Erasing what a model attended to: comprehensiveness and sufficiency.

DeYoung, Jain, Rajani, Lehman, Xiong, Socher and Wallace 2020, "ERASER", https://aclanthology.org/2020.acl-main.408/,
section 4.3.

Shapes: N words (or regions) of an input, B shares, K variants of the input.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)  # of the words of an input, as in the paper
RANDOM = 10  # random orders of an input, of which the mean counts

Keep = Callable[[Tensor], Tensor]  # which words stay (K, N) -> probability of the answer (K,)


def top_first(importance: Tensor) -> Tensor:
    """The words, the most important first; of equal ones the earlier first: (N,) -> (N,)."""
    return importance.argsort(descending=True, stable=True)


def random_orders(size: int, generator: torch.Generator) -> list[Tensor]:
    """Orders of the words at random, each (N,): one is drawn, and the others are it beginning at another place.

    So each word is early in some and late in others, and their mean depends less on the draw than that of as many
    independent ones.

    Args:
        size: N; there are `RANDOM` orders, or N if these are fewer.
        generator: draws the first.
    """
    first = top_first(torch.rand(size, generator=generator))
    times = min(RANDOM, size)
    return [first.roll(-(turn * size // times)) for turn in range(times)]


def erased_counts(size: int, shares: Sequence[float] = SHARES) -> list[int]:
    """How many of `size` words each share is, rounded up, so at least one."""
    return [math.ceil(share * size) for share in shares]


def erasure(keep: Keep, order: Tensor, shares: Sequence[float] = SHARES) -> tuple[float, float]:
    """Comprehensiveness and sufficiency of an order of words, each the mean over the shares (their AOPC).

    With p the probability of the answer, comprehensiveness is p(all) - p(without the first words), high if these
    mattered; sufficiency is p(all) - p(the first words alone), low if these are enough.

    The paper's AOPC has one more term, which is 0 for comprehensiveness, and divides by B + 1.

    Args:
        keep: bool (K, N), which words stay in each of K variants -> the probability of the answer (K,).
        order: (N,) the words, the first to be erased first.
        shares: shares of the words to erase, or to keep.
    """
    size = len(order)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(size)
    counts = torch.tensor(erased_counts(size, shares)).unsqueeze(1)
    first = rank < counts  # (B, N)
    every = torch.ones(1, size, dtype=torch.bool)
    found = keep(torch.cat([every, ~first, first]))
    whole, without, alone = found.split([1, len(shares), len(shares)])
    return float((whole - without).mean()), float((whole - alone).mean())
