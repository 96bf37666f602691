"""Your own scores, kinds of attention and normalisations, by name, in every model that has the choice.

    @zoo.register_score("cosine")
    class CosineScore(nn.Module): ...

Afterwards `score: cosine` works in recipes and in Python as the built-in names do. A model of your own is made known by
`zoo.register` (zoo/registry.py). docs/guides/own_mechanism.md is a worked example.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, get_args, get_origin

import torch
from torch import nn

import zoo.models
from zoo.layers.attention import ATTENTIONS, NORMALIZATIONS, GlobalAttention
from zoo.layers.scores import SCORES
from zoo.tasks.base import ZooModule
from zoo.utils.modules import path_of

T = TypeVar("T", bound=Callable[..., Any])
SIZE = 64  # of what a new part is tried with


def register_score(name: str) -> Callable[[T], T]:
    """Decorator that makes a score available as `score: name`.

    Args:
        name: New name, a Python identifier.

    The class takes (query_size, memory_size, attention_size, max_length) and has `project(memory)` (B, S, M) -> keys
    and `forward(query, keys)` (B, T, H) -> scores (B, T, S); see zoo/layers/scores.py.

    Raises:
        ValueError: the name is taken, or not an identifier; or what is registered cannot be used like that.
    """
    return _adder("score", SCORES, name, _check_score)


def register_attention(name: str) -> Callable[[T], T]:
    """Decorator that makes a choice of positions available as `attention: name`.

    Args:
        name: New name, a Python identifier.

    The class derives from `zoo.layers.attention.GlobalAttention` and overrides `weights`.

    Raises:
        ValueError: the name is taken, or not an identifier; or what is registered cannot be used like that.
    """
    return _adder("attention", ATTENTIONS, name, _check_attention)


def register_normalization(name: str) -> Callable[[T], T]:
    """Decorator that makes a normalisation available as `normalize: name`.

    Args:
        name: New name, a Python identifier.

    The function takes scores (B, T, S) float and a mask (B, 1, S) or (B, T, S) bool, True where attention may go, and
    returns weights (B, T, S), 0 where the mask is False.

    Raises:
        ValueError: the name is taken, or not an identifier; or what is registered cannot be used like that.
    """
    return _adder("normalize", NORMALIZATIONS, name, _check_normalization)


def _adder(argument: str, table: dict[str, Any], name: str, check: Callable[[str, Any], None]) -> Callable[[T], T]:
    if not (isinstance(name, str) and name.isidentifier()):
        raise ValueError(f"the name of a {argument} must be a Python identifier; got {name!r}")

    def add(part: T) -> T:
        known = table.get(name)
        # a module that is imported again, as in a notebook, replaces its own
        if known is not None and (known.__module__, known.__qualname__) != (part.__module__, part.__qualname__):
            cure = "choose another name"
            if known.__module__ == part.__module__:
                cure += ", or start Python again if you have renamed it"
            raise ValueError(f"there is already a {argument} {name!r}, {path_of(known)}; {cure}")
        check(f"{argument} {name!r}", part)
        for signature in _choosing(argument, table):
            values = dict.fromkeys([*get_args(signature[argument]), name])
            signature[argument] = Literal[tuple(values)]
        table[name] = part
        return part

    return add


def _check_score(what: str, part: Any) -> None:
    if not (inspect.isclass(part) and issubclass(part, nn.Module) and callable(getattr(part, "project", None))):
        raise ValueError(
            f"{what} must be a class of torch.nn.Module with project(memory) and forward(query, keys); got {part!r}"
        )
    _check_takes(what, part, "query_size", "memory_size", "attention_size", "max_length")
    with torch.random.fork_rng(devices=[]), torch.no_grad(), _tried(what):
        score: Any = part(SIZE, SIZE, SIZE, SIZE)
        query, memory = torch.randn(2, 3, SIZE), torch.randn(2, 5, SIZE)
        _check_shape(what, "scores", score(query, score.project(memory)))


def _check_attention(what: str, part: Any) -> None:
    if not (inspect.isclass(part) and issubclass(part, GlobalAttention)):
        raise ValueError(f"{what} must be a subclass of zoo.layers.attention.GlobalAttention; got {part!r}")


def _check_normalization(what: str, part: Any) -> None:
    _check_takes(what, part, "scores", "mask")
    with torch.random.fork_rng(devices=[]), torch.no_grad(), _tried(what):
        _check_shape(what, "weights", part(torch.randn(2, 3, 5), torch.ones(2, 1, 5, dtype=torch.bool)))


def _check_takes(what: str, part: Any, *names: str) -> None:
    """Raises ValueError if a part cannot be called with so many arguments."""
    try:
        inspect.signature(part).bind(*names)
    except TypeError as error:
        raise ValueError(f"{what} must take ({', '.join(names)}): {error}") from error


@contextmanager
def _tried(what: str) -> Iterator[None]:
    """Context: what a part of a user raises when it is tried, as one line."""
    try:
        yield
    except (RuntimeError, TypeError, AttributeError, IndexError) as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{what} fails for 2 examples of 3 queries and 5 positions: {said}") from error


def _check_shape(what: str, kind: str, found: Any) -> None:
    shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
    if shape != (2, 3, 5):
        raise ValueError(
            f"{what} must return {kind} (B, T, S), (2, 3, 5) for 2 examples of 3 queries and 5 positions; got {shape}"
        )


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
