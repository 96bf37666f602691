"""Bahdanau, Cho, Bengio 2015: Neural Machine Translation by Jointly Learning to Align and Translate (arXiv:1409.0473).

Here: the bidirectional encoder (A.2.1), additive attention queried with the PREVIOUS decoder state (A.1.2), the decoder
(A.2.2) and its maxout readout. `decoder: conditional_gru` is the form of the authors' group in dl4mt-tutorial, known as
conditional GRU: the query is an intermediate state of the same step.

Differs from the paper:
* The reset gate acts after the recurrent product, as in cuDNN and dl4mt (one product a step instead of two).
* Adam with warm-up and cosine instead of Adadelta; Xavier and orthogonal initial weights; dropout.
* The readout may share its matrix with the embeddings (`tie_output`).
* Embeddings are scaled by sqrt(E) when they are looked up, tied or not (zoo/tasks/embeddings.py).

Shapes: B batch, S source tokens, T target tokens, K hypotheses a sentence (in training 1), E embedding, H decoder,
M memory (both encoder directions), A attention, R readout, V vocabulary.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.layers.attention import AttentionMemory, GlobalAttention
from zoo.layers.dropout import Dropout
from zoo.layers.kernels import wide
from zoo.layers.masking import lengths_to_mask, masked_mean
from zoo.layers.maxout import maxout
from zoo.layers.recurrent import GRUCell, RecurrentEncoder
from zoo.tasks.embeddings import Embeddings
from zoo.tasks.translation import TranslationModule


class GRUDecoder(nn.Module):
    """The decoder of section A.2.2.

    c_i = sum_j softmax_j(a(s_{i-1}, h_j)) h_j, s_i = GRU([y_{i-1}; c_i], s_{i-1}); readout maxout(U_o s_{i-1} +
    V_o y_{i-1} + C_o c_i).
    """

    def __init__(self, embedding_size: int, hidden_size: int, memory_size: int, readout_size: int):
        super().__init__()
        self.gru = GRUCell(embedding_size + memory_size, hidden_size)
        self.readout = nn.Linear(hidden_size + embedding_size + memory_size, 2 * readout_size)
        self.initial = nn.Linear(memory_size // 2, hidden_size)

    def start(self, memory: Tensor, mask: Tensor) -> Tensor:
        """s_0 = tanh(W_s h_1), h_1 the backward state at the first word: memory (B, S, M) -> (B, H)."""
        return torch.tanh(self.initial(memory[:, 0, memory.size(-1) // 2 :]))

    def step(
        self,
        embedded: Tensor,
        s: Tensor,
        attention: GlobalAttention,
        memory: AttentionMemory,
        given: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """y_{i-1} (B, K, E), s_{i-1} (B, K, H) -> s_i, c_i, what the readout sees of the state, weights (B, K, S)."""
        context, weights = attention(s, memory, given=given)  # a(s_{i-1}, h_j), c_i
        (new,) = self.gru(torch.cat([embedded, context.to(embedded.dtype)], dim=-1), (s,))
        return new, context, s, weights

    def read(self, s: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Readouts (..., R), for any number of steps at once."""
        return maxout(self.readout(torch.cat([s.to(embedded.dtype), embedded, context.to(embedded.dtype)], dim=-1)))

    def forward(
        self, embedded: Tensor, s: Tensor, attention: GlobalAttention, memory: AttentionMemory
    ) -> tuple[Tensor, Tensor]:
        """Teacher forcing: embedded inputs (B, T, E), s_0 (B, H) -> readouts (B, T, R), weights (B, T, S)."""
        s, found = s.unsqueeze(1), []
        for y in embedded.unsqueeze(2).unbind(1):
            s, *rest = self.step(y, s, attention, memory)
            found.append(rest)
        contexts, states, weights = (torch.cat(x, dim=1) for x in zip(*found, strict=True))
        return self.read(states, embedded, contexts), weights


class ConditionalDecoder(GRUDecoder):
    """The conditional GRU of dl4mt-tutorial.

    s' = GRU_1(y_{i-1}, s_{i-1}), c_i attended from s', s_i = GRU_2(c_i, s'); readout tanh(W s_i + U y_{i-1} + C c_i);
    s_0 = tanh(W mean_j h_j + b).
    """

    def __init__(self, embedding_size: int, hidden_size: int, memory_size: int, readout_size: int):
        nn.Module.__init__(self)
        self.gru = GRUCell(embedding_size, hidden_size)
        self.gru_context = GRUCell(memory_size, hidden_size)
        self.readout = nn.Linear(hidden_size + embedding_size + memory_size, readout_size)
        self.initial = nn.Linear(memory_size, hidden_size)

    def start(self, memory: Tensor, mask: Tensor) -> Tensor:
        return torch.tanh(self.initial(masked_mean(memory, mask)))

    def step(
        self,
        embedded: Tensor,
        s: Tensor,
        attention: GlobalAttention,
        memory: AttentionMemory,
        given: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        middle = self.gru(embedded, (s,))  # s'
        context, weights = attention(middle[0], memory, given=given)
        (new,) = self.gru_context(context, middle)
        return new, context, new, weights

    def read(self, s: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([s.to(embedded.dtype), embedded, context.to(embedded.dtype)], dim=-1)))


DECODERS = {"gru": GRUDecoder, "conditional_gru": ConditionalDecoder}


class BahdanauNMT(TranslationModule):
    """Encoder-decoder with additive attention.

    Args:
        src_vocab_size: source vocabulary.
        tgt_vocab_size: target vocabulary.
        shared_vocab: one vocabulary and one embedding matrix for both languages.
        tie_output: the output layer is the target embedding matrix (readouts are projected to its size first).
        embedding_size: E (paper: 620).
        hidden_size: H of the decoder and of each encoder direction (paper: 1000).
        attention_size: A (paper: 1000); the hidden size if not given.
        readout_size: R, units after the readout (paper: 500).
        encoder_layers: bidirectional GRU layers (paper: 1).
        decoder: "gru", the paper's, or "conditional_gru".
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
        memory_size = 2 * hidden_size
        self.embeddings = Embeddings(
            src_vocab_size, tgt_vocab_size, embedding_size, shared_vocab, tie_output, readout_size
        )
        self.encoder = RecurrentEncoder("gru", embedding_size, hidden_size, encoder_layers, dropout=dropout)
        self.decoder = DECODERS[decoder](embedding_size, hidden_size, memory_size, readout_size)
        self.attention = GlobalAttention(hidden_size, memory_size, "concat", attention_size)
        self.dropout = Dropout(dropout)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[AttentionMemory, tuple[Tensor, ...]]:
        memory, _ = self.encoder(self.dropout(self.embeddings.src(src)), src_lengths)  # (B, S, M)
        mask = lengths_to_mask(src_lengths, src.size(1))
        memory = self.dropout(memory)
        return self.attention.project(memory, mask), (wide(self.decoder.start(memory, mask)),)

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
