"""The encoder-decoder without attention: the baseline that shows what attention adds.

* `variant: sutskever`: Sutskever, Vinyals, Le 2014, Sequence to Sequence Learning with Neural Networks
  (arXiv:1409.3215). A deep LSTM reads the REVERSED source; its last states start a deep LSTM that writes the target.
* `variant: cho`: Cho et al. 2014, Learning Phrase Representations using RNN Encoder-Decoder (arXiv:1406.1078). A GRU's
  last state becomes a summary c that enters every decoder step and the maxout readout (Eq. 8-9 and appendix A). That
  paper reads the source from its beginning: set `reverse_source: false` for its form.

Differs from the papers: Adam with warm-up and cosine schedule, dropout, the GRU's reset gate after the product,
optional tying of the output layer, embeddings scaled by sqrt(E) when they are looked up (zoo/tasks/embeddings.py). The
padding of a reversed source stays at its end, so the batch does not change the result.

Shapes: B batch, S source tokens, T target tokens, K hypotheses per sentence, E embedding, H hidden, V vocabulary.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from zoo.layers.dropout import Dropout
from zoo.layers.kernels import wide
from zoo.layers.masking import reverse_rows
from zoo.layers.maxout import maxout
from zoo.layers.recurrent import RecurrentDecoder, RecurrentEncoder
from zoo.tasks.embeddings import Embeddings
from zoo.tasks.translation import TranslationModule


class Summary(NamedTuple):
    """The memory of the decoder: a fixed summary of the source."""

    vector: Tensor  # (B, H)


class Seq2SeqNMT(TranslationModule[Summary]):
    """Encoder-decoder without attention.

    Args:
        src_vocab_size: source vocabulary.
        tgt_vocab_size: target vocabulary.
        shared_vocab: one vocabulary and one embedding matrix for both languages.
        tie_output: the output layer is the target embedding matrix (readouts are projected to its size first).
        embedding_size: E (papers: 1000, 100).
        hidden_size: H (papers: 1000).
        num_layers: layers of encoder and decoder (papers: 4, 1).
        variant: "sutskever" (LSTM) or "cho" (GRU).
        reverse_source: read the source from its end, as Sutskever et al.
        dropout: on embeddings, between layers and on the readout.
        label_smoothing: share of the target probability spread over the vocabulary.
        beam_size: beam size in `translate` and in testing.
        length_penalty: alpha of the length normalisation in the search.
    """

    tiny: ClassVar[dict[str, Any]] = dict(
        src_vocab_size=12, tgt_vocab_size=11, embedding_size=6, hidden_size=8, dropout=0.0
    )

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        shared_vocab: bool = False,
        tie_output: bool = False,
        embedding_size: int = 256,
        hidden_size: int = 512,
        num_layers: int = 1,
        variant: Literal["sutskever", "cho"] = "sutskever",
        reverse_source: bool = True,
        dropout: float = 0.3,
        label_smoothing: float = 0.1,
        beam_size: int = 5,
        length_penalty: float = 1.0,
    ):
        super().__init__()
        self.cho, self.reverse_source = variant == "cho", reverse_source
        cell = "gru" if self.cho else "lstm"
        self.embeddings = Embeddings(
            src_vocab_size, tgt_vocab_size, embedding_size, shared_vocab, tie_output, hidden_size
        )
        self.encoder = RecurrentEncoder(
            cell, embedding_size, hidden_size, num_layers, bidirectional=False, dropout=dropout
        )
        decoder_input = embedding_size + (hidden_size if self.cho else 0)
        self.decoder = RecurrentDecoder(cell, decoder_input, hidden_size, num_layers, dropout)
        if self.cho:
            self.summary = nn.Linear(hidden_size, hidden_size)
            self.initial = nn.Linear(hidden_size, hidden_size)
            self.readout = nn.Linear(hidden_size + decoder_input, 2 * hidden_size)
        self.dropout = Dropout(dropout)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[Summary, tuple[Tensor, ...]]:
        if self.reverse_source:
            src = reverse_rows(src, src_lengths)
        memory, finals = self.encoder(self.dropout(self.embeddings.src(src)), src_lengths)
        if not self.cho:
            return Summary(finals[-1][0]), tuple(x for final in finals for x in final)
        summary = torch.tanh(self.summary(finals[-1][0].to(memory.dtype)))  # c = tanh(V h_S)
        return Summary(summary), (wide(torch.tanh(self.initial(summary))),) * len(finals)

    def decode(self, tgt: Tensor, memory: Summary, state: tuple[Tensor, ...]) -> tuple[Tensor, None]:
        inputs = self._inputs(tgt, memory)  # (B, T, I)
        hidden, _ = self.decoder(inputs, state)
        return self._read(hidden, inputs), None

    def step(self, tokens: Tensor, state: tuple, memory: Summary, t: int) -> tuple[Tensor, tuple, None]:
        inputs = self._inputs(tokens, memory)  # (B, K, I)
        hidden, state = self.decoder.step(inputs, state)
        return self._read(hidden, inputs), state, None

    def _inputs(self, tokens: Tensor, memory: Summary) -> Tensor:
        """Embeddings (B, N, E); for Cho each with the summary appended: (B, N, E + H)."""
        embedded = self.dropout(self.embeddings.tgt(tokens))
        if not self.cho:
            return embedded
        return torch.cat(
            [embedded, memory.vector.to(embedded.dtype).unsqueeze(1).expand(-1, tokens.size(1), -1)], dim=-1
        )

    def _read(self, hidden: Tensor, inputs: Tensor) -> Tensor:
        """Readouts (B, N, H): the hidden state; for Cho maxout(O_h h_t + O_y y_{t-1} + O_c c)."""
        if self.cho:
            hidden = maxout(self.readout(torch.cat([hidden, inputs.to(hidden.dtype)], dim=-1)))
        return self.dropout(hidden)
