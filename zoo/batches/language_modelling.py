"""Batches of running text."""

from typing import NamedTuple

from torch import Tensor


class LMBatch(NamedTuple):
    """A segment of running text that `B` streams read in parallel; `T` steps.

    Attributes:
        inputs: (B, T) int64, the words read; PAD only after the end of a stream.
        labels: (B, T) int64, the word that follows each input; the next segment begins with the last one. PAD:
            none.
        first: the streams begin here; otherwise each continues where it ended in the previous batch.
    """

    inputs: Tensor
    labels: Tensor
    first: bool
