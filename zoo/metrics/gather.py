"""Gathering over the processes of a distributed run."""

import math
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

Item = TypeVar("Item")


def gathered(items: list[Item]) -> list[Item]:
    """The items of all processes, by rank; without `torch.distributed` the items themselves."""
    if not (dist.is_available() and dist.is_initialized()):
        return items
    shards: list[list[Item]] = [[]] * dist.get_world_size()
    dist.all_gather_object(shards, items)
    return [item for shard in shards for item in shard]


class Mean:
    """Mean of a number over the items of all processes, summed in float64, so that the sharding does not matter."""

    def __init__(self) -> None:
        self._sums: list[tuple[Tensor | float, int]] = []

    def update(self, total: Tensor | float, count: int) -> None:
        """Adds `count` items, whose numbers sum to `total`."""
        self._sums.append((total.detach() if isinstance(total, Tensor) else total, count))

    def compute(self) -> float:
        """The mean so far, a collective call; NaN without items."""
        sums = gathered([(float(total), count) for total, count in self._sums])
        items = sum(count for _, count in sums)
        return math.fsum(total for total, _ in sums) / items if items else math.nan
