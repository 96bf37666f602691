"""A completed text."""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zoo.plots.html import Section, plain_section
from zoo.plots.style import Drawn
from zoo.results.base import Result, alternatives, attended, finite, rounded, trust

if TYPE_CHECKING:
    from torch import Tensor

WITH_ATTENTION = "a key-value-predict model"


@dataclass(frozen=True, repr=False, eq=False)
class Completion(Result):
    """A text of T words with its completion, and where each word looked.

    Attributes:
        text: All of it.
        continuation: What was added.
        score: Length-normalised log-probability of the added words; -inf if the search's rules allow no word.
        tokens: T words as the model reads them, including ends of lines.
        given: Number of them that the user gave.
        attention: (T, L) float, on 1, 2, ... L steps back when the word was predicted; None without attention; a
            NumPy array from `zoo.runtime`.
        n_best: (text, score), best first; random samples in the order drawn.
        confidence: Calibrated probability that the answer is good; None without a calibration.
        warnings: Reasons to doubt the answer.
    """

    text: str
    continuation: str
    score: float
    tokens: list[str]
    given: int
    attention: "Tensor | None"
    n_best: list[tuple[str, float]]
    confidence: float | None = None
    warnings: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The answer as one line."""
        return self.text

    def _section(self) -> Section:
        from zoo.plots.look_back import look_back_section

        if self.attention is None or not self.tokens:
            note = "This model has no attention." if self.tokens else "There are no words to look at."
            return plain_section(self.text, {"text": self.text}, {}, note)
        return look_back_section(self.tokens, self.attention, self.given, self.text)

    def _drawn(self, path: str | os.PathLike | None, title: str | None) -> Drawn:
        from zoo.plots import look_back_picture

        attention = attended(self.attention, WITH_ATTENTION)
        return look_back_picture(path, self.tokens, attention, self.given, title)

    def _columns(self) -> dict[str, list]:
        from zoo.plots.look_back import START

        attention = attended(self.attention, WITH_ATTENTION)
        read = [START, *self.tokens]  # word n was read before token n was predicted
        places = [(n, d) for n in range(len(self.tokens)) for d in range(1, min(attention.shape[1], n) + 1)]
        return {
            "position": [n for n, _ in places],
            "word": [self.tokens[n] for n, _ in places],
            "back": [d for _, d in places],
            "seen_position": [n - d - 1 for n, d in places],
            "seen": [read[n - d] for n, d in places],
            "weight": [float(attention[n, d - 1]) for n, d in places],
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values; `n_best` only if there are several."""
        return {
            "text": self.text,
            "continuation": self.continuation,
            "score": finite(self.score),
            "tokens": self.tokens,
            "given": self.given,
            "attention": None if self.attention is None else rounded(self.attention),
            **trust(self),
            **alternatives(self.n_best),
        }
