"""The classes of a text, a pair of texts or a document."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from zoo.results.base import trust
from zoo.utils.atomic import write_text


@dataclass(frozen=True)
class Classification:
    """The predicted class of a text or pair, and where the model looked.

    `tokens` and `attention` have one entry per text, two for a pair.
    """

    label: str | None  # the most probable; for multi-label models the most probable chosen one, None if none is chosen
    labels: list[str]  # the chosen labels, most probable first
    probabilities: dict[str, float]  # of all labels, in the model's order
    tokens: list[list[str]]  # words of each text
    attention: list[Tensor]  # (hops, words) weights per text
    relatedness: float | None = None  # of a pair, 1 to 5; None if the model does not predict it
    confidence: float | None = None  # calibrated probability that the answer is good; None without a calibration
    warnings: list[str] = field(default_factory=list)  # reasons to doubt the answer

    def line(self) -> str:
        """The answer as one line."""
        return _line(self)

    def plot(self, path: str | os.PathLike) -> Path:
        """Plots every hop and their sum into an image file (format by extension) and returns the path."""
        from zoo.plots import hops_picture

        return hops_picture(path, self.tokens, self.attention, title=_title(self))

    def to_html(self, path: str | os.PathLike) -> Path:
        """Writes the texts with their attention as one HTML file and returns the path."""
        from zoo.plots import hops_html

        return _write_html(path, hops_html(self.tokens, self.attention, _title(self), self.probabilities))

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        attention = [_rounded(weights) for weights in self.attention]
        relatedness = {} if self.relatedness is None else {"relatedness": round(self.relatedness, 4)}
        return {**_answer(self), **relatedness, "tokens": self.tokens, "attention": attention}


@dataclass(frozen=True)
class DocumentClassification:
    """The predicted class of a document, and which sentences and words decided."""

    label: str | None  # as in Classification
    labels: list[str]
    probabilities: dict[str, float]
    words: list[list[str]]  # of each sentence
    sentence_weights: Tensor  # (sentences,) sums to 1
    word_weights: list[Tensor]  # (words,) per sentence, each sums to 1
    confidence: float | None = None  # calibrated probability that the answer is good; None without a calibration
    warnings: list[str] = field(default_factory=list)  # reasons to doubt the answer

    @property
    def tokens(self) -> list[list[str]]:
        """The same as `words`: the common name of the input in all results of this package."""
        return self.words

    @property
    def sentences(self) -> list[str]:
        """The sentences, with their words joined by spaces."""
        return [" ".join(words) for words in self.words]

    def line(self) -> str:
        """The answer as one line."""
        return _line(self)

    def plot(self, path: str | os.PathLike) -> Path:
        """Plots the document with sentence bars and word shading (format by extension) and returns the path."""
        from zoo.plots import document_picture

        return document_picture(path, self.words, self.sentence_weights, self.word_weights, title=_title(self))

    def to_html(self, path: str | os.PathLike) -> Path:
        """Writes the plot as one HTML file and returns the path."""
        from zoo.plots import document_html

        html = document_html(self.words, self.sentence_weights, self.word_weights, _title(self), self.probabilities)
        return _write_html(path, html)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        sentences = [
            {"weight": weight, "words": words, "word_weights": _rounded(weights)}
            for weight, words, weights in zip(
                _rounded(self.sentence_weights), self.words, self.word_weights, strict=True
            )
        ]
        return {**_answer(self), "sentences": sentences}


def _answer(result: Classification | DocumentClassification) -> dict[str, Any]:
    probabilities = {label: round(p, 6) for label, p in result.probabilities.items()}
    return {"label": result.label, "labels": result.labels, "probabilities": probabilities, **trust(result)}


def _line(result: Classification | DocumentClassification) -> str:
    return ", ".join(f"{label} {result.probabilities[label]:.4f}" for label in result.labels) or "no label"


def _title(result: Classification | DocumentClassification) -> str:
    if not result.labels:
        return "no label"
    return ", ".join(f"{label} {result.probabilities[label]:.3f}" for label in result.labels)


def _rounded(weights: Tensor) -> list:
    return (weights.double() * 1e4).round().div(1e4).tolist()


def _write_html(path: str | os.PathLike, text: str) -> Path:
    write_text(path, text)
    return Path(path)
