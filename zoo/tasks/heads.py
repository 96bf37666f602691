"""Attention maps of all layers and heads of a translator with multi-head attention."""

from typing import Any, Generic, NamedTuple

from torch import Tensor

from zoo.batches.translation import pad_batch
from zoo.results.translation import Look
from zoo.tasks.translation import Memory, TranslationModule
from zoo.text import EOS
from zoo.verbs.base import evaluated


class AttentionMaps(NamedTuple):
    """Weights of every layer and head: (layers, B, H, S, S), (layers, B, H, T, T) and (layers, B, H, T, S)."""

    encoder: Tensor
    decoder: Tensor
    cross: Tensor


class MultiHeadTranslation(TranslationModule[Memory], Generic[Memory]):
    """Base class of translators with multi-head attention."""

    def attention_maps(self, src: Tensor, src_lengths: Tensor, tgt: Tensor) -> AttentionMaps:
        """All weights of a forward pass; arguments as in `forward`."""
        raise NotImplementedError

    def step_with_heads(
        self, tokens: Tensor, state: tuple, memory: Any, t: int, given: Tensor | None = None
    ) -> tuple[Tensor, tuple, Tensor | None, Tensor]:
        """`step`, and the weights of all decoder layers and heads on the source (B, K, layers * heads, S)."""
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
            target = self.translate(source, split_sentences=False).text
        src_tokenizer, tgt_tokenizer = self.tokenizers
        src = self.sentences(source, False, "the sentence")[0].ids
        tgt = tgt_tokenizer.encode(tgt_tokenizer.plain(target))
        self.check_pairs([src], [tgt], ["the sentence"])
        if not src or not tgt:
            raise ValueError("the sentence or its translation is empty; give both with words")
        batch = pad_batch([src], [tgt])
        inputs = batch.src, batch.src_lengths, batch.targets()[0][:, :-1]
        maps = self.attention_maps(*(x.to(self.device) for x in inputs))
        tokens = src_tokenizer.tokens([*src, EOS]), tgt_tokenizer.tokens([*tgt, EOS])
        return Look(*tokens, *(part[:, 0].cpu() for part in maps))
