"""Vaswani et al. 2017: Attention Is All You Need (arXiv:1706.03762).

Here: scaled dot-product attention (Eq. 1), multi-head attention (3.2.2), the feed-forward layers (Eq. 2), sinusoidal
positions (3.5), and the encoder-decoder (3.1). The search caches the keys and values of the prefix.

Differs from the paper:
* `norm: pre` normalises the input of each sub-layer (Xiong et al. 2020, arXiv:2002.04745) instead of its residual sum,
  and the output of each stack once more.
* AdamW with warm-up and cosine schedule instead of Adam with warm-up and inverse square root.
* `key_size` sets d_k independently of D / H, and `output_projection: false` leaves out W^O: with one head this is the
  textbook attention softmax(Q K^T / sqrt(d_k)) V with d_k = 64 of D = 512 (3.2.1), whose values have the size of the
  model.
* Dropout on attention weights and inside feed-forward layers are separate options, off by default.

Shapes: B batch, S source tokens, T target tokens, K hypotheses per sentence, D model, H heads, d_k size of a key, V
vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from zoo.layers.dropout import Dropout
from zoo.layers.masking import lengths_to_mask
from zoo.layers.module_list import ModuleList
from zoo.layers.multi_head import MultiHeadAttention
from zoo.layers.positions import positions
from zoo.tasks.embeddings import Embeddings
from zoo.tasks.heads import AttentionMaps, MultiHeadTranslation


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


Attention = Callable[[], MultiHeadAttention]
Source = tuple[Tensor, Tensor, Tensor]  # keys, values and mask for one decoder layer


class Residual(nn.Module):
    """x + sublayer(x), normalised after the sum ("post", the paper's) or before the sub-layer ("pre")."""

    def __init__(self, size: int, norm: str, dropout: float):
        super().__init__()
        self.norm, self.first, self.dropout = nn.LayerNorm(size), norm == "pre", Dropout(dropout)

    def before(self, x: Tensor) -> Tensor:
        """The input of the sub-layer."""
        return self.norm(x) if self.first else x

    def forward(self, x: Tensor, found: Tensor) -> Tensor:
        """Adds the sub-layer's output to x: x and output of `before(x)`'s sub-layer, (B, N, D) each -> (B, N, D)."""
        x = x + self.dropout(found)
        return x if self.first else self.norm(x)


class Layer(nn.Module):
    """What encoder and decoder have: self-attention and FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (Eq. 2)."""

    def __init__(self, size: int, attention: Attention, inner_size: int, norm: str, dropouts: tuple[float, float]):
        super().__init__()
        dropout, feedforward_dropout = dropouts
        self.self_attention = attention()
        self.after_self = Residual(size, norm, dropout)
        self.feedforward = nn.Sequential(
            nn.Linear(size, inner_size),
            nn.ReLU(),
            Dropout(feedforward_dropout),
            nn.Linear(inner_size, size),
        )
        self.after_feedforward = Residual(size, norm, dropout)

    def feed(self, x: Tensor) -> Tensor:
        """The last sub-layer: (B, N, D) -> (B, N, D)."""
        return self.after_feedforward(x, self.feedforward(self.after_feedforward.before(x)))


class EncoderLayer(Layer):
    """Self-attention and FFN."""

    def forward(self, x: Tensor, mask: Tensor, show: bool = False) -> tuple[Tensor, Tensor | None]:
        """x (B, S, D), mask (B, 1, 1, S) -> (B, S, D), and the weights (B, H, S, S) if `show`."""
        y = self.after_self.before(x)
        found, weights = self.self_attention(y, *self.self_attention.project(y), mask, show=show)
        return self.feed(self.after_self(x, found)), weights


class DecoderLayer(Layer):
    """Self-attention over the prefix, attention over the source, and FFN."""

    def __init__(self, size: int, attention: Attention, inner_size: int, norm: str, dropouts: tuple[float, float]):
        super().__init__(size, attention, inner_size, norm, dropouts)
        self.cross_attention = attention()
        self.after_cross = Residual(size, norm, dropouts[0])

    def forward(
        self, x: Tensor, source: Source, show_self: bool = False, show_cross: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Teacher forcing: x (B, T, D), memory of the source -> (B, T, D), weights (B, H, T, T) and (B, H, T, S)."""
        y = self.after_self.before(x)
        found, own = self.self_attention(y, *self.self_attention.project(y), causal=True, show=show_self)
        x, cross = self.attend_source(self.after_self(x, found), source, show_cross)
        return x, own, cross

    def step(
        self, x: Tensor, past: tuple[Tensor, Tensor], source: Source, show: bool, given: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor | None]:
        """One step: x (B, K, D), keys and values so far (B, K, H, t, d) -> (B, K, D), those up to t + 1, weights."""
        y = self.after_self.before(x).flatten(0, 1).unsqueeze(1)  # (B K, 1, D)
        new = (part.unflatten(0, x.shape[:2]) for part in self.self_attention.project(y))  # (B, K, H, 1, d)
        keys, values = (torch.cat(parts, dim=3) for parts in zip(past, new, strict=True))
        found, _ = self.self_attention(y, keys.flatten(0, 1), values.flatten(0, 1))
        x, cross = self.attend_source(self.after_self(x, found.view_as(x)), source, show, given)
        return x, (keys, values), cross

    def attend_source(
        self, x: Tensor, source: Source, show: bool, given: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The second and third sub-layers: x (B, N, D) -> (B, N, D), weights (B, H, N, S)."""
        found, weights = self.cross_attention(self.after_cross.before(x), *source, show=show, given=given)
        return self.feed(self.after_cross(x, found)), weights


class TransformerNMT(MultiHeadTranslation[TransformerMemory]):
    """Transformer encoder-decoder.

    Args:
        src_vocab_size: source vocabulary.
        tgt_vocab_size: target vocabulary.
        shared_vocab: one vocabulary and one embedding matrix for both languages.
        tie_output: the output layer is the target embedding matrix.
        model_size: D, also of the embeddings (paper: 512).
        num_heads: H; must divide `model_size` (paper: 8); 1: single-head attention.
        key_size: d_k, size of a query and of a key in each head; D / H if not given (paper: D / H, 64). Values always
            have D / H.
        output_projection: multiply the concatenated heads by W^O, as in the paper.
        feedforward_size: hidden units of the feed-forward layers (paper: 2048).
        encoder_layers: layers of the encoder (paper: 6).
        decoder_layers: layers of the decoder (paper: 6).
        norm: "post", as in the paper, or "pre".
        dropout: on embeddings and on the output of each sub-layer.
        attention_dropout: on attention weights.
        feedforward_dropout: on the hidden units of the feed-forward layers.
        consistency: weight of the divergence (KL(p|q) + KL(q|p)) / 2 between the predictions of two passes with
            different dropout, added to their mean loss in training (R-Drop, Liang et al. 2021, arXiv:2106.14448, whose
            alpha is twice this); needs a second pass.
        shown_layer: decoder layer whose attention to the source is shown; negative values count from the last.
        shown_head: head of that layer that is shown; None: the mean over all heads.
        label_smoothing: share of the target probability spread over the vocabulary.
        beam_size: beam size in `translate` and in testing.
        length_penalty: alpha of the length normalisation in the search.
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
        self.encoder = ModuleList(EncoderLayer(*sizes) for _ in range(encoder_layers))
        self.decoder = ModuleList(DecoderLayer(*sizes) for _ in range(decoder_layers))
        for matrix in self.parameters():
            if matrix.dim() == 2:
                nn.init.xavier_uniform_(matrix)
        final = partial(nn.LayerNorm, model_size) if norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = final(), final()
        self.embeddings = Embeddings(src_vocab_size, tgt_vocab_size, model_size, shared_vocab, tie_output, model_size)
        if tie_output:
            self.embeddings.bridge = nn.Identity()  # readouts have the size of the embeddings
        self.dropout = Dropout(dropout)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[TransformerMemory, tuple[Tensor, ...]]:
        memory, _ = self._encode(src, src_lengths, show=False)
        # The empty prefix, see `step`.
        nothing = tuple(part.new_zeros(*part.shape[:2], 0, part.size(-1)) for part in memory.source(0)[:2])
        return memory, nothing * len(self.decoder)

    def _embed(self, embedded: Tensor, first: int | Tensor = 0) -> Tensor:
        """Embeddings (B, N, D) with positions starting at `first`."""
        places = positions(embedded.size(1), embedded.size(-1), first, embedded.device)
        return self.dropout(embedded + places.to(embedded.dtype))

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
        """Readouts (B, T, D) and, except in training, the weights (B, T, S) of the shown layer."""
        shown = None if self.training else self.config["shown_layer"] % len(self.decoder)
        x, _, cross = self._decode(tgt, memory, lambda n: n == shown, show_self=False)
        return x, self._shown(None if shown is None else cross[shown])

    def _decode(
        self, tgt: Tensor, memory: TransformerMemory, show_cross: Callable[[int], bool], show_self: bool
    ) -> tuple[Tensor, list[Tensor | None], list[Tensor | None]]:
        """Teacher forcing: readouts, and per layer, where shown, its weights (B, H, T, T) and (B, H, T, S)."""
        x, own, cross = self._embed(self.embeddings.tgt(tgt)), [], []
        for n, layer in enumerate(self.decoder):
            x, *weights = layer(x, memory.source(n), show_self, show_cross(n))
            own.append(weights[0])
            cross.append(weights[1])
        return self.decoder_norm(x), own, cross

    def step(
        self, tokens: Tensor, state: tuple, memory: TransformerMemory, t: int, given: Tensor | None = None
    ) -> tuple[Tensor, tuple, Tensor | None]:
        """One step. The state: keys (B, K, H, t, d_k) and values (B, K, H, t, D / H) of the prefix, layer by layer."""
        shown = self.config["shown_layer"] % len(self.decoder)
        x, written, cross = self._step(tokens, state, memory, t, lambda n: n == shown, given)
        return x, written, self._shown(cross[shown])

    def step_with_heads(
        self, tokens: Tensor, state: tuple, memory: TransformerMemory, t: int, given: Tensor | None = None
    ) -> tuple[Tensor, tuple, Tensor | None, Tensor]:
        x, written, cross = self._step(tokens, state, memory, t, lambda n: True, given)
        heads = torch.cat([x for x in cross if x is not None], dim=1).transpose(1, 2)
        return x, written, self._shown(cross[self.config["shown_layer"] % len(self.decoder)]), heads

    def _step(
        self,
        tokens: Tensor,
        state: tuple,
        memory: TransformerMemory,
        t: int,
        show: Callable[[int], bool],
        given: Tensor | None,
    ) -> tuple[Tensor, tuple, list[Tensor | None]]:
        """Readouts, state, and per layer, where shown, its weights (B, H, K, S)."""
        embedded = self.embeddings.tgt(tokens)  # (B, K, D)
        x = self.dropout(embedded + positions(1, embedded.size(-1), t, tokens.device).to(embedded.dtype))
        written, cross = (), []
        for n, layer in enumerate(self.decoder):
            x, past, weights = layer.step(x, state[2 * n : 2 * n + 2], memory.source(n), show(n), given)
            written = written + past
            cross.append(weights)
        return self.decoder_norm(x), written, cross

    def _shown(self, weights: Tensor | None) -> Tensor | None:
        head = self.config["shown_head"]
        if weights is None:
            return None
        return weights.mean(1) if head is None else weights[:, head]

    @torch.no_grad()
    def attention_maps(self, src: Tensor, src_lengths: Tensor, tgt: Tensor) -> AttentionMaps:
        """All weights of a forward pass; arguments as in `forward`."""
        memory, encoder = self._encode(src, src_lengths, show=True)
        _, own, cross = self._decode(tgt, memory, lambda n: True, show_self=True)
        return AttentionMaps(*(torch.stack([x for x in maps if x is not None]) for maps in (encoder, own, cross)))
