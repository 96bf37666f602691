"""Checks of what verbs are given and of what models compute, each with a message for the user."""

from collections.abc import Iterable, Iterator, KeysView, Mapping, Set
from typing import Any, TypeVar

import numpy as np

from zoo.utils.numbers_given import check_integer

T = TypeVar("T")
Many = list[T] | tuple[T, ...] | Iterator[T]  # for a type checker: unlike Iterable[str] it does not hold str


def check_finite(scores: np.ndarray) -> np.ndarray:
    """Raises ValueError if an output is NaN or infinite, which is meaningless and cannot be written as JSON."""
    if not np.isfinite(scores).all():
        raise ValueError(
            "the model computes NaN or infinite scores: its weights are too large, or its training diverged"
        )
    return scores


def check_many(values: Any, verb: str, what: str = "a string or a list of strings") -> None:
    """Raises TypeError for what is no collection of inputs in an order; the message says that `verb` takes `what`."""
    fault = ""
    if isinstance(values, Mapping) or hasattr(values, "columns"):  # of these only the keys would be read
        fault = ": give its values, or one of its columns"
    elif isinstance(values, (bytes, bytearray, memoryview)):
        fault = ": decode the bytes, e.g. str(text, 'utf-8')"
    elif isinstance(values, Set) and not isinstance(values, KeysView):  # the keys of a dict have an order
        fault = ", which has no order: give a list, as results come in the order of the inputs"
    if fault or not isinstance(values, Iterable):
        raise TypeError(f"{verb} takes {what}; got {type(values).__name__}{fault}")


def as_list(values: Any, verb: str, what: str = "a string or a list of strings") -> list[Any]:
    """The inputs of a verb, as a list; errors as in `check_many`."""
    check_many(values, verb, what)
    return list(values)


def texts_of(values: Any, verb: str) -> tuple[bool, list[str]]:
    """Whether a verb was given one text, and the list of its texts.

    Raises:
        TypeError: neither a string nor a collection of strings; the message names the first that is none.
    """
    if isinstance(values, str):
        return True, [values]
    texts = as_list(values, verb)
    for n, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise TypeError(
                f"{verb} takes a string or a list of strings; got {type(text).__name__} in the list, as number {n}"
            )
    return False, texts


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
    """Raises ValueError for a `batch_size` below 1, TypeError for one that is no integer."""
    check_integer("batch_size", batch_size)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}")


def check_assets(assets: dict[str, str], *names: str) -> None:
    """Raises ValueError unless the assets of a model are exactly those named."""
    if sorted(assets) != sorted(names):
        raise ValueError(
            f"next to the weights there must be {', '.join(names)}; the bundle lists {', '.join(sorted(assets)[:5])}"
        )
