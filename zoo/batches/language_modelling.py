"""Batches of running text."""

from typing import NamedTuple

from torch import Tensor


class LMBatch(NamedTuple):
    """A segment of a running text, which `B` streams read side by side; `T` steps.

    Attributes:
        inputs: (B, T) int64, the words read; PAD only behind the end of a stream.
        labels: (B, T) int64, the word that follows each of them, which the next segment begins with; PAD: none is asked
            for.
        first: the streams begin here; otherwise each goes on where it ended in the batch before.
    """

    inputs: Tensor
    labels: Tensor
    first: bool
