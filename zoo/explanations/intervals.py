"""Means with 95 % bootstrap intervals."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

DRAWS = 2000


class Interval(NamedTuple):
    """The mean of a measure over inputs, and its 95 % interval.

    Attributes:
        mean: over the inputs that have a value.
        low: 2.5 % of the bootstrap means lie below.
        high: 2.5 % of the bootstrap means lie above.
        inputs: that have a value.
    """

    mean: float
    low: float
    high: float
    inputs: int


def interval(values: Sequence[float], seed: int = 0) -> Interval:
    """The percentile bootstrap of a mean: inputs are drawn again with replacement; NaN is no value.

    Args:
        values: one per input.
        seed: of the draws.

    Raises:
        ValueError: no input has a value.
    """
    known = np.array([value for value in values if value == value])
    if not len(known):
        raise ValueError(
            "no input has a value of this measure: what it compares is equal for all words of each; give other texts"
        )
    draws = np.random.default_rng(seed).integers(len(known), size=(DRAWS, len(known)))
    low, high = np.quantile(known[draws].mean(1), [0.025, 0.975])
    return Interval(float(known.mean()), float(low), float(high), len(known))
