"""Batches of running text."""

from typing import NamedTuple

from torch import Tensor


class SoftLabels(NamedTuple):
    """What is expected in the place of each label, as a distribution of which K words are known.

    Attributes:
        words: (B, T, K) int64, different ones in each place.
        probabilities: (B, T, K) of them; what they lack of 1 is that of all other words together.
    """

    words: Tensor
    probabilities: Tensor


class LMBatch(NamedTuple):
    """A segment of running text that `B` streams read in parallel; `T` steps.

    Attributes:
        inputs: (B, T) int64, the words read; PAD only after the end of a stream.
        labels: (B, T) int64, the word that follows each input; the next segment begins with the last one. PAD:
            none.
        first: the streams begin here; otherwise each continues where it ended in the previous batch.
        soft: is learnt in place of the labels, if given.
    """

    inputs: Tensor
    labels: Tensor
    first: bool
    soft: SoftLabels | None = None
