"""The decoder of the PyTorch tutorial "Translation with a Sequence to Sequence Network and Attention" (S. Robertson).

This is the older form of that page, `AttnDecoderRNN` with `max_length`; later versions use additive attention instead.

alpha_t = softmax(W_a [e_t; s_{t-1}]) has one entry for each of the first `max_length` source positions and does not
depend on the source words: attention by location only. c_t = sum_j alpha_tj h_j; x_t = relu(W_c [e_t; c_t]);
s_t = GRU(x_t, s_{t-1}); the output layer reads s_t. The encoder is a GRU; s_0 is its last state.

`attention: none` is the tutorial's first decoder, `DecoderRNN`: x_t = relu(e_t), s_t = GRU(x_t, s_{t-1}).

Differs from the tutorial:
* W_a has no bias; the tutorial's has one per position.
* Positions after the end of a source get no weight, so padding changes nothing. In the tutorial they take weight from
  real words.
* Batches, AdamW with warm-up and cosine schedule, and always teacher forcing, instead of single sentences, SGD and
  teacher forcing in half of them; embeddings scaled by sqrt(E), optionally tied; dropout in more places (see
  `dropout`).
* A source longer than `max_length` is rejected, because the decoder would not see its end; the tutorial filters its
  data.

Shapes: B batch, S source tokens, T target tokens, K hypotheses per sentence, E embedding, H hidden.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.layers.attention import AttentionMemory, GlobalAttention
from zoo.layers.dropout import Dropout
from zoo.layers.masking import lengths_to_mask
from zoo.layers.recurrent import GRUCell, RecurrentEncoder
from zoo.models.seq2seq import Summary
from zoo.tasks.embeddings import Embeddings
from zoo.tasks.translation import TranslationModule


class TutorialAttentionNMT(TranslationModule[AttentionMemory | Summary]):
    """GRU encoder-decoder with attention by position only, or without attention.

    Args:
        src_vocab_size: source vocabulary.
        tgt_vocab_size: target vocabulary.
        shared_vocab: one vocabulary and one embedding matrix for both languages.
        tie_output: the output layer is the target embedding matrix (states are projected to its size first).
        embedding_size: E (tutorial: 256).
        hidden_size: H (tutorial: 256).
        attention: "location", or "none": the tutorial's first decoder, which reads only the last encoder state.
        max_length: source positions that can be attended to, including EOS (tutorial: 10).
        dropout: on embeddings, on the memory and on the state before the output layer (tutorial: 0.1 on target
            embeddings).
        label_smoothing: share of the target probability spread over the vocabulary.
        beam_size: beam size in `translate` and in testing.
        length_penalty: alpha of the length normalisation in the search.
    """

    tiny: ClassVar[dict[str, Any]] = dict(
        src_vocab_size=12, tgt_vocab_size=11, embedding_size=6, hidden_size=8, max_length=30, dropout=0.0
    )

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        shared_vocab: bool = False,
        tie_output: bool = False,
        embedding_size: int = 256,
        hidden_size: int = 256,
        attention: Literal["location", "none"] = "location",
        max_length: int = 10,
        dropout: float = 0.1,
        label_smoothing: float = 0.0,
        beam_size: int = 5,
        length_penalty: float = 1.0,
    ):
        super().__init__()
        if max_length < 2:
            raise ValueError(f"max_length must be at least 2, a word and EOS; got {max_length}")
        self.attends = attention == "location"
        if self.attends:
            self.max_source_tokens = max_length - 1  # EOS is a token too
        self.embeddings = Embeddings(
            src_vocab_size, tgt_vocab_size, embedding_size, shared_vocab, tie_output, hidden_size
        )
        self.encoder = RecurrentEncoder("gru", embedding_size, hidden_size, bidirectional=False)
        if self.attends:
            self.attention = GlobalAttention(
                embedding_size + hidden_size, hidden_size, "location", max_length=max_length
            )
            self.w_c = nn.Linear(embedding_size + hidden_size, hidden_size)
        self.gru = GRUCell(hidden_size if self.attends else embedding_size, hidden_size)
        self.dropout = Dropout(dropout)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[AttentionMemory | Summary, tuple[Tensor, ...]]:
        if (
            self.attends
            and src.size(1) > (most := self.config["max_length"])
            and (longest := int(src_lengths.max())) > most
        ):
            raise ValueError(
                f"a source has {longest} tokens, its end included, and the model attends to the first {most}: leave "
                "longer ones out "
                f"(in training max_length {most - 1} of the data does so), or train with a larger max_length of the "
                "model"
            )
        memory, finals = self.encoder(self.dropout(self.embeddings.src(src)), src_lengths)  # (B, S, H)
        if not self.attends:
            return Summary(finals[0][0]), finals[0]
        return self.attention.project(self.dropout(memory), lengths_to_mask(src_lengths, src.size(1))), finals[0]

    def decode(
        self, tgt: Tensor, memory: AttentionMemory | Summary, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor | None]:
        embedded = self.dropout(self.embeddings.tgt(tgt))  # (B, T, E)
        s, found = state[0].unsqueeze(1), []
        for y in embedded.unsqueeze(2).unbind(1):  # (B, 1, E)
            s, weights = self.decoder_step(y, s, memory)
            found.append((s, weights))
        states, weights = zip(*found, strict=True)
        outputs = self.dropout(torch.cat(states, dim=1).to(embedded.dtype))
        return outputs, torch.cat(weights, dim=1) if self.attends else None

    def step(
        self, tokens: Tensor, state: tuple, memory: AttentionMemory | Summary, t: int, given: Tensor | None = None
    ) -> tuple[Tensor, tuple, Tensor | None]:
        embedded = self.dropout(self.embeddings.tgt(tokens))  # (B, K, E)
        s, weights = self.decoder_step(embedded, state[0], memory, given)
        return self.dropout(s.to(embedded.dtype)), (s,), weights

    def decoder_step(
        self, embedded: Tensor, s: Tensor, memory: AttentionMemory | Summary, given: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """e_t (B, K, E), s_{t-1} (B, K, H) -> s_t, alpha_t (B, K, S) or None."""
        if not self.attends:
            return self.gru(torch.relu(embedded), (s,))[0], None  # x_t = relu(e_t)
        query = torch.cat([embedded, s.to(embedded.dtype)], dim=-1)
        context, weights = self.attention(query, memory, given=given)  # c_t, alpha_t
        # x_t = relu(W_c [e_t; c_t])
        x = torch.relu(self.w_c(torch.cat([embedded, context.to(embedded.dtype)], dim=-1)))
        return self.gru(x, (s,))[0], weights
