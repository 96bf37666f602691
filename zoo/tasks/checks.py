"""Checks of what models are built with and given, each with a message for the user."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

from torch import Tensor

T = TypeVar("T")


def check_finite(scores: Tensor) -> Tensor:
    """Raises ValueError if an output is NaN or infinite, which is meaningless and cannot be written as JSON."""
    if not scores.isfinite().all():
        raise ValueError(
            "the model computes NaN or infinite scores: its weights are too large, or its training diverged"
        )
    return scores


def as_list(values: Any, verb: str, what: str = "a string or a list of strings") -> list[Any]:
    """The inputs of a verb, as a list.

    Raises:
        TypeError: not a collection; the message says that `verb` takes `what`.
    """
    if not isinstance(values, Iterable):
        raise TypeError(f"{verb} takes {what}; got {type(values).__name__}")
    return list(values)


def present(part: T | None) -> T:
    """Returns a part that raw input needs, such as a tokenizer.

    Raises:
        ValueError: it is None.
    """
    if part is None:
        raise ValueError(
            "this model has no tokenizer yet; load a pretrained one with zoo.load, or train it on a data module"
        )
    return part


def check_batch_size(batch_size: int) -> None:
    """Raises ValueError for a `batch_size` below 1."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}")


def check_assets(assets: dict[str, str], *names: str) -> None:
    """Raises ValueError unless the assets of a model are exactly those named."""
    if sorted(assets) != sorted(names):
        raise ValueError(
            f"next to the weights there must be {', '.join(names)}; the bundle lists {', '.join(sorted(assets)[:5])}"
        )


def check_arguments(cls: type, signature: inspect.Signature, required: Sequence[str]) -> None:
    """Raises ValueError if a model class lacks an argument that all models of its task take."""
    if missing := [name for name in required if name not in signature.parameters]:
        raise ValueError(
            f"{cls.__name__}.__init__ must take {', '.join(missing)}, as all models of its task do; see zoo/models"
        )


def check_choices(signature: inspect.Signature, config: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that is none of those that the signature names, as in `Literal["post", "pre"]`."""
    for name, parameter in signature.parameters.items():
        choices = get_args(parameter.annotation) if get_origin(parameter.annotation) is Literal else ()
        if choices and config[name] not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {config[name]!r}")


def check_sizes(config: dict[str, Any], may_be_zero: Sequence[str]) -> None:
    """Raises ValueError for sizes and numbers of layers that are too small."""
    for name, value in config.items():
        least = 0 if name in may_be_zero else 1
        if name.endswith(("_size", "_layers")) and isinstance(value, int) and value < least:
            raise ValueError(f"{name} must be at least {least}; got {value}")
