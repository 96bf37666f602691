"""Untrusted JSON: read without Python's extensions of the standard, and with bounded memory."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

BYTES, BYTES_AN_ITEM = 2**16, 256  # generous file size: a base, and an amount per item
MOST_DIGITS = 40  # of a whole number
DEEPEST = 100  # nesting; how deep Python itself reads depends on its version and on the stack
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)


def loads(text: str, items: int) -> Any:
    """The value of a JSON text.

    Args:
        text: the text.
        items: maximum number of entries (words, labels); a text much too long for them is not parsed, because that
            would take about thirty times its size in memory.

    Raises:
        ValueError: not JSON, NaN, an infinite number or a very long one, a key that occurs twice, half a surrogate
            pair, a byte order mark, nested too deeply, or too long.
    """
    if len(text) > BYTES + BYTES_AN_ITEM * items:
        raise ValueError(f"{len(text):,} characters are too many for {items:,} entries")
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark; leave that out")
    if _is_deep(text):
        raise ValueError("it is nested too deeply")
    value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse, parse_float=_finite, parse_int=_short)
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("it has half of a surrogate pair, which is no character") from error
    return value


def digest(content: Mapping[str, Any]) -> str:
    """sha256 of the values of a JSON object, whatever their layout, so that damage to a setting is detected too."""
    return hashlib.sha256(json.dumps({**content}, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _is_deep(text: str) -> bool:
    """Whether brackets are open one within another for more than DEEPEST levels."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        depth += _STEPS.get(found[0], 0)
        if depth > DEEPEST:
            return True
    return False


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(result := dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not allowed")


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits[:40]} is not allowed: it is infinite")
    return number


def _short(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits is not allowed")
    return int(digits)
