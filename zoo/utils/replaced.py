"""A method of one object, replaced for a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(thing: object, method: str, function: Callable[..., Any]) -> Iterator[None]:
    """Context: a function in place of a method of one object."""
    setattr(thing, method, function)
    try:
        yield
    finally:
        delattr(thing, method)
