"""Mino, Utiyama, Sumita, Tokunaga 2017: Key-value Attention Mechanism for Neural Machine Translation, IJCNLP I17-2049.

Additive attention as in Bahdanau et al. 2015 (zoo/models/bahdanau.py), but each annotation is split in two:
h_j = [k_j; v_j]. The scores use the keys, e_ij = v_a^T tanh(W_a s_{i-1} + U_a k_j), and the contexts use the values,
c_i = sum_j alpha_ij v_j.

With `linear` the annotation is first mixed, h_j = W_e [h_fwd_j; h_bwd_j]; its first entries are then the key.
`split: partly_zero` is the paper's other experiment: conventional attention, e_ij = v_a^T tanh(W_a s_{i-1} + U_a h_j)
and c_i = sum_j alpha_ij h_j, where the columns of U_a that multiply the value are initialised with zero, so that at
first the scores are those of the key alone.

The paper leaves some details open; this is what is done here. Without `linear` each direction of the encoder is split
in the same way, so that keys and values both see both sides of a word. The decoder reads only values, so its input is
smaller than Bahdanau's. The decoder "gru" is initialised from the second half of the first value, which belongs to the
backward direction (with `linear`, it is whatever W_e puts there). The model equals BahdanauNMT with zero weights for
the values in the score and for the keys in the decoder (a test shows it).

Shapes: B batch, S source tokens, T target tokens, K hypotheses per sentence, E embedding, H decoder and each encoder
direction, A attention, R readout, V vocabulary.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.layers.attention import AttentionMemory, GlobalAttention
from zoo.layers.dropout import Dropout
from zoo.layers.kernels import wide
from zoo.layers.masking import lengths_to_mask
from zoo.layers.recurrent import RecurrentEncoder
from zoo.models.bahdanau import DECODERS
from zoo.tasks.embeddings import Embeddings
from zoo.tasks.translation import TranslationModule


class KeyValueNMT(TranslationModule[AttentionMemory]):
    """Encoder-decoder whose additive attention scores keys and averages values.

    Args:
        src_vocab_size: source vocabulary.
        tgt_vocab_size: target vocabulary.
        shared_vocab: one vocabulary and one embedding matrix for both languages.
        tie_output: the output layer is the target embedding matrix (readouts are projected to its size first).
        embedding_size: E.
        hidden_size: H of the decoder and per encoder direction.
        key_size: size of the key, out of the 2 H entries of an annotation; the rest is the value. Even; H if not given.
        linear: annotations pass through a linear layer W_e (2 H to 2 H, without bias) before the split.
        split: "key_value", or "partly_zero": whole annotations are keys and values, and U_a starts with zeros for the
            value part.
        attention_size: A; the hidden size if not given.
        readout_size: R, size of the readout.
        encoder_layers: bidirectional GRU layers.
        decoder: "gru", that of Bahdanau et al., or "conditional_gru".
        dropout: on embeddings, between encoder layers, on the memory and on the readout.
        label_smoothing: share of the target probability spread over the vocabulary.
        beam_size: beam size in `translate` and in testing.
        length_penalty: alpha of the length normalisation in the search.
    """

    tiny: ClassVar[dict[str, Any]] = dict(
        src_vocab_size=12, tgt_vocab_size=11, embedding_size=6, hidden_size=8, readout_size=5, dropout=0.0
    )

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        shared_vocab: bool = False,
        tie_output: bool = False,
        embedding_size: int = 256,
        hidden_size: int = 512,
        key_size: int | None = None,
        linear: bool = False,
        split: Literal["key_value", "partly_zero"] = "key_value",
        attention_size: int | None = None,
        readout_size: int = 256,
        encoder_layers: int = 1,
        decoder: Literal["gru", "conditional_gru"] = "gru",
        dropout: float = 0.3,
        label_smoothing: float = 0.1,
        beam_size: int = 5,
        length_penalty: float = 1.0,
    ):
        super().__init__()
        key_size = hidden_size if key_size is None else key_size
        if key_size % 2 or not 0 < key_size < 2 * hidden_size:
            raise ValueError(
                f"key_size must be even and between 0 and 2 * hidden_size ({2 * hidden_size}); got {key_size}"
            )
        memory_size = 2 * hidden_size
        self.key_size, whole = key_size, split == "partly_zero"
        self.embeddings = Embeddings(
            src_vocab_size, tgt_vocab_size, embedding_size, shared_vocab, tie_output, readout_size
        )
        self.encoder = RecurrentEncoder("gru", embedding_size, hidden_size, encoder_layers, dropout=dropout)
        self.linear = nn.Linear(memory_size, memory_size, bias=False) if linear else nn.Identity()  # W_e
        value_size = memory_size if whole else memory_size - key_size
        self.decoder = DECODERS[decoder](embedding_size, hidden_size, value_size, readout_size)
        self.attention = GlobalAttention(hidden_size, memory_size if whole else key_size, "concat", attention_size)
        if whole:
            _, columns = self.split(torch.arange(memory_size))
            self.attention.score.w_memory.weight.detach()[:, columns] = 0  # of U_a
        self.dropout = Dropout(dropout)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[AttentionMemory, tuple[Tensor, ...]]:
        memory, _ = self.encoder(self.dropout(self.embeddings.src(src)), src_lengths)  # (B, S, 2 H)
        mask = lengths_to_mask(src_lengths, src.size(1))
        memory = self.dropout(self.linear(memory))
        keys, values = self.split(memory) if self.config["split"] == "key_value" else (memory, memory)
        return self.attention.project(keys, mask)._replace(values=values), (wide(self.decoder.start(values, mask)),)

    def split(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (..., key_size) and values of memory (..., 2 H); without `linear` each direction is split separately."""
        if self.config["linear"]:
            key, value = memory.split([self.key_size, memory.size(-1) - self.key_size], dim=-1)
            return key, value
        sizes = [self.key_size // 2, memory.size(-1) // 2 - self.key_size // 2]
        forward_key, forward_value, backward_key, backward_value = memory.split(2 * sizes, dim=-1)
        return torch.cat([forward_key, backward_key], dim=-1), torch.cat([forward_value, backward_value], dim=-1)

    def decode(self, tgt: Tensor, memory: AttentionMemory, state: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        embedded = self.dropout(self.embeddings.tgt(tgt))  # (B, T, E)
        readouts, weights = self.decoder(embedded, state[0], self.attention, memory)
        return self.dropout(readouts), weights

    def step(
        self, tokens: Tensor, state: tuple, memory: AttentionMemory, t: int, given: Tensor | None = None
    ) -> tuple[Tensor, tuple, Tensor]:
        embedded = self.dropout(self.embeddings.tgt(tokens))  # (B, K, E)
        s, context, seen, weights = self.decoder.step(embedded, state[0], self.attention, memory, given)
        return self.dropout(self.decoder.read(seen, embedded, context)), (s,), weights
