"""A completed text."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from zoo.results.base import existing, finite, trust


@dataclass(frozen=True)
class Completion:
    """A text with its completion, and where each word looked."""

    text: str  # all of it
    continuation: str  # what was added
    # length-normalised log-probability of the added words; -inf if the search's rules allow no word
    score: float
    tokens: list[str]  # all words as the model reads them, including ends of lines
    given: int  # number of them that the user gave
    # (len(tokens), L) weights on 1, 2, ... L steps back when the word was predicted; None without attention
    attention: Tensor | None
    n_best: list[tuple[str, float]]  # (text, score), best first; random samples in the order drawn
    confidence: float | None = None  # always: no completion is right or wrong
    warnings: list[str] = field(default_factory=list)  # reasons to doubt the answer

    def line(self) -> str:
        """The answer as one line."""
        return self.text

    def plot(self, path: str | os.PathLike) -> Path:
        """Plots what each word was predicted from into an image file (format by extension) and returns the path."""
        from zoo.plots import look_back_picture

        if self.attention is None:
            raise ValueError("this model has no attention to plot; load one that has, e.g. a key-value-predict model")
        return look_back_picture(path, self.tokens, self.attention, self.given)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values; `n_best` only if there are several."""
        attention = self.attention
        found = {
            "text": self.text,
            "continuation": self.continuation,
            "score": finite(self.score),
            "tokens": self.tokens,
            "given": self.given,
            "attention": None if attention is None else [[round(a, 4) for a in row] for row in attention.tolist()],
            **trust(self),
        }
        if len(self.n_best) > 1:
            found["n_best"] = [{"text": text, "score": score} for text, score in existing(self.n_best)]
        return found
