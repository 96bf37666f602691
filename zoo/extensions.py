"""Your own scores, kinds of attention and normalisations, by name, in every model that has the choice.

    @zoo.register_score("cosine")
    class CosineScore(nn.Module): ...

Afterwards `score: cosine` works in recipes and in Python as the built-in names do. A model of your own is made known by
`zoo.register` (zoo/registry.py). docs/guides/own_mechanism.md is a worked example.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args, get_origin

import zoo.models
from zoo.layers.attention import ATTENTIONS, NORMALIZATIONS
from zoo.layers.scores import SCORES
from zoo.tasks.base import ZooModule

T = TypeVar("T", bound=Callable[..., Any])


def register_score(name: str) -> Callable[[T], T]:
    """Decorator that makes a score available as `score: name`.

    Args:
        name: New name, a Python identifier.

    The class takes (query_size, memory_size, attention_size, max_length) and has `project(memory)` (B, S, M) -> keys
    and `forward(query, keys)` (B, T, H) -> scores (B, T, S); see zoo/layers/scores.py.

    Raises:
        ValueError: the name is taken, or not an identifier.
    """
    return _adder("score", SCORES, name)


def register_attention(name: str) -> Callable[[T], T]:
    """Decorator that makes a choice of positions available as `attention: name`.

    Args:
        name: New name, a Python identifier.

    The class derives from `zoo.layers.attention.GlobalAttention` and overrides `weights`.

    Raises:
        ValueError: the name is taken, or not an identifier.
    """
    return _adder("attention", ATTENTIONS, name)


def register_normalization(name: str) -> Callable[[T], T]:
    """Decorator that makes a normalisation available as `normalize: name`.

    Args:
        name: New name, a Python identifier.

    The function takes scores (B, T, S) float and a mask (B, 1, S) or (B, T, S) bool, True where attention may go, and
    returns weights (B, T, S), 0 where the mask is False.

    Raises:
        ValueError: the name is taken, or not an identifier.
    """
    return _adder("normalize", NORMALIZATIONS, name)


def _adder(argument: str, table: dict[str, Any], name: str) -> Callable[[T], T]:
    if not name.isidentifier():
        raise ValueError(f"the name of a {argument} must be a Python identifier; got {name!r}")

    def add(part: T) -> T:
        known = table.get(name)
        # a module that is imported again, as in a notebook, replaces its own
        if known is not None and (known.__module__, known.__qualname__) != (part.__module__, part.__qualname__):
            raise ValueError(f"there is already a {argument} {name!r}, of {known.__module__}; choose another name")
        for signature in _choosing(argument, table):
            values = dict.fromkeys([*get_args(signature[argument]), name])
            signature[argument] = Literal[tuple(values)]
        table[name] = part
        return part

    return add


def _choosing(argument: str, table: dict[str, Any]) -> list[dict[str, Any]]:
    """The annotations of the models that choose from a table by an argument."""
    found = []
    for module in pkgutil.iter_modules(zoo.models.__path__):
        for cls in vars(importlib.import_module(f"zoo.models.{module.name}")).values():
            if inspect.isclass(cls) and issubclass(cls, ZooModule):
                types = cls.__init__.__annotations__
                choices = types.get(argument)
                if get_origin(choices) is Literal and table.keys() & set(get_args(choices)):
                    found.append(types)
    return found
