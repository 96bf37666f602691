"""Vaswani et al. 2017: Attention Is All You Need (arXiv:1706.03762).

Here: scaled dot-product attention (Eq. 1), several heads of it (3.2.2), the feed-forward layers (Eq. 2), sinusoidal
positions (3.5), and the encoder-decoder of them (3.1). A search keeps the keys and values of what is written already.

Differs from the paper:
* `norm: pre` normalises the input of each sub-layer (Xiong et al. 2020, arXiv:2002.04745) instead of its sum with the
  output, and once more at the end.
* AdamW with warm-up and cosine instead of Adam with warm-up and inverse square root.
* `key_size` sets d_k apart from D / H, and `output_projection: false` leaves out W^O: with one head this is the
  attention that textbooks draw, softmax(Q K^T / sqrt(d_k)) V with d_k = 64 of D = 512 (3.2.1), whose values have the
  size of the model.
* Dropout on attention weights and inside feed-forward layers is an option of its own, off unless asked for.

Shapes: B batch, S source tokens, T target tokens, K hypotheses a sentence, D model, H heads, d_k size of a key, V
vocabulary.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from zoo.batches.translation import PairBatch, pad_batch
from zoo.layers.attention import dot_product_attention
from zoo.layers.dropout import Dropout
from zoo.layers.kernels import wide
from zoo.layers.masking import lengths_to_mask, masked_softmax
from zoo.tasks.base import evaluated
from zoo.tasks.translation import Embeddings, TranslationModule
from zoo.text import EOS, PAD


class TransformerMemory(NamedTuple):
    """What the decoder reads of the source.

    Attributes:
        mask: (B, 1, 1, S) bool, True on real tokens.
        keys: of each decoder layer, (B, H, S, d_k).
        values: of each decoder layer, (B, H, S, D / H).
    """

    mask: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    def source(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and mask for one decoder layer."""
        return self.keys[layer], self.values[layer], self.mask


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
    decoder: (
        Tensor  # (layers, H, T, T) each step to what had been written before it, the beginning of the sentence first
    )
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


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (3.2.2).

    Args:
        size: D.
        num_heads: H; 1 is plain scaled dot-product attention.
        key_size: d_k.
        output_projection: multiply by W^O; without it the result is the heads side by side.
        dropout: on the weights.
    """

    def __init__(self, size: int, num_heads: int, key_size: int, output_projection: bool, dropout: float):
        super().__init__()
        self.num_heads, self.dropout = num_heads, Dropout(dropout)
        self.sizes = [num_heads * key_size, size]  # of all keys and of all values
        self.query = nn.Linear(size, num_heads * key_size, bias=False)
        self.key_value = nn.Linear(size, sum(self.sizes), bias=False)
        self.output = nn.Linear(size, size, bias=False) if output_projection else nn.Identity()

    def split(self, x: Tensor) -> Tensor:
        """(B, N, H * d) -> (B, H, N, d)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, N, H * d_k) and values (B, N, D) of x (B, N, D), the heads side by side."""
        return self.key_value(x).split(self.sizes, dim=-1)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, H, N, d_k) and values (B, H, N, D / H) of x (B, N, D)."""
        keys, values = self.keys_and_values(x)
        return self.split(keys), self.split(values)

    def forward(
        self,
        x: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        show: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from x (B, N, D) to keys (B, H, M, d_k) and values (B, H, M, D / H).

        Args:
            mask: bool, broadcastable to (B, H, N, M), True where attention may go; None: everywhere.
            causal: position n attends to the positions up to n only; then without mask.
            show: return the weights as well.

        Returns:
            (B, N, D), and the weights (B, H, N, M) if `show`, else None.
        """
        queries, weights = self.split(self.query(x)), None
        if show:
            if causal:
                mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()
            elif mask is None:
                mask = torch.ones((), dtype=torch.bool, device=x.device)
            weights = masked_softmax(queries @ keys.transpose(-1, -2) * keys.size(-1) ** -0.5, mask)  # Eq. 1
            found = weights.to(values.dtype) @ values
        else:
            found = dot_product_attention(queries, keys, values, mask, self.dropout.p if self.training else 0.0, causal)
        return self.output(found.transpose(1, 2).flatten(2)), weights


Attention = Callable[[], MultiHeadAttention]


class Residual(nn.Module):
    """x + sublayer(x), normalised after the sum ("post", the paper's) or before the sub-layer ("pre")."""

    def __init__(self, size: int, norm: str, dropout: float):
        super().__init__()
        self.norm, self.first, self.dropout = nn.LayerNorm(size), norm == "pre", Dropout(dropout)

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer reads."""
        return self.norm(x) if self.first else x

    def forward(self, x: Tensor, found: Tensor) -> Tensor:
        """x and what the sub-layer made of `before(x)`, (B, N, D) each -> (B, N, D)."""
        x = x + self.dropout(found)
        return x if self.first else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention and FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (Eq. 2)."""

    def __init__(
        self, size: int, attention: Attention, feedforward_size: int, norm: str, dropouts: tuple[float, float]
    ):
        super().__init__()
        dropout, feedforward_dropout = dropouts
        self.self_attention = attention()
        self.after_self = Residual(size, norm, dropout)
        self.feedforward = nn.Sequential(
            nn.Linear(size, feedforward_size),
            nn.ReLU(),
            Dropout(feedforward_dropout),
            nn.Linear(feedforward_size, size),
        )
        self.after_feedforward = Residual(size, norm, dropout)

    def forward(self, x: Tensor, mask: Tensor, show: bool = False) -> tuple[Tensor, Tensor | None]:
        """x (B, S, D), mask (B, 1, 1, S) -> (B, S, D), and the weights (B, H, S, S) if `show`."""
        y = self.after_self.before(x)
        found, weights = self.self_attention(y, *self.self_attention.project(y), mask, show=show)
        x = self.after_self(x, found)
        return self.after_feedforward(x, self.feedforward(self.after_feedforward.before(x))), weights


class DecoderLayer(EncoderLayer):
    """Self-attention to what is written, attention to the source, and FFN."""

    def __init__(
        self, size: int, attention: Attention, feedforward_size: int, norm: str, dropouts: tuple[float, float]
    ):
        super().__init__(size, attention, feedforward_size, norm, dropouts)
        self.cross_attention = attention()
        self.after_cross = Residual(size, norm, dropouts[0])

    def forward(
        self, x: Tensor, source: tuple[Tensor, Tensor, Tensor], show_self: bool = False, show_cross: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Teacher forcing: x (B, T, D), keys, values and mask of the source -> (B, T, D), weights (B, H, T, T) and (B,
        H, T, S).
        """
        y = self.after_self.before(x)
        found, own = self.self_attention(y, *self.self_attention.project(y), causal=True, show=show_self)
        x, cross = self.attend_source(self.after_self(x, found), source, show_cross)
        return x, own, cross

    def step(
        self, x: Tensor, past: tuple[Tensor, Tensor], source: tuple[Tensor, Tensor, Tensor], show: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor | None]:
        """One position x (B, K, D) of each hypothesis, its keys and values so far (B, K, t, ...) -> (B, K, D), (B, K, t
        + 1, ...), weights.
        """
        y = self.after_self.before(x)
        new = self.self_attention.keys_and_values(y)  # (B, K, H * d_k) and (B, K, D)
        past = tuple(torch.cat([old, part.unsqueeze(2)], dim=2) for old, part in zip(past, new, strict=True))
        keys, values = (self.self_attention.split(part.flatten(0, 1)) for part in past)
        found, _ = self.self_attention(y.flatten(0, 1).unsqueeze(1), keys, values)
        x, cross = self.attend_source(self.after_self(x, found.view_as(x)), source, show)
        return x, past, cross

    def attend_source(
        self, x: Tensor, source: tuple[Tensor, Tensor, Tensor], show: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The second and the third sub-layer: x (B, N, D) -> (B, N, D), weights (B, H, N, S)."""
        found, weights = self.cross_attention(self.after_cross.before(x), *source, show=show)
        x = self.after_cross(x, found)
        return self.after_feedforward(x, self.feedforward(self.after_feedforward.before(x))), weights


def positions(count: int, size: int, first: int | Tensor = 0, device: torch.device | None = None) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / D)), PE(pos, 2i + 1) = cos(the same): (count, D) of positions `first` and
    later.
    """
    rates = torch.exp(torch.arange(0, size, 2, device=device) * (-math.log(10000) / size))
    angles = (torch.arange(count, device=device) + first).unsqueeze(1) * rates
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
        key_size: d_k, size of a query and of a key in each head (paper: D / H, 64); D / H if not given. Values keep D /
            H.
        output_projection: the heads side by side pass W^O, as in the paper.
        feedforward_size: hidden units of the feed-forward layers (paper: 2048).
        encoder_layers: layers of the encoder (paper: 6).
        decoder_layers: layers of the decoder (paper: 6).
        norm: "post", as in the paper, or "pre".
        dropout: on embeddings and on the output of each sub-layer.
        attention_dropout: on attention weights.
        feedforward_dropout: on the hidden units of the feed-forward layers.
        consistency: weight of the divergence between what two passes with different dropout predict, (KL(p|q) +
            KL(q|p)) / 2, beside their mean loss, in training (R-Drop, Liang et al. 2021, arXiv:2106.14448, whose alpha
            is twice this); costs a second pass.
        shown_layer: decoder layer whose attention to the source is shown; negative counts from the last.
        shown_head: the head of it that is shown; None: the mean over all heads.
        label_smoothing: share of the target probability spread over the vocabulary.
        beam_size: hypotheses of the search in `translate` and in tests.
        length_penalty: alpha of its length normalisation.
    """

    tiny: ClassVar[dict[str, Any]] = dict(
        src_vocab_size=12,
        tgt_vocab_size=11,
        model_size=8,
        num_heads=2,
        feedforward_size=12,
        encoder_layers=1,
        decoder_layers=1,
        dropout=0.0,
    )

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        shared_vocab: bool = False,
        tie_output: bool = False,
        model_size: int = 256,
        num_heads: int = 4,
        key_size: int | None = None,
        output_projection: bool = True,
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
        keys = (num_heads, key_size or model_size // num_heads, output_projection)
        attention = partial(MultiHeadAttention, model_size, *keys, attention_dropout)
        sizes = (model_size, attention, feedforward_size, norm, (dropout, feedforward_dropout))
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(decoder_layers))
        for matrix in self.parameters():
            if matrix.dim() == 2:
                nn.init.xavier_uniform_(matrix)
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(model_size) if norm == "pre" else nn.Identity() for _ in range(2)
        )
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
        logits = wide(self.embeddings.logits(readouts[real]))  # of the first pass, then those of the second
        log_p, log_q = logits.log_softmax(-1).chunk(2)
        divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2
        loss = cross_entropy(logits, labels[real], label_smoothing=label_smoothing, reduction="sum") / 2
        return loss + self.config["consistency"] * divergence, int(batch.tgt_lengths.sum())

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[TransformerMemory, tuple[Tensor, ...]]:
        memory, _ = self._encode(src, src_lengths, show=False)
        sizes = self.decoder[0].self_attention.sizes
        nothing = tuple(memory.keys[0].new_zeros(src.size(0), 0, size) for size in sizes)  # written so far, see `step`
        return memory, nothing * len(self.decoder)

    def _embed(self, embedded: Tensor, first: int | Tensor = 0) -> Tensor:
        """Embeddings (B, N, D) with the positions from `first` on."""
        return self.dropout(
            embedded + positions(embedded.size(1), embedded.size(-1), first, embedded.device).to(embedded.dtype)
        )

    def _encode(self, src: Tensor, src_lengths: Tensor, show: bool) -> tuple[TransformerMemory, list[Tensor | None]]:
        mask = lengths_to_mask(src_lengths, src.size(1))[:, None, None]
        x, shown = self._embed(self.embeddings.src(src)), []
        for layer in self.encoder:
            x, weights = layer(x, mask, show)
            shown.append(weights)
        x = self.encoder_norm(x)
        keys, values = zip(*(layer.cross_attention.project(x) for layer in self.decoder), strict=True)
        return TransformerMemory(mask, keys, values), shown

    def decode(self, tgt: Tensor, memory: TransformerMemory, state: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
        """Readouts (B, T, D), and outside training the weights (B, T, S) of the shown layer."""
        shown = None if self.training else self.config["shown_layer"] % len(self.decoder)
        x, _, cross = self._decode(tgt, memory, lambda n: n == shown, show_self=False)
        return x, None if shown is None else self._shown(cross[shown])

    def _decode(
        self, tgt: Tensor, memory: TransformerMemory, show_cross: Callable[[int], bool], show_self: bool
    ) -> tuple[Tensor, list[Tensor | None], list[Tensor | None]]:
        """Teacher forcing: readouts, and for each layer its weights (B, H, T, T) and (B, H, T, S), where they are
        shown.
        """
        x, own, cross = self._embed(self.embeddings.tgt(tgt)), [], []
        for n, layer in enumerate(self.decoder):
            x, *weights = layer(x, memory.source(n), show_self, show_cross(n))
            own.append(weights[0])
            cross.append(weights[1])
        return self.decoder_norm(x), own, cross

    def step(self, tokens: Tensor, state: tuple, memory: TransformerMemory, t: int) -> tuple[Tensor, tuple, Tensor]:
        """A step whose state holds the keys (B, K, t, H * d_k) and values (B, K, t, D) of what is written, of each
        layer in turn.
        """
        embedded = self.embeddings.tgt(tokens)  # (B, K, D)
        x = self.dropout(embedded + positions(1, embedded.size(-1), t, tokens.device).to(embedded.dtype))
        shown, written, seen = self.config["shown_layer"] % len(self.decoder), (), None
        for n, layer in enumerate(self.decoder):
            x, past, weights = layer.step(x, state[2 * n : 2 * n + 2], memory.source(n), n == shown)
            written, seen = written + past, weights if n == shown else seen
        return self.decoder_norm(x), written, self._shown(seen)

    def _shown(self, weights: Tensor) -> Tensor:
        head = self.config["shown_head"]
        return weights.mean(1) if head is None else weights[:, head]

    @torch.no_grad()
    def attention_maps(self, src: Tensor, src_lengths: Tensor, tgt: Tensor) -> AttentionMaps:
        """All weights of a forward pass; arguments as of `forward`."""
        memory, encoder = self._encode(src, src_lengths, show=True)
        _, own, cross = self._decode(tgt, memory, lambda n: True, show_self=True)
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
                raise TypeError(
                    f"look takes one sentence and, if wanted, its translation, strings; got {type(text).__name__}"
                )
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
