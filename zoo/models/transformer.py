"""Vaswani et al. 2017: Attention Is All You Need (arXiv:1706.03762).

Here: scaled dot-product attention (Eq. 1), several heads of it (3.2.2), the feed-forward layers (Eq. 2), sinusoidal
positions (3.5), and the encoder-decoder of them (3.1). A search keeps the keys and values of what is written already.

Differs from the paper:
* `norm: pre` normalises the input of each sub-layer (Xiong et al. 2020, arXiv:2002.04745) instead of its sum with the
  output, and once more at the end.
* AdamW with warm-up and cosine instead of Adam with warm-up and inverse square root.
* Dropout on attention weights and inside feed-forward layers is an option of its own, off unless asked for.

Shapes: B batch, S source tokens, T target tokens, K hypotheses a sentence, D model, H heads, V vocabulary.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from zoo.layers.dropout import Dropout
from zoo.layers.masking import lengths_to_mask, masked_softmax
from zoo.module import evaluated
from zoo.text import EOS, PAD, PairBatch, pad_batch
from zoo.translation import Embeddings, Step, TranslationModule


class TransformerMemory(NamedTuple):
    """What the decoder reads of the source.

    Attributes:
        mask: (B, 1, 1, S) bool, True on real tokens.
        keys: of each decoder layer, (B, H, S, D / H).
        values: of each decoder layer, (B, H, S, D / H).
    """

    mask: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


class AttentionMaps(NamedTuple):
    """Weights of every layer and head: (layers, B, H, S, S), (layers, B, H, T, T) and (layers, B, H, T, S)."""

    encoder: Tensor
    decoder: Tensor
    cross: Tensor


@dataclass(frozen=True)
class Look:
    """Where every layer and head looked while one sentence was translated."""

    source_tokens: list[str]
    target_tokens: list[str]  # what was written, the end of the sentence included
    encoder: Tensor  # (layers, H, S, S) each source token to the source
    decoder: Tensor  # (layers, H, T, T) each step to what had been written before it, the beginning of the sentence first
    cross: Tensor  # (layers, H, T, S) each step to the source

    def plot(
        self,
        path: str | os.PathLike,
        part: Literal["encoder", "decoder", "cross"] = "cross",
        layer: int = -1,
        heads: Sequence[int] | None = None,
    ) -> Path:
        """Draws heads of a layer beside each other into an image file (format by its ending) and returns the path.

        Args:
            path: the file.
            part: which attention.
            layer: counted from 0; negative from the last.
            heads: counted from 0; all if not given.

        Raises:
            ValueError: there is no such part, layer or head.
        """
        from zoo.plots import heads_heatmap

        if part not in ("encoder", "decoder", "cross"):
            raise ValueError(f"part must be one of 'encoder', 'decoder', 'cross'; got {part!r}")
        maps: Tensor = getattr(self, part)
        count, number = len(maps), maps.size(1)
        if not isinstance(layer, int) or not -count <= layer < count:
            raise ValueError(f"layer must be a whole number from 0 to {count - 1}, or negative; got {layer!r}")
        chosen = range(number) if heads is None else heads
        if not isinstance(chosen, Sequence) or not chosen or any(not isinstance(head, int) or not 0 <= head < number for head in chosen):
            raise ValueError(f"heads must be a list of whole numbers from 0 to {number - 1}; got {heads!r}")
        rows = self.source_tokens if part == "encoder" else self.target_tokens
        columns = ["<s>", *self.target_tokens[:-1]] if part == "decoder" else self.source_tokens
        titles = [f"{part}, layer {layer % count}, head {head}" for head in chosen]
        return heads_heatmap(path, columns, rows, maps[layer][list(chosen)], titles)


def fused_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, dropout: float, causal: bool) -> Tensor:
    """Eq. 1 by torch's fused kernel; on a CPU in fp32 at least, as the backward pass of its bf16 kernel takes ten times as long there."""
    if queries.is_cuda:
        return scaled_dot_product_attention(queries, keys, values, mask, dropout, causal)
    with torch.autocast("cpu", enabled=False):
        wide = torch.promote_types(queries.dtype, torch.float32)
        found = scaled_dot_product_attention(queries.to(wide), keys.to(wide), values.to(wide), mask, dropout, causal)
    return found.to(values.dtype)


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (3.2.2).

    Args:
        size: D.
        num_heads: H; 1 is plain scaled dot-product attention.
        dropout: on the weights.
    """

    def __init__(self, size: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads, self.dropout = num_heads, Dropout(dropout)
        self.query = nn.Linear(size, size, bias=False)
        self.key_value = nn.Linear(size, 2 * size, bias=False)
        self.output = nn.Linear(size, size, bias=False)

    def split(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, H, N, D / H)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of x (B, N, D), heads side by side: (B, N, D) each."""
        return self.key_value(x).chunk(2, dim=-1)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, causal: bool = False, show: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from x (B, N, D) to keys and values (B, H, M, D / H).

        Args:
            mask: bool, broadcastable to (B, H, N, M), True where attention may go; None: everywhere.
            causal: position n attends to the positions up to n only; then without mask.
            show: return the weights as well.

        Returns:
            (B, N, D), and (B, H, N, M) float32 if `show`, else None.
        """
        queries = self.split(self.query(x))
        weights = None
        if show:
            if causal:
                mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()
            elif mask is None:
                mask = torch.ones((), dtype=torch.bool, device=x.device)
            weights = masked_softmax(queries @ keys.transpose(-1, -2) * keys.size(-1) ** -0.5, mask)  # Eq. 1
            found = weights.to(values.dtype) @ values
        else:
            p = self.dropout.p if self.training else 0.0
            found = fused_attention(queries, keys, values, mask, p, causal)
        return self.output(found.transpose(1, 2).flatten(2)), weights


class Residual(nn.Module):
    """x + sublayer(x), normalised after the sum ("post", the paper's) or before the sub-layer ("pre")."""

    def __init__(self, size: int, norm: str, dropout: float):
        super().__init__()
        self.norm, self.first, self.dropout = nn.LayerNorm(size), norm == "pre", Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class Layer(nn.Module):
    """Self-attention, attention to the source (decoder only) and FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (Eq. 2)."""

    def __init__(
        self, size: int, num_heads: int, feedforward_size: int, norm: str, dropouts: tuple[float, float, float], decoder: bool
    ):
        super().__init__()
        dropout, attention_dropout, feedforward_dropout = dropouts
        self.self_attention = MultiHeadAttention(size, num_heads, attention_dropout)
        self.after_self = Residual(size, norm, dropout)
        if decoder:
            self.cross_attention = MultiHeadAttention(size, num_heads, attention_dropout)
            self.after_cross = Residual(size, norm, dropout)
        self.feedforward = nn.Sequential(
            nn.Linear(size, feedforward_size), nn.ReLU(), Dropout(feedforward_dropout), nn.Linear(feedforward_size, size)
        )
        self.after_feedforward = Residual(size, norm, dropout)


def positions(count: int, size: int, first: int = 0, device: torch.device | None = None) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / D)), PE(pos, 2i + 1) = cos(the same): (count, D) of positions `first` and later."""
    rates = torch.exp(torch.arange(0, size, 2, device=device) * (-torch.log(torch.tensor(10000.0)).item() / size))
    angles = torch.arange(first, first + count, device=device).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :size]


class TransformerNMT(TranslationModule):
    """Transformer encoder-decoder.

    Args:
        src_vocab_size: source vocabulary.
        tgt_vocab_size: target vocabulary.
        shared_vocab: one vocabulary and one embedding matrix for both languages.
        tie_output: the output layer is the target embedding matrix.
        model_size: D, also of the embeddings (paper: 512).
        num_heads: H; must divide `model_size` (paper: 8); 1 is single-head attention.
        feedforward_size: hidden units of the feed-forward layers (paper: 2048).
        encoder_layers: layers of the encoder (paper: 6).
        decoder_layers: layers of the decoder (paper: 6).
        norm: "post", as in the paper, or "pre".
        dropout: on embeddings and on the output of each sub-layer.
        attention_dropout: on attention weights.
        feedforward_dropout: on the hidden units of the feed-forward layers.
        consistency: weight of the divergence between what two passes with different dropout predict, (KL(p|q) + KL(q|p)) / 2, beside their
            mean loss, in training (R-Drop, Liang et al. 2021, arXiv:2106.14448, whose alpha is twice this); costs a second pass.
        shown_layer: decoder layer whose attention to the source is shown; negative counts from the last.
        shown_head: the head of it that is shown; None: the mean over all heads.
        label_smoothing: share of the target probability spread over the vocabulary.
        learning_rate: peak rate of AdamW.
        warmup_steps: optimiser steps of linear warm-up.
        total_steps: optimiser steps until the last cosine ends; constant rate if not given.
        cycles: the cosine starts anew so many times less one.
        weight_decay: of AdamW.
        beam_size: hypotheses of the search in `translate` and in tests.
        length_penalty: alpha of its length normalisation.
    """

    tiny: ClassVar[dict[str, Any]] = dict(
        src_vocab_size=12, tgt_vocab_size=11, model_size=8, num_heads=2, feedforward_size=12, encoder_layers=1, decoder_layers=1,
        dropout=0.0,
    )  # fmt: skip

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        shared_vocab: bool = False,
        tie_output: bool = False,
        model_size: int = 256,
        num_heads: int = 4,
        feedforward_size: int = 1024,
        encoder_layers: int = 3,
        decoder_layers: int = 3,
        norm: Literal["post", "pre"] = "post",
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        feedforward_dropout: float = 0.0,
        consistency: float = 0.0,
        shown_layer: int = -1,
        shown_head: int | None = None,
        label_smoothing: float = 0.1,
        learning_rate: float = 1e-3,
        warmup_steps: int = 2000,
        total_steps: int | None = None,
        cycles: int = 1,
        weight_decay: float = 0.0,
        beam_size: int = 5,
        length_penalty: float = 1.0,
    ):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f"norm must be one of 'post', 'pre'; got {norm!r}")
        if num_heads < 1 or model_size % num_heads:
            raise ValueError(f"num_heads must divide model_size ({model_size}); got {num_heads}")
        if not -decoder_layers <= shown_layer < decoder_layers:
            raise ValueError(f"shown_layer must be in [{-decoder_layers}, {decoder_layers}); got {shown_layer}")
        if shown_head is not None and not 0 <= shown_head < num_heads:
            raise ValueError(f"shown_head must be in [0, {num_heads}) or None; got {shown_head}")
        if not 0 <= consistency < float("inf"):
            raise ValueError(f"consistency must be at least 0 and finite; got {consistency}")
        dropouts = (dropout, attention_dropout, feedforward_dropout)
        sizes = (model_size, num_heads, feedforward_size, norm, dropouts)
        self.encoder = nn.ModuleList(Layer(*sizes, decoder=False) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(Layer(*sizes, decoder=True) for _ in range(decoder_layers))
        for matrix in self.parameters():
            if matrix.dim() == 2:
                nn.init.xavier_uniform_(matrix)
        self.encoder_norm, self.decoder_norm = (nn.LayerNorm(model_size) if norm == "pre" else nn.Identity() for _ in range(2))
        self.embeddings = Embeddings(src_vocab_size, tgt_vocab_size, model_size, shared_vocab, tie_output, model_size)
        if tie_output:
            self.embeddings.bridge = nn.Identity()  # readouts have the size of the embeddings
        self.dropout = Dropout(dropout)

    def loss(self, batch: PairBatch, label_smoothing: float = 0.0) -> tuple[Tensor, int]:
        """As of every translation model; in training with `consistency` the mean of two passes, and how they differ."""
        if not (self.training and self.config["consistency"]):
            return super().loss(batch, label_smoothing)
        src, src_lengths, tgt = (torch.cat([x, x]) for x in (batch.src, batch.src_lengths, batch.tgt))
        readouts, _ = self.decode(tgt[:, :-1], *self.encode(src, src_lengths))
        labels = tgt[:, 1:]
        real = labels != PAD
        logits = self.embeddings.logits(readouts[real]).float()  # of the first pass, then those of the second
        log_p, log_q = logits.log_softmax(-1).chunk(2)
        divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2
        loss = cross_entropy(logits, labels[real], label_smoothing=label_smoothing, reduction="sum") / 2
        return loss + self.config["consistency"] * divergence, int(batch.tgt_lengths.sum())

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[TransformerMemory, tuple[Tensor, ...]]:
        memory, _ = self._encode(src, src_lengths, show=False)
        nothing = memory.keys[0].new_zeros(src.size(0), 0, self.config["model_size"])  # written so far, see `stepper`
        return memory, (nothing,) * (2 * len(self.decoder))

    def _encode(self, src: Tensor, src_lengths: Tensor, show: bool) -> tuple[TransformerMemory, list[Tensor]]:
        mask = lengths_to_mask(src_lengths, src.size(1))[:, None, None]
        x = self.embeddings.src(src) + positions(src.size(1), self.config["model_size"], device=src.device)
        x, shown = self.dropout(x), []
        for layer in self.encoder:
            attention = layer.self_attention

            def attend(x: Tensor) -> Tensor:
                found, weights = attention(x, *map(attention.split, attention.project(x)), mask, show=show)
                shown.append(weights)
                return found

            x = layer.after_feedforward(layer.after_self(x, attend), layer.feedforward)
        x = self.encoder_norm(x)
        cross = [layer.cross_attention for layer in self.decoder]
        keys, values = zip(*(map(attention.split, attention.project(x)) for attention in cross), strict=True)
        return TransformerMemory(mask, keys, values), shown

    def decode(self, tgt: Tensor, memory: TransformerMemory, state: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
        """Readouts (B, T, D), and outside training the weights (B, T, S) of the shown layer."""
        show = () if self.training else (self.config["shown_layer"] % len(self.decoder),)
        x, _, cross = self._decode(tgt, memory, show, ())
        return x, self._shown(cross[-1]) if cross else None

    def _decode(
        self, tgt: Tensor, memory: TransformerMemory, show_cross: tuple[int, ...], show_self: tuple[int, ...]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Teacher forcing: readouts, and the weights of the layers named, (B, H, T, T) and (B, H, T, S)."""
        x = self.embeddings.tgt(tgt) + positions(tgt.size(1), self.config["model_size"], device=tgt.device)
        x, own, cross = self.dropout(x), [], []
        for n, layer in enumerate(self.decoder):
            attention = layer.self_attention

            def attend(x: Tensor) -> Tensor:
                found, weights = attention(x, *map(attention.split, attention.project(x)), causal=True, show=n in show_self)
                own.append(weights)
                return found

            def attend_source(x: Tensor) -> Tensor:
                found, weights = layer.cross_attention(x, memory.keys[n], memory.values[n], memory.mask, show=n in show_cross)
                cross.append(weights)
                return found

            x = layer.after_cross(layer.after_self(x, attend), attend_source)
            x = layer.after_feedforward(x, layer.feedforward)
        own, cross = ([weights for weights in shown if weights is not None] for shown in (own, cross))
        return self.decoder_norm(x), own, cross

    def stepper(self) -> Step:
        """A step whose state holds the keys and values (B, K, t, D) of what is written, of each layer in turn."""
        shown = self.config["shown_layer"] % len(self.decoder)

        def step(tokens: Tensor, state: tuple, memory: TransformerMemory, t: int) -> tuple[Tensor, tuple, Tensor]:
            x = self.dropout(self.embeddings.tgt(tokens) + positions(1, self.config["model_size"], t, tokens.device))
            written, weights = [], None
            for n, layer in enumerate(self.decoder):
                attention = layer.self_attention

                def attend(x: Tensor) -> Tensor:  # (B, K, D); each hypothesis attends to its own past
                    past = [
                        torch.cat([old, new.unsqueeze(2)], dim=2)
                        for old, new in zip(state[2 * n : 2 * n + 2], attention.project(x), strict=True)
                    ]
                    written.extend(past)
                    found, _ = attention(x.flatten(0, 1).unsqueeze(1), *(attention.split(p.flatten(0, 1)) for p in past))
                    return found.view_as(x)

                def attend_source(x: Tensor) -> Tensor:
                    nonlocal weights
                    found, seen = layer.cross_attention(x, memory.keys[n], memory.values[n], memory.mask, show=n == shown)
                    weights = weights if seen is None else seen
                    return found

                x = layer.after_cross(layer.after_self(x, attend), attend_source)
                x = layer.after_feedforward(x, layer.feedforward)
            return self.decoder_norm(x), tuple(written), self._shown(weights)

        return step

    def _shown(self, weights: Tensor) -> Tensor:
        head = self.config["shown_head"]
        return weights.mean(1) if head is None else weights[:, head]

    @torch.no_grad()
    def attention_maps(self, src: Tensor, src_lengths: Tensor, tgt: Tensor) -> AttentionMaps:
        """All weights of a forward pass; arguments as of `forward`."""
        memory, encoder = self._encode(src, src_lengths, show=True)
        layers = tuple(range(len(self.decoder)))
        _, own, cross = self._decode(tgt, memory, layers, layers)
        return AttentionMaps(*map(torch.stack, (encoder, own, cross)))

    @evaluated
    def look(self, source: str, target: str | None = None) -> Look:
        """Where all layers and heads look while a sentence is translated.

        Args:
            source: the sentence.
            target: its translation; the model's own if not given.

        Raises:
            ValueError: a sentence is empty or too long, or the model has no tokenizer.
            TypeError: a sentence is no string.
        """
        self.check_ready(self.src_tokenizer, self.tgt_tokenizer)
        for text in (source, "" if target is None else target):
            if not isinstance(text, str):
                raise TypeError(f"look takes one sentence and, if wanted, its translation, strings; got {type(text).__name__}")
        if target is None:
            target = self.translate(source).text
        src, tgt = self.src_tokenizer.encode(source), self.tgt_tokenizer.encode(target)
        self._check_lengths([src, tgt])
        if not src or not tgt:
            raise ValueError("there is nothing to look at; give a sentence, and a translation that is not empty")
        batch = pad_batch([src], [tgt])
        maps = self.attention_maps(*(x.to(self.device) for x in (batch.src, batch.src_lengths, batch.tgt[:, :-1])))
        tokens = self.src_tokenizer.tokens([*src, EOS]), self.tgt_tokenizer.tokens([*tgt, EOS])
        return Look(*tokens, *(part[:, 0].cpu() for part in maps))
