"""A translated sentence, and its attention maps of all layers and heads."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from zoo.results.base import existing, finite, trust


@dataclass(frozen=True)
class Translation:
    """One translated sentence."""

    text: str
    score: float  # length-normalised log-probability
    source_tokens: list[str]
    tokens: list[str]  # target tokens, including EOS
    attention: Tensor | None  # (len(tokens), len(source_tokens)) weights; None for a model without attention
    # (text, score), best first; random samples in the order drawn
    n_best: list[tuple[str, float]] = field(default_factory=list)
    confidence: float | None = None  # calibrated probability that the answer is good; None without a calibration
    warnings: list[str] = field(default_factory=list)  # reasons to doubt the answer

    def line(self) -> str:
        """The answer as one line."""
        return self.text

    def plot(self, path: str | os.PathLike) -> Path:
        """Draws the alignment heat map into an image file (format by extension) and returns the path."""
        from zoo.plots import alignment_heatmap

        if not self.tokens:
            raise ValueError("an empty translation has no attention to plot; translate a sentence first")
        if self.attention is None:
            raise ValueError("this model has no attention to plot; load one that has, e.g. a bahdanau or luong model")
        return alignment_heatmap(path, self.source_tokens, self.tokens, self.attention)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values; `n_best` only if there are several."""
        attention = self.attention
        found = {
            "text": self.text,
            "score": finite(self.score),
            "source_tokens": self.source_tokens,
            "tokens": self.tokens,
            "attention": None if attention is None else [[round(a, 4) for a in row] for row in attention.tolist()],
            **trust(self),
        }
        if len(self.n_best) > 1:
            found["n_best"] = [{"text": text, "score": score} for text, score in existing(self.n_best)]
        return found


@dataclass(frozen=True)
class Look:
    """Attention maps of all layers and heads for one sentence and its translation."""

    source_tokens: list[str]
    target_tokens: list[str]  # including EOS
    encoder: Tensor  # (layers, H, S, S) source tokens to source tokens
    decoder: Tensor  # (layers, H, T, T) each step to its prefix, BOS first
    cross: Tensor  # (layers, H, T, S) each step to source tokens

    def plot(
        self,
        path: str | os.PathLike,
        part: Literal["encoder", "decoder", "cross"] = "cross",
        layer: int = -1,
        heads: Sequence[int] | None = None,
    ) -> Path:
        """Plots heads of a layer next to each other into an image file (format by extension) and returns the path.

        Args:
            path: the file.
            part: which attention.
            layer: counted from 0; negative values count from the last.
            heads: counted from 0; all if not given.

        Raises:
            ValueError: no such part, layer or head.
        """
        from zoo.plots import heads_heatmap

        if part not in ("encoder", "decoder", "cross"):
            raise ValueError(f"part must be one of 'encoder', 'decoder', 'cross'; got {part!r}")
        maps: Tensor = getattr(self, part)
        count, number = len(maps), maps.size(1)
        if not isinstance(layer, int) or not -count <= layer < count:
            raise ValueError(f"layer must be a whole number from 0 to {count - 1}, or negative; got {layer!r}")
        chosen = range(number) if heads is None else heads
        if (
            not isinstance(chosen, Sequence)
            or not chosen
            or any(not isinstance(head, int) or not 0 <= head < number for head in chosen)
        ):
            raise ValueError(f"heads must be a list of whole numbers from 0 to {number - 1}; got {heads!r}")
        rows = self.source_tokens if part == "encoder" else self.target_tokens
        columns = ["<s>", *self.target_tokens[:-1]] if part == "decoder" else self.source_tokens
        titles = [f"{part}, layer {layer % count}, head {head}" for head in chosen]
        return heads_heatmap(path, columns, rows, maps[layer][list(chosen)], titles)
