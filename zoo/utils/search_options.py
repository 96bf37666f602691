"""Checks of the options of a search, and its length penalty, for zoo/layers/search.py and zoo/runtime/search.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zoo.utils.numbers_given import check_integer, check_number

NOT_A_NUMBER = "the model computes NaN instead of probabilities: its weights are too large or damaged"


MOST_SAMPLES = 10_000  # of a sentence; more would not fit into memory


def check_search(beam_size: int, length_penalty: float) -> None:
    """Raises ValueError for settings whose search would not fit into memory or whose scores would overflow.

    TypeError: one that is no number.
    """
    check_integer("beam_size", beam_size)
    check_number("length_penalty", length_penalty)
    if not 1 <= beam_size <= 100:
        raise ValueError(f"beam_size must be from 1 to 100; got {beam_size:,}")
    if not -10 <= length_penalty <= 10:
        raise ValueError(f"length_penalty must be from -10 to 10; got {length_penalty}")


@dataclass(frozen=True)
class SearchSettings:
    """How the outputs that are scored are searched for; what is left out is the model's own setting.

    Args:
        beam_size: of the search, 1 for greedy search. If left out it is 1 in validation.
        length_penalty: alpha of `length_norm`.

    Raises:
        ValueError: a value outside its range.
    """

    beam_size: int | None = None
    length_penalty: float | None = None

    def __post_init__(self) -> None:
        check_search(1 if self.beam_size is None else self.beam_size, self.length_penalty or 0.0)


def check_beam(beam_size: int, n_best: int) -> None:
    """Raises ValueError if a beam is empty or cannot give `n_best` hypotheses, TypeError for what is no integer."""
    check_integer("beam_size", beam_size)
    check_integer("n_best", n_best)
    if beam_size < 1:
        raise ValueError(f"beam_size must be at least 1; got {beam_size}")
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best must be between 1 and beam_size = {beam_size}; got {n_best}")


def check_sampling(num_samples: int, temperature: float, top_k: int) -> None:
    """Raises ValueError for options of sampling outside their range, TypeError for one that is no number."""
    check_integer("num_samples", num_samples)
    check_number("temperature", temperature)
    check_integer("top_k", top_k)
    if not 1 <= num_samples <= MOST_SAMPLES:
        raise ValueError(f"num_samples must be from 1 to {MOST_SAMPLES:,}; got {num_samples:,}")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be greater than 0 and finite; got {temperature} (near 0 use greedy_search)")
    if top_k < 0:
        raise ValueError(f"top_k must be at least 1, or 0 for all tokens; got {top_k}")


def check_rules(
    batch: int, max_length: Any, min_length: int, forbid: Sequence[int], no_repeat_ngram: int, eos: int
) -> int:
    """Raises ValueError for limits of the length or forbidden tokens outside their range.

    Args:
        batch: number of sentences.
        max_length: () or (B,), a tensor or an array.
        min_length: minimum number of tokens.
        forbid: token ids never produced.
        no_repeat_ngram: n of the n-grams that must not repeat, or 0.
        eos: id that ends an output.

    Returns:
        The largest `max_length`.

    Raises:
        TypeError: one that is no integer.
    """
    if max_length.ndim and max_length.shape != (batch,):
        shape = tuple(max_length.shape)
        raise ValueError(f"max_length must be one number or one for each of {batch} sentences; got {shape}")
    check_integer("min_length", min_length)
    check_integer("no_repeat_ngram", no_repeat_ngram)
    for token in forbid:
        check_integer("each token id of forbid", token)
    if not batch and max_length.ndim:  # of no sentence
        return 0
    shortest, longest = int(max_length.min()), int(max_length.max())
    if shortest < 1:
        raise ValueError(f"max_length must be at least 1; got {shortest}")
    if not 0 <= min_length <= longest + 1:
        raise ValueError(f"min_length must be between 0 and max_length + 1 = {longest + 1}; got {min_length}")
    if eos in forbid:
        raise ValueError(f"forbid must not hold eos = {eos}, or no output could end; got {list(forbid)}")
    if no_repeat_ngram < 0:
        raise ValueError(f"no_repeat_ngram must be at least 1, or 0 for no rule; got {no_repeat_ngram}")
    return longest


def never_produced(vocab: int, bos: int, eos: int, pad: int, forbid: Sequence[int]) -> tuple[list[int], list[int]]:
    """The token ids, from 0 to V - 1, that are never produced, and those that are not before the shortest length.

    EOS may be BOS or PAD too, and these need not be among the tokens that are produced.

    Raises:
        ValueError: a forbidden id that does not exist.
    """
    if unknown := [int(token) for token in forbid if not 0 <= token < vocab]:
        raise ValueError(
            f"forbid must hold token ids from 0 to {vocab - 1}, of the {vocab} that step gives logits for; "
            f"got {unknown}"
        )
    never = {token for token in (bos, pad, *forbid) if 0 <= token < vocab and token != eos}
    return sorted(never), sorted(never | {token for token in (eos,) if 0 <= token < vocab})


def length_norm(length: Any, alpha: float) -> Any:
    """lp of Wu et al. 2016 (arXiv:1609.08144), Eq. 14: ((5 + n) / 6) ** alpha, of a number, a tensor or an array."""
    return ((5 + length) / 6) ** alpha
