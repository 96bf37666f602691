"""Attention weights that a user gives a model, in place of its own: "what if the word had looked there?"."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Given = Mapping[int, Any]  # position in the output -> {position in the input: weight}, or a weight for each
NO_ATTENTION = "this model has no attention that could be given; load one that has, e.g. a bahdanau or luong model"


def given_weights(attention: Given, places: int, steps: int) -> np.ndarray:
    """The weights (1, T, places) float32 of the first T positions of an output; zeros where the model decides.

    Args:
        attention: as the user gave it.
        places: positions of the input.
        steps: positions that the output may have.

    Raises:
        ValueError: a position that does not exist, or numbers that are no attention weights.
        TypeError: not a mapping from positions.
    """
    if not isinstance(attention, Mapping):
        raise TypeError(f"attention must be a dict from positions of the output; got {type(attention).__name__}")
    for position in attention:
        _check_position(position, steps, "the output")
    plan = np.zeros((1, max(attention, default=-1) + 1, places), np.float32)
    for position, weights in attention.items():
        plan[0, position] = _row(weights, places, position)
    return plan


def _row(weights: Any, places: int, position: int) -> np.ndarray:
    """The weights (places,) of one position of the output."""
    if isinstance(weights, Mapping):
        row = np.zeros(places)
        for place, weight in weights.items():
            _check_position(place, places, "the input")
            row[place] = weight
    else:
        row = np.asarray(weights, np.float64).reshape(-1)
    if len(row) != places:
        raise ValueError(f"attention of position {position} must have {places} weights; got {len(row)}")
    total = row.sum()
    if not ((row >= 0).all() and 0 < total <= 1.001):  # also false for NaN; less is a part of the attention
        raise ValueError(
            f"attention of position {position} must be at least 0 everywhere and sum to at most 1; got the sum "
            f"{total:.4g} and the smallest {row.min():.4g}"
        )
    return row


def _check_position(position: Any, count: int, where: str) -> None:
    if isinstance(position, bool) or not isinstance(position, (int, np.integer)) or not 0 <= position < count:
        raise ValueError(f"attention: positions of {where} are whole numbers from 0 to {count - 1}; got {position!r}")
