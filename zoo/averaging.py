"""The mean of the weights of several models that began as one: often better than each of them (Wortsman et al. 2022, arXiv:2203.05482)."""

from collections.abc import Sequence

import torch

from zoo.module import ZooModule


@torch.no_grad()
def average(models: Sequence[ZooModule], names: Sequence[str]) -> ZooModule:
    """Puts the mean of the weights of all models into the first one.

    Args:
        models: at least one; of one class, with the same vocabulary and labels and the same shapes.
        names: what messages call them.

    Returns:
        The first model; the others stay as they are.

    Raises:
        ValueError: the models are not alike.
    """
    first, *others = models
    mine = first.state_dict()
    for name, other in zip(names[1:], others, strict=True):
        if type(other) is not type(first):
            raise ValueError(f"only models of one class have a mean; {names[0]} is a {type(first).__name__}, {name} a {type(other).__name__}")
        theirs = other.state_dict()
        shapes = [{key: tensor.shape for key, tensor in state.items()} for state in (mine, theirs)]
        if shapes[0] != shapes[1]:
            differs = sorted(key for key in shapes[0].keys() | shapes[1].keys() if shapes[0].get(key) != shapes[1].get(key))
            raise ValueError(f"only models of the same sizes have a mean; {names[0]} and {name} differ in {differs[0]}")
        if first.assets() != other.assets():
            raise ValueError(f"only models of the same vocabulary and labels have a mean; those of {names[0]} and {name} differ")
    states = [mine, *(other.state_dict() for other in others)]
    floats = [key for key, tensor in mine.items() if tensor.is_floating_point()]
    means = {key: sum(state[key].double() for state in states) / len(states) for key in floats}
    for key, mean in means.items():  # only now, as tied weights have two names
        mine[key].copy_(mean)
    return first
