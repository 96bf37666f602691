"""Texts of several sentences for models that translate one at a time: taken apart, and the answers joined."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from zoo.results.translation import Translation
from zoo.text import Tokenizer
from zoo.text.casing import in_capitals, read_capitals
from zoo.text.sentences import split_sentences
from zoo.text.tokenizer import check_unicode
from zoo.verbs.confidence import NO_WORDS

_NUMBER_OF_ITEM = re.compile(r"\d+[.):]")  # of a list: it belongs to what follows
_MOST_MARKS = 100  # characters without a letter that are read with a sentence; what is longer stands alone


class Sentence(NamedTuple):
    """What a model reads at once.

    Attributes:
        given: as the user gave it, which tells its language; of a model of characters as the model reads it.
        ids: its tokens; none if it has nothing that the model could read.
        note: a warning: capitals are read in lower case, or there is no word.
        place: its name in messages.
    """

    given: str
    ids: list[int]
    note: str | None
    place: str


def read_sentences(text: str, tokenizer: Tokenizer, split: bool, language: str, place: str) -> list[Sentence]:
    """A text as one or more sentences, at least one; several have no empty one among them.

    Args:
        text: as the user gave it.
        tokenizer: of the source; one of characters reads a text as a whole, such as the date "3. May 1995".
        split: whether to look for several sentences.
        language: of the text.
        place: name of the text in messages.

    Raises:
        ValueError: the text is not valid Unicode.
    """
    check_unicode(text)
    parts = _with_words(text, split_sentences(text, language)) if split and tokenizer.kind != "char" else []
    if len(parts) < 2:
        return [_read(text, tokenizer, language, place)]
    found = [_read(part, tokenizer, language, f"sentence {n} of {place}") for n, part in enumerate(parts, 1)]
    return [sentence for sentence in found if sentence.ids] or found[:1]


def _with_words(text: str, parts: Sequence[str]) -> list[str]:
    """Sentences of which each has a letter: a mark such as ":)" belongs to the one before, a number to the next.

    A model makes up a sentence for a mark alone.

    Args:
        text: the text.
        parts: its sentences.
    """
    text, place = " ".join(text.split()), 0
    found: list[list[str]] = []
    takes, marks = False, 0  # whether the last one takes what follows, and the length of the marks in it
    for part in parts:
        gap = " " if text[place : place + 1] == " " else ""
        place += len(gap) + len(part)
        has_letter = any(map(str.isalpha, part))
        marks += 0 if has_letter else len(gap) + len(part)
        is_item = not has_letter and bool(_NUMBER_OF_ITEM.fullmatch(part))
        # it has no letter yet, or this one has none
        if found and marks <= _MOST_MARKS and (takes or not has_letter and not is_item):
            found[-1] += [gap, part]
            takes = takes and not has_letter
        else:
            found.append([part])
            takes, marks = not has_letter, 0 if has_letter else len(part)
    if takes and len(found) > 1 and marks <= _MOST_MARKS:  # numbers at the end
        last = found.pop()
        found[-1] += [" ", *last]
    return ["".join(pieces) for pieces in found]


def _read(text: str, tokenizer: Tokenizer, language: str, place: str) -> Sentence:
    plain = tokenizer.plain(text)
    given = plain if tokenizer.kind == "char" else text
    if text.strip() and not any(map(str.isalnum, plain)):
        return Sentence(given, tokenizer.encode(plain), NO_WORDS, place)
    quiet = read_capitals(plain, tokenizer, language)
    if quiet is None:
        return Sentence(given, tokenizer.encode(plain), None, place)
    which = "the text is in capitals and was" if in_capitals(plain) else "some capitals were"
    return Sentence(given, tokenizer.encode(quiet), f"{which} read in lower case", place)


def join(results: Sequence[Translation], n_best: int, ranked: bool, zeros: Callable[..., Any]) -> Translation:
    """The translation of a text from those of its sentences; a single one stays as it is.

    The score is the mean of the sentences' scores and the confidence that of their confidences, both weighted with the
    numbers of tokens. Attention is zero between different sentences.

    Args:
        results: one for each sentence.
        n_best: maximum number of alternatives.
        ranked: alternatives are the best combinations of different texts; otherwise the first sample of each sentence,
            then the second.
        zeros: makes an attention matrix of a shape.
    """
    if len(results) == 1:
        return results[0]
    weights = [max(1, len(result.tokens)) for result in results]
    shares = [weight / sum(weights) for weight in weights]
    lists = [
        [(text, share * score) for text, score in result.n_best] for result, share in zip(results, shares, strict=True)
    ]
    joined = lists[0]
    for more in lists[1:]:
        if ranked:
            pairs = [(one, other) for one in joined for other in more]
            pairs = sorted(pairs, key=lambda pair: -(pair[0][1] + pair[1][1]))
        else:
            pairs = list(zip(joined, more))
        joined = [(f"{one[0]} {other[0]}".strip(), one[1] + other[1]) for one, other in pairs]
        joined = different(joined)[:n_best] if ranked else joined
    confidences = [result.confidence for result in results if result.confidence is not None]
    return replace(
        results[0],
        text=joined[0][0],
        score=joined[0][1],
        source_tokens=[token for result in results for token in result.source_tokens],
        tokens=[token for result in results for token in result.tokens],
        attention=_blocks([result.attention for result in results], zeros),
        n_best=joined,
        confidence=sum(c * share for c, share in zip(confidences, shares, strict=True))
        if len(confidences) == len(results)
        else None,
        warnings=_warnings([result.warnings for result in results]),
    )


def different(hypotheses: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The first (text, score) of each text, which several hypotheses may be: in other tokens, or cut elsewhere."""
    scores: dict[str, float] = {}
    for text, score in hypotheses:
        scores.setdefault(text, score)
    return list(scores.items())


def _warnings(found: Sequence[Sequence[str]]) -> list[str]:
    """Those of all sentences once, then those of some with the number of the sentence."""
    common = [warning for warning in found[0] if all(warning in others for others in found)]
    return common + [
        f"sentence {n}: {warning}" for n, own in enumerate(found, 1) for warning in own if warning not in common
    ]


def _blocks(attentions: Sequence[Any], zeros: Callable[..., Any]) -> Any:
    """One matrix with these on its diagonal; None if one is missing."""
    if any(attention is None for attention in attentions):
        return None
    rows, columns = (sum(attention.shape[axis] for attention in attentions) for axis in (0, 1))
    whole, row, column = zeros((rows, columns)), 0, 0
    for attention in attentions:
        down, right = attention.shape
        whole[row : row + down, column : column + right] = attention
        row, column = row + down, column + right
    return whole
