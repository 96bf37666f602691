"""Texts in capitals, for models that have read few or none."""

import re

from zoo.text.tokenizer import UNK, Tokenizer

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_CAPITALS_SHARE = 0.7  # of the letters of a text that is in capitals
_LONGEST_SHORT_WORD = 3  # letters; a text that has no longer word in capitals may be an abbreviation


def in_capitals(text: str) -> bool:
    """Whether most letters of a text are in words of capitals, and one of these is longer than most abbreviations."""
    words = _WORD.findall(text)
    loud = [word for word in words if len(word) > 1 and word.isupper()]
    letters = sum(map(len, words))
    return sum(map(len, loud)) >= _CAPITALS_SHARE * letters and max(map(len, loud), default=0) > _LONGEST_SHORT_WORD


def read_capitals(text: str, tokenizer: Tokenizer) -> str | None:
    """A text in capitals as a usual sentence, if the tokenizer knows the words of that better; else None.

    The first word gets a capital. Every other word becomes lower case, unless the vocabulary needs fewer tokens for it
    with a capital: German nouns keep theirs.
    """
    if not in_capitals(text):
        return None
    first = _WORD.search(text)

    def usual(found: re.Match[str]) -> str:
        word = found[0]
        small, large = word.lower(), word.capitalize()
        if word == "I" or (first and found.start() == first.start()):
            return large
        return min(small, large, key=lambda form: _cost(form, tokenizer))

    quiet = _WORD.sub(usual, text)
    return quiet if _cost(quiet, tokenizer) < _cost(text, tokenizer) else None


def _cost(text: str, tokenizer: Tokenizer) -> tuple[int, int]:
    """Unknown tokens and all tokens of a text."""
    ids = tokenizer.encode(text)
    return ids.count(UNK), len(ids)
