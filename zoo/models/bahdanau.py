"""Bahdanau, Cho, Bengio 2015: Neural Machine Translation by Jointly Learning to Align and Translate (arXiv:1409.0473).

Here: the bidirectional encoder (A.2.1), additive attention queried with the PREVIOUS decoder state (A.1.2), the decoder
(A.2.2) and its maxout readout. `decoder: conditional_gru` is the form of the authors' group in dl4mt-tutorial, known as
conditional GRU: the query is an intermediate state of the same step.

Differs from the paper:
* The reset gate acts after the recurrent product, as in cuDNN and dl4mt (one product a step instead of two).
* Adam with warm-up and cosine instead of Adadelta; Xavier and orthogonal initial weights; dropout.
* The readout may share its matrix with the embeddings (`tie_output`).

Shapes: B batch, S source tokens, T target tokens, K hypotheses a sentence, E embedding, H decoder, M memory (both
encoder
directions), A attention, R readout, V vocabulary.
"""

from typing import Any, ClassVar, Literal

from torch import Tensor

from zoo.layers.attention import AttentionMemory, GlobalAttention
from zoo.layers.dropout import Dropout
from zoo.layers.gru_decoders import DECODERS
from zoo.layers.kernels import wide
from zoo.layers.masking import lengths_to_mask
from zoo.layers.recurrent import RecurrentEncoder
from zoo.tasks.embeddings import Embeddings
from zoo.tasks.translation import TranslationModule


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
        beam_size: hypotheses of the search in `translate` and in tests.
        length_penalty: alpha of its length normalisation.
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
        if decoder not in DECODERS:
            raise ValueError(f"decoder must be one of {', '.join(map(repr, DECODERS))}; got {decoder!r}")
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

    def step(self, tokens: Tensor, state: tuple, memory: AttentionMemory, t: int) -> tuple[Tensor, tuple, Tensor]:
        embedded = self.dropout(self.embeddings.tgt(tokens))  # (B, K, E)
        s, context, seen, weights = self.decoder.step(embedded, state[0], self.attention, memory)
        return self.dropout(self.decoder.read(seen, embedded, context)), (s,), weights
