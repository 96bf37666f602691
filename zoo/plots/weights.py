"""Attention weights for plotting, from tensors, arrays or nested lists, validated against their words.

Torch is not imported: `zoo.runtime` answers without it, with NumPy arrays.
"""

import reprlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Weights: TypeAlias = "Tensor | np.ndarray | Sequence[float]"
Matrix: TypeAlias = "Tensor | np.ndarray | Sequence[Sequence[float]]"


class DocumentWeights(NamedTuple):
    """Weights of a document of S sentences of W_s words."""

    sentences: list[float]  # (S,)
    words: list[list[float]]  # (S, W_s)
    shown: list[list[float]]  # (S, W_s) word weights times the square root of their sentence's weight


class HopWeights(NamedTuple):
    """Weights of a text of n tokens in r hops."""

    hops: list[list[float]]  # (r, n)
    total: list[float]  # (n,) sum of the hops, normalised to sum to 1


def document_weights(
    sentences: Sequence[Sequence[str]], sentence_weights: Weights, word_weights: Sequence[Weights]
) -> DocumentWeights:
    """Validates the weights of a document; see `document_picture` for the arguments and errors.

    Important words of unimportant sentences fade: the shade of a word is its weight times the square root of its
    sentence's weight (Yang et al. 2016, Fig. 5).
    """
    _check_words(sentences, "sentences", "sentence")
    if not any(map(len, sentences)):
        raise ValueError("there are no words to plot")
    outer = checked(sentence_weights, "sentence_weights")
    if tuple(outer.shape) != (len(sentences),):
        raise ValueError(
            f"sentence_weights must have a weight for each of the {len(sentences)} sentences; got shape "
            f"{tuple(outer.shape)}"
        )
    if len(word_weights) != len(sentences):
        raise ValueError(
            f"word_weights must have an entry for each of the {len(sentences)} sentences; got {len(word_weights)}"
        )
    inner = []
    for n, (words, weights) in enumerate(zip(sentences, word_weights), 1):
        inner.append(checked(weights, f"word_weights of sentence {n}"))
        if tuple(inner[-1].shape) != (len(words),):
            raise ValueError(
                f"word_weights must have a weight for each of the {len(words)} words of sentence {n}; "
                f"got shape {tuple(inner[-1].shape)}"
            )
    shown = [(weights * root).tolist() for weights, root in zip(inner, np.sqrt(outer))]
    return DocumentWeights(outer.tolist(), [weights.tolist() for weights in inner], shown)


def hop_weights(
    texts: Sequence[Sequence[str]], attentions: Sequence[Matrix], labels: Sequence[str] | None
) -> list[HopWeights]:
    """Validates the weights of each text; see `hops_picture` for the arguments and errors."""
    _check_words(texts, "texts", "text")
    if len(attentions) != len(texts):
        raise ValueError(f"attentions must have an entry for each of the {len(texts)} texts; got {len(attentions)}")
    if labels is not None and len(labels) != len(texts):
        raise ValueError(f"labels must have a name for each of the {len(texts)} texts; got {len(labels)}")
    if not texts:
        raise ValueError("there are no texts to plot")
    found = []
    for n, (tokens, values) in enumerate(zip(texts, attentions), 1):
        attention = checked(values, f"attention of text {n}")
        if attention.ndim != 2 or attention.shape[1] != len(tokens):
            raise ValueError(
                f"attention must have a row for each hop and a column for each of the {len(tokens)} tokens of text "
                f"{n}; "
                f"got shape {tuple(attention.shape)}"
            )
        if not attention.size:
            raise ValueError(f"there are no tokens or no hops to plot in text {n}")
        total = attention.sum(0)
        found.append(HopWeights(attention.tolist(), (total / max(total.sum(), 1e-30)).tolist()))
    return found


def largest(rows: Sequence[Sequence[float]]) -> float:
    """The largest of all weights: the dark end of a scale. 1 if all are zero."""
    return max((max(row) for row in rows if row), default=0.0) or 1.0


def _check_words(texts: Sequence[Sequence[str]], name: str, one: str) -> None:
    if isinstance(texts, str) or any(isinstance(text, str) for text in texts):
        raise TypeError(
            f"{name} must be a list with a list of words for each {one}; got a string in place of such a list"
        )


def as_array(weights: Any) -> np.ndarray:
    """Weights as float64 numbers of NumPy.

    Args:
        weights: A tensor of any device and precision, also one with a gradient; an array; or (nested) lists.

    Raises:
        TypeError: These are not numbers.
        ValueError: Rows are of different lengths.
    """
    if hasattr(weights, "detach"):  # a tensor: only its own methods know bfloat16 and gradients
        weights = weights.detach().cpu().double().numpy()
    found = np.asarray(weights)
    if found.dtype.kind not in "biuf":
        raise TypeError(f"values that are not numbers: {reprlib.repr(weights)}")
    return found.astype(np.float64, copy=False)


def check_values(weights: np.ndarray, name: str) -> None:
    """Rejects a weight that is negative or not finite."""
    right = np.isfinite(weights) & (weights >= 0)
    if not right.all():
        raise ValueError(f"{name} must be finite and not negative; got {weights[~right][0]:g}")


def checked(values: "Weights | Matrix", name: str) -> np.ndarray:
    """Validated weights in float64."""
    try:
        weights = as_array(values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a tensor, or a list of numbers or of rows of equal length, or an array; got {error}"
        ) from None
    check_values(weights, name)
    return weights
