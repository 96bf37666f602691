"""Capitals in texts for models that have read few of them: "TWO DOGS PLAY", "A man in a RED shirt", "A Man Plays"."""

import re
from collections.abc import Callable

from zoo.text.familiar import is_frequent
from zoo.text.tokenizer import UNK, Tokenizer

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_QUOTED = re.compile('["“”„«»][^"“”„«»]*["“”„«»]')  # what a sign says
_CAPITALS_SHARE = 0.7  # of the letters of a text that is in capitals
_TITLE_SHARE = 0.75  # of the words after the first that begin with a capital, in a text written as a title
_LONGEST_SHORT_WORD = 3  # letters; a text that has no longer word in capitals may be an abbreviation
_SHORTEST_LOUD_WORD = 3  # letters; shorter words in capitals, as in "US troops", stay, and so short nouns, as "LKW"
_GAIN = 2  # times fewer tokens: a single word that is in capitals, or looks so, is read otherwise only then


def in_capitals(text: str) -> bool:
    """Whether most letters of a text are in words of capitals, and one of these is longer than most abbreviations."""
    words = _WORD.findall(text)
    loud = [word for word in words if len(word) > 1 and word.isupper()]
    letters = sum(map(len, words))
    return sum(map(len, loud)) >= _CAPITALS_SHARE * letters and max(map(len, loud), default=0) > _LONGEST_SHORT_WORD


def as_title(text: str) -> bool:
    """Whether nearly all words of a text begin with a capital."""
    words = _WORD.findall(text)[1:]
    large = [word for word in words if word[0].isupper()]
    return len(words) > 1 and len(large) >= _TITLE_SHARE * len(words)


def read_capitals(text: str, tokenizer: Tokenizer, language: str = "en") -> str | None:
    """A text with capitals as a usual sentence, if the tokenizer knows the words of that better; else None.

    In a text in capitals the first word gets a capital. Every other word becomes lower case, unless the vocabulary
    needs fewer tokens for it with a capital; in German, where nouns have one, also if both forms are entries of it and
    that is the more frequent one. SS may be ß there. In other texts this happens to single words in capitals,
    and in titles to all words with one, if that takes at most half as many tokens: abbreviations and most names stay,
    and what is quoted.

    Args:
        text: as the user gave it.
        tokenizer: the model's.
        language: ISO 639 code of the text.
    """
    loud, title = in_capitals(text), as_title(text)
    first = _WORD.search(text)
    quoted = [found.span() for found in _QUOTED.finditer(text)]

    def usual(found: re.Match[str]) -> str:
        word = found[0]
        small, large = word.lower(), word.capitalize()
        is_first = first is not None and found.start() == first.start()
        if not loud and not (word.isupper() and len(word) >= _SHORTEST_LOUD_WORD) and (is_first or not title):
            return word
        if not loud and any(start < found.start() < end for start, end in quoted):
            return word
        forms = [large] if word == "I" or is_first else [small, large]
        best = _german(forms, tokenizer) if language == "de" and word.isupper() else None
        best = best or min(forms, key=cost)
        if loud:
            return best
        is_short = word.isupper() and len(word) <= _LONGEST_SHORT_WORD and best == large and not is_first
        return word if is_short or _GAIN * sum(cost(best)) > sum(cost(word)) else best

    cost = _cost(tokenizer)
    quiet = _WORD.sub(usual, text)
    return quiet if quiet != text and cost(quiet) < cost(text) else None


def _german(forms: list[str], tokenizer: Tokenizer) -> str | None:
    """The form of a German word in capitals that is an entry of the vocabulary, or becomes one by ß for SS.

    Of several entries the most frequent one, which has the lowest id; but the frequent words that hardly ever have a
    capital stay small. None if there is no entry.
    """
    if forms[0].islower() and is_frequent(forms[0], "de"):
        return forms[0]
    for found in (forms, [form.replace("ss", "ß") for form in forms]):
        entries = [(ids[0], form) for form in found if len(ids := tokenizer.encode(form)) == 1 and ids[0] != UNK]
        if entries:
            return min(entries)[1]
    return None


def _cost(tokenizer: Tokenizer) -> Callable[[str], tuple[int, int]]:
    """Counts unknown tokens and all tokens of a text."""

    def cost(text: str) -> tuple[int, int]:
        ids = tokenizer.encode(text)
        return ids.count(UNK), len(ids)

    return cost
