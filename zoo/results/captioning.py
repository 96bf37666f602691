"""The caption of an image."""

import os
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from PIL.Image import Image

from zoo.plots.html import Section, plain_section
from zoo.plots.style import Drawn
from zoo.plots.weights import as_array
from zoo.results.base import Result, alternatives, finite, rounded, trust

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, repr=False, eq=False)
class Caption(Result):
    """The caption of one image, of T words.

    Attributes:
        text: The caption.
        score: Length-normalised log-probability.
        tokens: T words, the end of the caption included.
        attention: (T, rows, columns) float; the square covers what the model saw of the image; a NumPy array
            from `zoo.runtime`.
        n_best: (text, score), best first; random samples in the order drawn.
        image: What the model saw, for the picture.
        confidence: Calibrated probability that the answer is good; None without a calibration.
        warnings: Reasons to doubt the answer.
    """

    text: str
    score: float
    tokens: list[str]
    attention: "Tensor"
    n_best: list[tuple[str, float]] = field(default_factory=list)
    image: Image | None = field(default=None, repr=False)
    confidence: float | None = None
    warnings: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The answer as one line."""
        return self.text

    def _section(self) -> Section:
        from zoo.plots.caption import caption_section

        if self.image is None or not self.text:
            note = "There are no words to point at." if not self.text else "This caption was kept without its photo."
            return plain_section(self.text, {"caption": self.text}, {}, note)
        return caption_section(self.image, self.tokens, self.attention, self.text)

    def _drawn(self, path: str | os.PathLike | None, title: str | None) -> Drawn:
        from zoo.plots import caption_picture

        if self.image is None:
            raise ValueError("this caption has no photo to draw; make it with model.caption")
        return caption_picture(path, self.image, self.tokens, self.attention, title)

    def _columns(self) -> dict[str, list]:
        places = [*product(*map(range, self.attention.shape))]
        return {
            "position": [n for n, _, _ in places],
            "word": [self.tokens[n] for n, _, _ in places],
            "row": [row for _, row, _ in places],
            "column": [column for _, _, column in places],
            "weight": as_array(self.attention).flatten().tolist(),
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values; `n_best` only if there are several."""
        return {
            "text": self.text,
            "score": finite(self.score),
            "tokens": self.tokens,
            "attention": rounded(self.attention),
            **trust(self),
            **alternatives(self.n_best),
        }
