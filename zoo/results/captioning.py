"""The caption of an image."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL.Image import Image
from torch import Tensor

from zoo.results.base import existing, finite, trust
from zoo.utils.atomic import write_text


@dataclass(frozen=True)
class Caption:
    """The caption of one image."""

    text: str
    score: float  # length-normalised log-probability
    tokens: list[str]  # words, the end of the caption included
    attention: Tensor  # (len(tokens), rows, columns) weights; the square covers what the model saw of the image
    n_best: list[tuple[str, float]] = field(default_factory=list)  # (text, score), best first
    image: Image | None = field(default=None, repr=False)  # what the model saw, for the picture
    confidence: float | None = None  # calibrated probability that the answer is good; None without a calibration
    warnings: list[str] = field(default_factory=list)  # reasons to doubt the answer

    def line(self) -> str:
        """The answer as one line."""
        return self.text

    def plot(self, path: str | os.PathLike) -> Path:
        """Draws the photo once for each word, bright where the model looked; returns the path of the image file.

        Raises:
            ValueError: this caption was kept without its photo.
        """
        from zoo.plots import caption_picture

        return caption_picture(path, self._photo(), self.tokens, self.attention)

    def to_html(self, path: str | os.PathLike) -> Path:
        """Writes an HTML file that shows where the model looked for the word under the pointer; returns its path.

        Raises:
            ValueError: this caption was kept without its photo.
        """
        from zoo.plots import caption_html

        write_text(path, caption_html(self._photo(), self.tokens, self.attention, self.text))
        return Path(path)

    def _photo(self) -> Image:
        if self.image is None:
            raise ValueError("this caption has no photo to draw; make it with model.caption")
        return self.image

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values; `n_best` only if there are several."""
        attention = [[[round(w, 4) for w in row] for row in step] for step in self.attention.tolist()]
        found = {
            "text": self.text,
            "score": finite(self.score),
            "tokens": self.tokens,
            "attention": attention,
            **trust(self),
        }
        return found if len(self.n_best) < 2 else found | {"n_best": [list(pair) for pair in existing(self.n_best)]}
