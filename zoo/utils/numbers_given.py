"""Checks that options given as numbers are numbers, and not too small."""

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


def check_at_least(**limits: tuple[int | float | None, int]) -> None:
    """Raises ValueError if an argument, given with its minimum, is smaller; None is always allowed."""
    for name, (value, least) in limits.items():
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}; got {value}")
