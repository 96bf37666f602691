"""The answer to a query about a document."""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zoo.plots.html import Section
from zoo.plots.style import Drawn
from zoo.plots.weights import as_array
from zoo.results.base import Result, headed, rounded, trust

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = 5  # of a weight: a document has many words


@dataclass(frozen=True, repr=False, eq=False)
class Reading(Result):
    """The missing word of a query, and where in the document of D words the model looked for it.

    Attributes:
        answer: The missing word.
        probabilities: Of the candidates in their order; without candidates of all words, most probable first.
        document: D words.
        weights: (D,) float, sums to 1; a NumPy array from `zoo.runtime`, as those of the query.
        query: L words.
        query_weights: (L,) float, sums to 1; None for the attention-sum reader.
        confidence: Calibrated probability that the answer is good; None without a calibration.
        warnings: Reasons to doubt the answer.
    """

    answer: str
    probabilities: dict[str, float]
    document: list[str]
    weights: "Tensor"
    query: list[str]
    query_weights: "Tensor | None"
    confidence: float | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def probability(self) -> float:
        """That of `answer`."""
        return self.probabilities[self.answer]

    @property
    def tokens(self) -> list[list[str]]:
        """Document and query: the common name of the input in all results of this package."""
        return [self.document, self.query]

    def line(self) -> str:
        """The answer as one line."""
        return f"{self.answer} {self.probability:.4f}"

    def _section(self) -> Section:
        from zoo.plots.reading import reading_section

        return reading_section(
            self.document, self.weights, self.query, self.query_weights, self.probabilities, self.answer
        )

    def _drawn(self, path: str | os.PathLike | None, title: str | None) -> Drawn:
        from zoo.plots import reading_picture

        heading = headed(title, self.answer)
        return reading_picture(
            path, self.document, self.weights, self.query, self.query_weights, self.probabilities, heading
        )

    def _columns(self) -> dict[str, list]:
        parts = [("document", self.document, self.weights)]
        if self.query_weights is not None:
            parts.append(("query", self.query, self.query_weights))
        return {
            "part": [part for part, words, _ in parts for _ in words],
            "position": [n for _, words, _ in parts for n in range(len(words))],
            "word": [word for _, words, _ in parts for word in words],
            "weight": [weight for _, _, weights in parts for weight in as_array(weights).tolist()],
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "answer": self.answer,
            "probabilities": {word: round(p, 6) for word, p in self.probabilities.items()},
            "document": self.document,
            "weights": rounded(self.weights, DIGITS),
            "query": self.query,
            "query_weights": None if self.query_weights is None else rounded(self.query_weights, DIGITS),
            **trust(self),
        }
