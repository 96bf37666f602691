"""Attention maps of all layers and heads of a translator with multi-head attention."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, NamedTuple

from torch import Tensor

from zoo.batches.translation import pad_batch
from zoo.tasks.base import evaluated
from zoo.tasks.translation import Memory, TranslationModule
from zoo.text import EOS


class AttentionMaps(NamedTuple):
    """Weights of every layer and head: (layers, B, H, S, S), (layers, B, H, T, T) and (layers, B, H, T, S)."""

    encoder: Tensor
    decoder: Tensor
    cross: Tensor


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


class MultiHeadTranslation(TranslationModule[Memory], Generic[Memory]):
    """Base class of translators with multi-head attention."""

    def attention_maps(self, src: Tensor, src_lengths: Tensor, tgt: Tensor) -> AttentionMaps:
        """All weights of a forward pass; arguments as in `forward`."""
        raise NotImplementedError

    @evaluated
    def look(self, source: str, target: str | None = None) -> Look:
        """Attention maps of all layers and heads for a sentence and its translation.

        Args:
            source: the sentence.
            target: its translation; the model's own if not given.

        Raises:
            ValueError: a sentence is empty or too long, or the model has no tokenizer.
            TypeError: a sentence is not a string.
        """
        self.check_ready(self.src_tokenizer, self.tgt_tokenizer)
        for text in (source, "" if target is None else target):
            if not isinstance(text, str):
                raise TypeError(
                    f"look takes a sentence and, optionally, its translation, as strings; got {type(text).__name__}"
                )
        if target is None:
            target = self.translate(source).text
        src_tokenizer, tgt_tokenizer = self.tokenizers
        src, tgt = src_tokenizer.encode(source), tgt_tokenizer.encode(target)
        self._check_lengths([src, tgt])
        if not src or not tgt:
            raise ValueError("the sentence or its translation is empty; give both with words")
        batch = pad_batch([src], [tgt])
        inputs = batch.src, batch.src_lengths, batch.targets()[0][:, :-1]
        maps = self.attention_maps(*(x.to(self.device) for x in inputs))
        tokens = src_tokenizer.tokens([*src, EOS]), tgt_tokenizer.tokens([*tgt, EOS])
        return Look(*tokens, *(part[:, 0].cpu() for part in maps))
