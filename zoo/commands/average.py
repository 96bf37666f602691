"""Average of the weights of several models with the same origin (Wortsman et al. 2022, arXiv:2203.05482).

It is often better than each of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from zoo.tasks.base import ZooModule

# Settings of training and search, beside all fractional numbers, such as dropout: models may differ in them.
FREE = {
    "backbone_weights",
    "baseline",
    "beam_size",
    "encoder_epoch",
    "locked_dropout",
    "sampled_words",
    "samples",
    "self_critical_epoch",
}


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The settings of two models of one class that make them compute otherwise."""
    return sorted(
        key
        for key in one.keys() - FREE
        if one[key] != other[key] and not isinstance(one[key], float) and not isinstance(other[key], float)
    )


@torch.no_grad()
def average(models: Sequence[ZooModule], names: Sequence[str]) -> ZooModule:
    """Puts the average of the weights of all models into the first one.

    Args:
        models: at least one; of one class, with the same vocabulary, labels and shapes.
        names: their names in messages.

    Returns:
        The first model; the others are unchanged.

    Raises:
        ValueError: the models differ.
    """
    first, states = models[0], [model.state_dict() for model in models]
    shapes = [{key: tensor.shape for key, tensor in state.items()} for state in states]
    for name, other, sizes in zip(names, models, shapes, strict=True):
        if type(other) is not type(first):
            raise ValueError(
                f"models must be of one class; {names[0]} is a {type(first).__name__}, {name} a {type(other).__name__}"
            )
        if sizes != shapes[0]:
            differs = sorted(key for key in shapes[0].keys() | sizes.keys() if shapes[0].get(key) != sizes.get(key))
            raise ValueError(f"models must have the same sizes; {names[0]} and {name} differ in {differs[0]}")
        if first.assets() != other.assets():
            raise ValueError(f"models must have the same vocabulary and labels; those of {names[0]} and {name} differ")
        if differs := _differences(first.config, other.config):
            raise ValueError(
                f"models must compute in the same way; {names[0]} and {name} differ in {', '.join(differs)}"
            )
    if len(models) == 1:  # bit by bit, as what was measured of it holds for no other weights: 0 + -0.0 is 0.0
        return first
    floats = [key for key, tensor in states[0].items() if tensor.is_floating_point()]
    means = {key: sum(state[key].double() for state in states) / len(states) for key in floats}
    for key, mean in means.items():  # only now, because tied weights have two names
        states[0][key].copy_(mean)
    first.calibration = first.explains = None  # they were those of other weights
    return first
