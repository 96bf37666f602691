"""A translated sentence, and its attention maps of all layers and heads."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from zoo.plots.html import Section, plain_section
from zoo.plots.style import Drawn
from zoo.results.base import ByValue, Result, alternatives, attended, columns_of_pairs, finite, rounded, trust

if TYPE_CHECKING:
    from torch import Tensor

WITH_ATTENTION = "a bahdanau or luong model"


@dataclass(frozen=True, repr=False, eq=False)
class Translation(Result):
    """One translated sentence of T tokens, from S source tokens.

    Attributes:
        text: The translation.
        score: Length-normalised log-probability.
        source_tokens: S tokens.
        tokens: T tokens, including EOS.
        attention: (T, S) float; None for a model without attention; a NumPy array from `zoo.runtime`.
        n_best: (text, score), best first; random samples in the order drawn.
        confidence: Calibrated probability that the answer is good; None without a calibration.
        warnings: Reasons to doubt the answer.
    """

    text: str
    score: float
    source_tokens: list[str]
    tokens: list[str]
    attention: "Tensor | None"
    n_best: list[tuple[str, float]] = field(default_factory=list)
    confidence: float | None = None
    warnings: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The answer as one line."""
        return self.text

    def _section(self) -> Section:
        from zoo.plots.alignment import alignment_section

        if self.attention is None or not (self.tokens and self.source_tokens):
            texts = {"source": " ".join(self.source_tokens), "translation": self.text}
            note = "This model has no attention." if self.tokens else "There are no words to look at."
            return plain_section(self.text, texts, {}, note)
        return alignment_section(self.source_tokens, self.tokens, self.attention, self.text)

    def _drawn(self, path: str | os.PathLike | None, title: str | None) -> Drawn:
        from zoo.plots import alignment_heatmap

        return alignment_heatmap(path, self.source_tokens, self.tokens, self._attended(), title)

    def _columns(self) -> dict[str, list]:
        return columns_of_pairs(self.source_tokens, self.tokens, self._attended())

    def _attended(self) -> "Tensor":
        """The attention; ValueError says whether the translation or the model has none."""
        if not self.tokens:
            raise ValueError("an empty translation has no attention to plot or tabulate; translate a sentence first")
        return attended(self.attention, WITH_ATTENTION)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values; `n_best` only if there are several."""
        return {
            "text": self.text,
            "score": finite(self.score),
            "source_tokens": self.source_tokens,
            "tokens": self.tokens,
            "attention": None if self.attention is None else rounded(self.attention),
            **trust(self),
            **alternatives(self.n_best),
        }


@dataclass(frozen=True, eq=False)
class Look(ByValue):
    """Attention maps of all layers and H heads for one sentence of S tokens and its translation of T.

    Attributes:
        source_tokens: S tokens.
        target_tokens: T tokens, including EOS.
        encoder: (layers, H, S, S) float, source tokens to source tokens.
        decoder: (layers, H, T, T) float, each step to its prefix, BOS first.
        cross: (layers, H, T, S) float, each step to source tokens.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    encoder: "Tensor" = field(repr=False)
    decoder: "Tensor" = field(repr=False)
    cross: "Tensor" = field(repr=False)

    def plot(
        self,
        path: str | os.PathLike | None = None,
        part: Literal["encoder", "decoder", "cross"] = "cross",
        layer: int = -1,
        heads: Sequence[int] | None = None,
    ) -> Drawn:
        """Plots heads of a layer next to each other.

        Args:
            path: image file to write (format by extension); without it the figure is returned.
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
        count, number = len(maps), maps.shape[1]
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
        sides = ("target" if part == "decoder" else "source", "source" if part == "encoder" else "target")
        return heads_heatmap(path, columns, rows, maps[layer][list(chosen)], titles, sides)
