"""Checks of a request's content; messages say what was got and what is allowed.

Status 400 is for a wrong form, 422 for content that cannot be used.
"""

import json
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Any

from zoo.serving.limits import MAX_WORD


class Refused(Exception):
    """A rejected request; the answer is one line that says why.

    Args:
        status: HTTP status.
        detail: the line.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status, self.detail = status, detail


def names(found: Collection[str], allowed: list[str], where: str = "") -> None:
    """Rejects fields that an object must not have; `where` says which object, if not the request."""
    for name in found:
        if name not in allowed:
            nearest = get_close_matches(name, allowed, n=1, cutoff=0)[0]
            raise Refused(400, f"unknown field {short(name)}{where}; nearest: {nearest}; allowed: {', '.join(allowed)}")


def text(
    value: Any, name: str, count: Callable[[str], int], most: int, may_be_empty: bool = False, remedy: str = "split it"
) -> str:
    """A text of acceptable length.

    Args:
        value: the value sent.
        name: its name in messages.
        count: counts the tokens of a text.
        most: maximum number of tokens.
        may_be_empty: allow a text without tokens.
        remedy: advice if there are too many.
    """
    if not isinstance(value, str):
        raise Refused(400, f"{name} must be a string; got {short(value)}")
    found = value.split()
    words(found, name)
    if len(found) > most:  # too long even to tokenise
        raise Refused(422, f"{name} has {len(found):,} words; at most {most:,} tokens are allowed; {remedy}")
    tokens = count(value)
    if not tokens and not may_be_empty:
        raise Refused(422, f"{name} is empty; send at least one word")
    if tokens > most:
        raise Refused(422, f"{name} has {tokens:,} tokens; at most {most:,} are allowed; {remedy}")
    return value


def words(found: list[str], name: str) -> None:
    """Rejects words that are too long."""
    if (longest := max(map(len, found), default=0)) > MAX_WORD:
        raise Refused(422, f"{name} has a word of {longest:,} characters; at most {MAX_WORD:,} are allowed")


def number(
    fields: dict[str, Any], name: str, default: Any, low: float, high: float, whole: bool = False, why: str = ""
) -> Any:
    """A numeric field; `why` says where the limit comes from."""
    value = fields.get(name, default)
    if type(value) not in ((int,) if whole else (int, float)) or not low <= value <= high:  # a bool is no number
        kind = "whole number" if whole else "number"
        raise Refused(400, f"{name} must be a {kind} from {low} to {high}{why}; got {short(value)}")
    return value


def truth(fields: dict[str, Any], name: str) -> bool:
    """A boolean field; false if missing."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise Refused(400, f"{name} must be true or false; got {short(value)}")
    return value


def short(value: Any) -> str:
    """A short description of the value that was got."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else f"a list of {len(value):,}"
    shown = json.dumps(value)
    return shown if len(shown) <= 60 else f"{shown[:50]}..."
