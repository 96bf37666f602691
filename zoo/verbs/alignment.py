"""Word alignments, read off the attention of a translator under forced decoding of a given translation."""

from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.results.alignment import Alignment
from zoo.text import Tokenizer
from zoo.verbs.checks import check_many

Pair = tuple[str | list[str], str | list[str]]
PAIRS, _SIDE = "a pair (source, target) or a list of such tuples", "texts, or lists of words"


def pair_words(pair: object) -> tuple[list[str], list[str]]:
    """Source and target words of a user's input.

    Raises:
        TypeError: not a pair of texts or of lists of words.
    """
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(
            f"align takes {PAIRS}; got {f'a tuple of {len(pair)}' if isinstance(pair, tuple) else type(pair).__name__}"
        )
    for side in pair:
        if isinstance(side, tuple):  # a tuple of two pairs is not a pair
            raise TypeError(f"align takes {_SIDE}; got tuple")
        check_many(side, "align", _SIDE)
    source, target = (side.split() if isinstance(side, str) else list(side) for side in pair)
    if wrong := [word for word in source + target if not isinstance(word, str)]:
        raise TypeError(f"align takes {_SIDE}; got {type(wrong[0]).__name__} in the list")
    return source, target


def word_pieces(tokenizer: Tokenizer, words: list[str]) -> list[list[int]]:
    """Token ids of each word; for characters, the space before a word belongs to it."""
    words = [tokenizer.plain(word) for word in words]
    if tokenizer.kind == "char":
        return [tokenizer.encode("x " + word)[1:] if n else tokenizer.encode(word) for n, word in enumerate(words)]
    return tokenizer.encode_batch(words)


def word_alignment(
    weights: Any,
    source: list[str],
    target: list[str],
    source_pieces: list[list[int]],
    target_pieces: list[list[int]],
    zeros: Callable[..., Any],
) -> Alignment:
    """Weights (T, S) of tokens -> of words: summed over a source word's tokens, averaged over a target word's."""
    source_of, target_of = (
        np.array([n for n, ids in enumerate(pieces) for _ in ids], np.int64)
        for pieces in (source_pieces, target_pieces)
    )
    read = np.asarray(weights)[: len(target_of), : len(source_of) + 1]  # the last column is EOS
    by_source = np.zeros((len(read), len(source) + 1), read.dtype)
    np.add.at(by_source.T, np.append(source_of, len(source)), read.T)
    summed = np.zeros((len(target), len(source) + 1), read.dtype)
    np.add.at(summed, target_of, by_source)
    summed /= np.array([[max(1, len(ids))] for ids in target_pieces], read.dtype)
    words, end = summed[:, :-1], summed[:, -1]
    best, where = words.max(1), words.argmax(1)
    links = [
        (s, t)
        for t, (s, linked) in enumerate(zip(where.tolist(), ((best > end) & (best > 0)).tolist(), strict=True))
        if linked
    ]
    attention = zeros(words.shape)
    np.asarray(attention)[:] = words  # a view, of a tensor too
    return Alignment(source, target, attention, links)
