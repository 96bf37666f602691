"""Batches on a device, without Lightning, which answers do not import."""

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

Batch = TypeVar("Batch", bound=NamedTuple)


def on(device: torch.device, batch: Batch) -> Batch:
    """The batch with its tensors on a device."""
    return batch._make(x.to(device) if isinstance(x, Tensor) else x for x in batch)
