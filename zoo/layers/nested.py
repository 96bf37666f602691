"""Tensors in nested tuples, lists, dicts and dataclasses, such as the state of a decoder."""

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor


def mapped(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Applies a function to every tensor of nested (named) tuples, lists, dicts and dataclasses.

    Raises:
        TypeError: an object of another class has tensors, which would stay as they are.
    """
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, (tuple, list)):
        items = [mapped(function, item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    if isinstance(tree, dict):
        found = copy(tree)
        found.update((name, mapped(function, item)) for name, item in tree.items())
        return found
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{x.name: mapped(function, getattr(tree, x.name)) for x in fields(tree)})
    if any(isinstance(x, Tensor) for x in getattr(tree, "__dict__", {}).values()):
        raise TypeError(
            "state and memory of a search are tensors in tuples, lists, dicts and dataclasses; got tensors in a "
            f"{type(tree).__name__}: give these in a dict"
        )
    return tree


def taken(tree: Any, index: Tensor) -> Any:
    """The rows `index` (b,) of every tensor (B, ...)."""
    return mapped(lambda x: x.index_select(0, index), tree)


def tensors_of(tree: Any) -> list[Tensor]:
    """All tensors, in their order."""
    found = []
    mapped(lambda x: found.append(x) or x, tree)
    return found
