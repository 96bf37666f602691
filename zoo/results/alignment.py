"""Two aligned sentences."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Alignment:
    """Soft and hard alignment of two given sentences."""

    source_words: list[str]
    target_words: list[str]
    # (target words, source words); without the weight of EOS, so rows sum to less than 1 (also with local-p)
    attention: Tensor
    # (source word, target word) from 0: the most attended source word of each target word, unless EOS
    links: list[tuple[int, int]]

    def plot(self, path: str | os.PathLike) -> Path:
        """Draws the alignment heat map into an image file (format by extension) and returns the path."""
        from zoo.plots import alignment_heatmap

        return alignment_heatmap(path, self.source_words, self.target_words, self.attention)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        attention = [[round(a, 4) for a in row] for row in self.attention.tolist()]
        links = [list(link) for link in self.links]
        return {
            "source_words": self.source_words,
            "target_words": self.target_words,
            "attention": attention,
            "links": links,
        }
