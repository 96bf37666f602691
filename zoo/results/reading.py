"""The answer to a query about a document."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from zoo.results.base import trust
from zoo.utils.atomic import write_text


@dataclass(frozen=True)
class Reading:
    """The missing word of a query, and where in the document the model looked for it."""

    answer: str
    # of the candidates in their order; without candidates of all words, most probable first
    probabilities: dict[str, float]
    document: list[str]  # words
    weights: Tensor  # (document words,) sums to 1
    query: list[str]
    query_weights: Tensor | None  # (query words,) sums to 1; None for the attention-sum reader
    confidence: float | None = None  # calibrated probability that the answer is good; None without a calibration
    warnings: list[str] = field(default_factory=list)  # reasons to doubt the answer

    @property
    def tokens(self) -> list[list[str]]:
        """Document and query: the common name of the input in all results of this package."""
        return [self.document, self.query]

    def line(self) -> str:
        """The answer as one line."""
        return f"{self.answer} {self.probabilities[self.answer]:.4f}"

    def plot(self, path: str | os.PathLike) -> Path:
        """Plots query, candidates and document into an image file (format by extension) and returns the path."""
        from zoo.plots import reading_picture

        return reading_picture(
            path, self.document, self.weights, self.query, self.query_weights, self.probabilities, self.answer
        )

    def to_html(self, path: str | os.PathLike) -> Path:
        """Writes the plot as one HTML file and returns the path."""
        from zoo.plots import reading_html

        html = reading_html(
            self.document, self.weights, self.query, self.query_weights, self.probabilities, self.answer
        )
        write_text(path, html)
        return Path(path)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "answer": self.answer,
            "probabilities": {word: round(p, 6) for word, p in self.probabilities.items()},
            "document": self.document,
            "weights": _rounded(self.weights),
            "query": self.query,
            "query_weights": None if self.query_weights is None else _rounded(self.query_weights),
            **trust(self),
        }


def _rounded(weights: Tensor) -> list[float]:
    return (weights.double() * 1e5).round().div(1e5).tolist()
