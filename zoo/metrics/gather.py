"""What all processes of a distributed run have collected."""

from typing import TypeVar

import torch.distributed as dist

Item = TypeVar("Item")


def gathered(items: list[Item]) -> list[Item]:
    """The items of all processes, in the order of their ranks; without `torch.distributed` the items themselves."""
    if not (dist.is_available() and dist.is_initialized()):
        return items
    shards: list[list[Item]] = [[]] * dist.get_world_size()
    dist.all_gather_object(shards, items)
    return [item for shard in shards for item in shard]
