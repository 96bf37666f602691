"""Erasing what a model attended to: comprehensiveness and sufficiency.

DeYoung, Jain, Rajani, Lehman, Xiong, Socher and Wallace 2020, "ERASER", https://aclanthology.org/2020.acl-main.408/,
section 4.3.

Shapes: N words (or regions) of an input, B shares, O orders, K variants of the input.
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


def random_orders(size: int, generator: torch.Generator) -> Tensor:
    """Orders of the words at random, (O, N): one is drawn, and the others are it beginning at another place.

    So each word is early in some and late in others, and their mean depends less on the draw than that of as many
    independent ones.

    Args:
        size: N; there are `RANDOM` orders, or N if these are fewer.
        generator: draws the first.
    """
    first = top_first(torch.rand(size, generator=generator))
    times = min(RANDOM, size)
    return torch.stack([first.roll(-(turn * size // times)) for turn in range(times)])


def erased_counts(size: int, shares: Sequence[float] = SHARES) -> list[int]:
    """How many of `size` words each share is, rounded up, so at least one."""
    return [math.ceil(share * size) for share in shares]


def erasure(keep: Keep, orders: Tensor, shares: Sequence[float] = SHARES) -> tuple[Tensor, Tensor]:
    """Comprehensiveness and sufficiency of orders of words, each the mean over the shares (their AOPC).

    With p the probability of the answer, comprehensiveness is p(all) - p(without the first words), high if these
    mattered; sufficiency is p(all) - p(the first words alone), low if these are enough.

    The paper's AOPC has one more term, which is 0 for comprehensiveness, and divides by B + 1.

    Args:
        keep: bool (K, N), which words stay in each of K variants -> the probability of the answer (K,).
        orders: (O, N) the words, the first to be erased first.
        shares: shares of the words to erase, or to keep.

    Returns:
        (O,) and (O,).
    """
    ranks = orders.argsort(dim=1).unsqueeze(1)  # of each word, (O, 1, N)
    first = ranks < torch.tensor(erased_counts(orders.size(1), shares)).unsqueeze(1)  # (O, B, N)
    rows = first.flatten(0, 1)
    found = keep(torch.cat([torch.ones_like(rows[:1]), ~rows, rows]))
    whole, without, alone = found.split([1, len(rows), len(rows)])
    return (
        (whole - without).unflatten(0, first.shape[:2]).mean(1),
        (whole - alone).unflatten(0, first.shape[:2]).mean(1),
    )
