"""Checks that options given as numbers are numbers."""

from numbers import Integral, Real
from typing import Any


def check_integer(name: str, value: Any) -> None:
    """Raises TypeError unless the value of option `name` is an integer, of Python or NumPy, and no bool."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer; got {value!r}")


def check_number(name: str, value: Any) -> None:
    """Raises TypeError unless the value of option `name` is a number, of Python or NumPy, and no bool."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number; got {value!r}")
