"""Two aligned sentences."""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zoo.plots.html import Section, plain_section
from zoo.plots.style import Drawn
from zoo.results.base import Result, columns_of_pairs, rounded, trust

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, repr=False, eq=False)
class Alignment(Result):
    """Soft and hard alignment of two given sentences of S and T words.

    Attributes:
        source_words: S words.
        target_words: T words.
        attention: (T, S) float, without the weight of EOS, so rows sum to less than 1 (also with local-p); a
            NumPy array from `zoo.runtime`.
        links: (source word, target word) from 0: the most attended source word of each target word, unless EOS.
        confidence: None: no reference tells how often links are right.
        warnings: Reasons to doubt the alignment.
    """

    source_words: list[str]
    target_words: list[str]
    attention: "Tensor"
    links: list[tuple[int, int]]
    confidence: float | None = None
    warnings: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The links as `zoo align` prints them: source word, hyphen, target word."""
        return " ".join(f"{i}-{j}" for i, j in self.links)

    def _section(self) -> Section:
        from zoo.plots.alignment import alignment_section

        sentences = {"source": " ".join(self.source_words), "target": " ".join(self.target_words)}
        if not (self.source_words and self.target_words):
            return plain_section(sentences["target"], sentences, {}, "There are no words to align.")
        return alignment_section(self.source_words, self.target_words, self.attention, sentences["target"])

    def _drawn(self, path: str | os.PathLike | None, title: str | None) -> Drawn:
        from zoo.plots import alignment_heatmap

        return alignment_heatmap(path, self.source_words, self.target_words, self.attention, title)

    def _columns(self) -> dict[str, list]:
        return columns_of_pairs(self.source_words, self.target_words, self.attention)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "source_words": self.source_words,
            "target_words": self.target_words,
            "attention": rounded(self.attention),
            "links": [list(link) for link in self.links],
            **trust(self),
        }
