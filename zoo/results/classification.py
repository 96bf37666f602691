"""The classes of a text, a pair of texts or a document."""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zoo.plots.html import Section, document_section, hops_section, plain_section
from zoo.plots.style import Drawn
from zoo.plots.weights import as_array
from zoo.results.base import Result, headed, rounded, trust

if TYPE_CHECKING:
    from torch import Tensor

EMPTY = "There are no words to look at."


@dataclass(frozen=True, repr=False, eq=False)
class Classification(Result):
    """The predicted class of a text or pair, and where the model looked.

    `tokens` and `attention` have one entry per text, two for a pair.

    Attributes:
        label: The most probable; for multi-label models the most probable chosen one, None if none is chosen.
        labels: The chosen labels, most probable first.
        probabilities: Of all labels, in the model's order.
        tokens: The n words of each text.
        attention: (hops, n) float per text; each row sums to 1; NumPy arrays from `zoo.runtime`.
        relatedness: Of a pair, 1 to 5; None if the model does not predict it.
        confidence: Calibrated probability that the answer is good; None without a calibration.
        warnings: Reasons to doubt the answer.
    """

    label: str | None
    labels: list[str]
    probabilities: dict[str, float]
    tokens: list[list[str]]
    attention: "list[Tensor]"
    relatedness: float | None = None
    confidence: float | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def probability(self) -> float:
        """That of `label`; the highest of all if none is chosen."""
        return _probability(self)

    def line(self) -> str:
        """The answer as one line."""
        return _line(self)

    def _section(self) -> Section:
        if all(self.tokens):
            return hops_section(self.tokens, self.attention, _title(self), self.probabilities, chosen=self.labels)
        texts = {f"text {n}": " ".join(words) for n, words in enumerate(self.tokens, 1)}
        return plain_section(_title(self), texts, self.probabilities, EMPTY, self.labels)

    def _drawn(self, path: str | os.PathLike | None, title: str | None) -> Drawn:
        from zoo.plots import hops_picture

        return hops_picture(path, self.tokens, self.attention, headed(title, _title(self)))

    def _columns(self) -> dict[str, list]:
        places = [
            (text, n, hop)
            for text, weights in enumerate(self.attention)
            for hop in range(weights.shape[0])
            for n in range(weights.shape[1])
        ]
        return {
            "text": [text for text, _, _ in places],
            "hop": [hop for _, _, hop in places],
            "position": [n for _, n, _ in places],
            "word": [self.tokens[text][n] for text, n, _ in places],
            "weight": [weight for weights in self.attention for weight in as_array(weights).flatten().tolist()],
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        relatedness = {} if self.relatedness is None else {"relatedness": round(self.relatedness, 4)}
        attention = [rounded(weights) for weights in self.attention]
        return {**_answer(self), **relatedness, "tokens": self.tokens, "attention": attention}


@dataclass(frozen=True, repr=False, eq=False)
class DocumentClassification(Result):
    """The predicted class of a document of S sentences, and which sentences and words decided.

    Attributes:
        label: As in `Classification`.
        labels: As in `Classification`.
        probabilities: As in `Classification`.
        words: The words of each sentence.
        sentence_weights: (S,) float, sums to 1; a NumPy array from `zoo.runtime`, as those of words.
        word_weights: For each sentence (words,) float, sums to 1.
        confidence: Calibrated probability that the answer is good; None without a calibration.
        warnings: Reasons to doubt the answer.
    """

    label: str | None
    labels: list[str]
    probabilities: dict[str, float]
    words: list[list[str]]
    sentence_weights: "Tensor"
    word_weights: "list[Tensor]"
    confidence: float | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> list[list[str]]:
        """The same as `words`: the common name of the input in all results of this package."""
        return self.words

    @property
    def probability(self) -> float:
        """That of `label`; the highest of all if none is chosen."""
        return _probability(self)

    @property
    def sentences(self) -> list[str]:
        """The sentences, with their words joined by spaces."""
        return [" ".join(words) for words in self.words]

    def line(self) -> str:
        """The answer as one line."""
        return _line(self)

    def _section(self) -> Section:
        if any(self.words):
            return document_section(
                self.words, self.sentence_weights, self.word_weights, _title(self), self.probabilities, self.labels
            )
        return plain_section(_title(self), {}, self.probabilities, EMPTY, self.labels)

    def _drawn(self, path: str | os.PathLike | None, title: str | None) -> Drawn:
        from zoo.plots import document_picture

        return document_picture(path, self.words, self.sentence_weights, self.word_weights, headed(title, _title(self)))

    def _columns(self) -> dict[str, list]:
        places = [(s, n) for s, words in enumerate(self.words) for n in range(len(words))]
        sentence_weights = as_array(self.sentence_weights).tolist()
        return {
            "sentence": [s for s, _ in places],
            "sentence_weight": [sentence_weights[s] for s, _ in places],
            "position": [n for _, n in places],
            "word": [self.words[s][n] for s, n in places],
            "weight": [weight for weights in self.word_weights for weight in as_array(weights).tolist()],
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        sentences = [
            {"weight": weight, "words": words, "word_weights": rounded(weights)}
            for weight, words, weights in zip(
                rounded(self.sentence_weights), self.words, self.word_weights, strict=True
            )
        ]
        return {**_answer(self), "sentences": sentences}


def _answer(result: Classification | DocumentClassification) -> dict[str, Any]:
    probabilities = {label: round(p, 6) for label, p in result.probabilities.items()}
    return {"label": result.label, "labels": result.labels, "probabilities": probabilities, **trust(result)}


def _probability(result: Classification | DocumentClassification) -> float:
    return max(result.probabilities.values()) if result.label is None else result.probabilities[result.label]


def _line(result: Classification | DocumentClassification) -> str:
    return ", ".join(f"{label} {result.probabilities[label]:.4f}" for label in result.labels) or "no label"


def _title(result: Classification | DocumentClassification) -> str:
    if not result.labels:
        return "no label"
    return ", ".join(f"{label} {result.probabilities[label]:.3f}" for label in result.labels)
