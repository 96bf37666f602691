"""What every verb needs of a model, whichever engine computes: torch (zoo/tasks) or exported graphs (zoo/runtime)."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from zoo.results.base import Result
from zoo.verbs.checks import present
from zoo.verbs.confidence import Calibration
from zoo.verbs.task import Task

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
T = TypeVar("T")


class Hypotheses(Protocol):
    """What a search finds: the fields of `zoo.layers.search.SearchResult`, as tensors on the CPU or as NumPy arrays."""

    @property
    def tokens(self) -> Any: ...
    @property
    def lengths(self) -> Any: ...
    @property
    def scores(self) -> Any: ...
    @property
    def log_probs(self) -> Any: ...
    @property
    def attn_weights(self) -> Any: ...


# What models of the tasks do with raw input, and what other libraries call it.
NAMES = frozenset({"translate", "align", "caption", "classify", "complete", "answer", "predict", "generate"})


def wrong_verb(cls: type, name: str) -> AttributeError | None:
    """The error for a verb of another task; None for any other name."""
    if name not in NAMES or not hasattr(cls, "task"):
        return None
    return AttributeError(f"{cls.__name__} has no {name}: it is a model for {cls.task.name}, use {cls.task.verb}")


class Verbs:
    """Base class of the verbs of a task. An engine adds the computations that they name.

    Attributes:
        task: name, verb, input and result.
        config: arguments of the model.
        overridden: those that differ from the folder it was loaded from.
        calibration: of these weights, if they have one.
        explains: whether their attention explains their answers, as one short line; None if it was not measured.
    """

    task: Task
    config: dict[str, Any]
    overridden: frozenset[str] = frozenset()
    calibration: Calibration | None = None
    explains: str | None = None

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """Zeros of the type that attention has."""
        return np.zeros(shape, np.float32)

    def check_ready(self, *parts: Any) -> None:
        """Raises ValueError unless the model has the `parts` that raw input needs, such as a tokenizer."""
        for part in parts:
            present(part)

    @contextmanager
    def evaluating(self) -> "Iterator[Self]":
        """Context of each verb: the model to compute with."""
        yield self

    def assets(self) -> dict[str, str]:
        """Text files that raw input needs, e.g. `{"tokenizer.json": ...}`; saved next to the weights."""
        return {}

    def load_assets(self, assets: dict[str, str]) -> None:
        """Restores what `assets` returned. Called before the weights are loaded."""


class _Evaluable(Protocol):
    def evaluating(self) -> "AbstractContextManager[Self]": ...


Z = TypeVar("Z", bound=_Evaluable)


def evaluated(verb: Callable[Concatenate[Z, P], T]) -> Callable[Concatenate[Z, P], T]:
    """Decorator that runs a verb in the `evaluating()` context of its model."""

    @functools.wraps(verb)
    def run(self: Z, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.evaluating() as model:
            found = verb(model, *args, **kwargs)
            _finish(found, getattr(model, "explains", None))
        return found

    return run


def _finish(found: Any, explains: str | None) -> None:
    """Tells results whether the attention explains them, for their pictures, and frees them of their batch."""
    for one in found if isinstance(found, list) else [found]:
        if not isinstance(one, Result):
            continue
        if explains:
            object.__setattr__(one, "explains", explains)
        for field in fields(one):  # pyright: ignore[reportArgumentType]  # each result is a dataclass
            object.__setattr__(one, field.name, _owned(getattr(one, field.name)))


def _owned(value: Any) -> Any:
    """A value without the memory of the arrays of which its own are a part: a result would keep, and pickle, these."""
    if type(value) in (list, tuple):
        return type(value)(map(_owned, value))
    if hasattr(value, "untyped_storage"):
        return value if value.untyped_storage().nbytes() == value.numel() * value.element_size() else value.clone()
    if isinstance(value, np.ndarray):
        return value if value.base is None else value.copy()
    return value
