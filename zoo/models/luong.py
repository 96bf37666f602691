"""Luong, Pham, Manning 2015: Effective Approaches to Attention-based Neural Machine Translation (arXiv:1508.04025).

Here: global attention (Eq. 7-8) with scores dot, general, concat and location, local-m and local-p (Eq. 9-10), the
attentional state (Eq. 5), the output layer (Eq. 6) and input feeding (section 3.3). `attentional_state: false` with
score dot and without input feeding is the plain form of many textbooks: the output layer reads [c_t; h_t] directly.

Differs from the paper:
* The encoder is bidirectional by default (the paper's is not; `bidirectional: false`), with half of the hidden size
  per direction, so that memory and decoder state have the same size and the dot score is defined.
* The source is not reversed; Adam with warm-up and cosine schedule instead of SGD; score scaled_dot and attention
  local_p_star are from later work; local_p_full is local-p with the softmax over all positions, not only the window.
* The weights may be a sparsemax instead of a softmax (`normalize`; Martins and Astudillo 2016, arXiv:1602.02068).
* The readout may be projected to the embedding size and share its matrix with the embeddings (`tie_output`).
* Embeddings are scaled by sqrt(E) when they are looked up, tied or not (zoo/tasks/embeddings.py).

Shapes: B batch, S source tokens, T target tokens, K hypotheses per sentence, E embedding, H hidden, V vocabulary.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.layers.attention import AttentionMemory, make_attention
from zoo.layers.dropout import Dropout
from zoo.layers.masking import lengths_to_mask
from zoo.layers.recurrent import RecurrentDecoder, RecurrentEncoder
from zoo.tasks.embeddings import Embeddings
from zoo.tasks.translation import TranslationModule


class LuongNMT(TranslationModule[AttentionMemory]):
    """Encoder-decoder with Luong attention.

    Args:
        src_vocab_size: source vocabulary.
        tgt_vocab_size: target vocabulary.
        shared_vocab: one vocabulary and one embedding matrix for both languages.
        tie_output: the output layer is the target embedding matrix (readouts are projected to its size first).
        embedding_size: E.
        hidden_size: H of the decoder and of the whole memory vector.
        encoder_layers: layers of the encoder.
        decoder_layers: layers of the decoder.
        cell: "lstm" (paper) or "gru".
        bidirectional: encoder in both directions, H/2 per direction.
        attention: positions attended to.
        score: how query and memory are compared.
        normalize: how scores become weights: "softmax" (paper) or "sparsemax", which gives many exact zeros.
        attentional_state: h~_t = tanh(W_c [c_t; h_t]) goes to the output layer; else [c_t; h_t] itself does, without
            input feeding.
        input_feeding: the attentional state of a step is part of the next input; training then needs a Python loop
            over the target tokens.
        window: D of the local attentions.
        renormalize: local_p, local_p_full and local_p_star: weights sum to 1 (not in the paper).
        max_source_length: number of positions for which score "location" has a weight; later ones are ignored.
        dropout: on embeddings, between layers, on the memory and on the attentional state.
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
        encoder_layers: int = 1,
        decoder_layers: int = 1,
        cell: Literal["lstm", "gru"] = "lstm",
        bidirectional: bool = True,
        attention: Literal["global", "local_m", "local_p", "local_p_full", "local_p_star"] = "global",
        score: Literal["dot", "scaled_dot", "general", "concat", "location"] = "general",
        normalize: Literal["softmax", "sparsemax"] = "softmax",
        attentional_state: bool = True,
        input_feeding: bool = True,
        window: int = 10,
        renormalize: bool = False,
        max_source_length: int = 100,
        dropout: float = 0.3,
        label_smoothing: float = 0.1,
        beam_size: int = 5,
        length_penalty: float = 1.0,
    ):
        super().__init__()
        if bidirectional and hidden_size % 2:
            raise ValueError(f"hidden_size must be even for a bidirectional encoder (half each way); got {hidden_size}")
        if input_feeding and not attentional_state:
            raise ValueError(
                "input feeding feeds the attentional state; set input_feeding to false if attentional_state is false"
            )
        self.input_feeding = input_feeding
        readout_size = hidden_size if attentional_state else 2 * hidden_size
        self.embeddings = Embeddings(
            src_vocab_size, tgt_vocab_size, embedding_size, shared_vocab, tie_output, readout_size
        )
        self.encoder = RecurrentEncoder(
            cell, embedding_size, hidden_size // (2 if bidirectional else 1), encoder_layers, bidirectional, dropout
        )
        fed_size = hidden_size if input_feeding else 0
        self.decoder = RecurrentDecoder(cell, embedding_size + fed_size, hidden_size, decoder_layers, dropout)
        self.attention = make_attention(
            attention,
            hidden_size,
            hidden_size,
            score=score,
            max_length=max_source_length,
            window=window,
            renormalize=renormalize,
            normalize=normalize,
        )
        self.w_c = nn.Linear(2 * hidden_size, hidden_size, bias=False) if attentional_state else None
        self.dropout = Dropout(dropout)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[AttentionMemory, tuple[Tensor, ...]]:
        embedded = self.dropout(self.embeddings.src(src))  # (B, S, E)
        memory, finals = self.encoder(embedded, src_lengths)  # (B, S, H)
        # decoder layer n starts from encoder layer n (the top one for any layer above)
        state = tuple(x for n in range(len(self.decoder.cells)) for x in finals[min(n, len(finals) - 1)])
        if self.input_feeding:
            state = (torch.zeros_like(state[0]), *state)  # h~_0 = 0
        return self.attention.project(self.dropout(memory), lengths_to_mask(src_lengths, src.size(1))), state

    def decode(self, tgt: Tensor, memory: AttentionMemory, state: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        embedded = self.dropout(self.embeddings.tgt(tgt))  # (B, T, E)
        if not self.input_feeding:
            hidden, _ = self.decoder(embedded, state)  # (B, T, H)
            return self.attend(hidden, memory, torch.arange(tgt.size(1), device=tgt.device))
        state = tuple(x.unsqueeze(1) for x in state)
        readouts, weights = [], []
        for t, y in enumerate(embedded.unsqueeze(2).unbind(1)):  # (B, 1, E)
            readout, state, weight = self.decoder_step(y, state, memory, t)
            readouts.append(readout)
            weights.append(weight)
        return torch.cat(readouts, dim=1), torch.cat(weights, dim=1)

    def step(
        self, tokens: Tensor, state: tuple, memory: AttentionMemory, t: int, given: Tensor | None = None
    ) -> tuple[Tensor, tuple, Tensor]:
        return self.decoder_step(self.dropout(self.embeddings.tgt(tokens)), state, memory, t, given)

    def decoder_step(
        self, embedded: Tensor, state: tuple, memory: AttentionMemory, t: int, given: Tensor | None = None
    ) -> tuple[Tensor, tuple, Tensor]:
        """y_{t-1} (B, K, E), state -> readout (B, K, H), state, weights (B, K, S)."""
        if self.input_feeding:
            fed, state = state[0], state[1:]
            embedded = torch.cat([embedded, fed.to(embedded.dtype)], dim=-1)
        hidden, state = self.decoder.step(embedded, state)  # h_t = RNN([y_{t-1}; h~_{t-1}], h_{t-1})
        readout, weights = self.attend(hidden, memory, t, given)
        return readout, ((readout, *state) if self.input_feeding else state), weights

    def attend(
        self, hidden: Tensor, memory: AttentionMemory, position: Tensor | int, given: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """h_t (B, T, H) -> input of the output layer, and the weights (B, T, S)."""
        context, weights = self.attention(hidden, memory, position, given)  # c_t, a_t: Eq. 7-10
        readout = torch.cat([context.to(hidden.dtype), hidden], dim=-1)
        if self.w_c is not None:
            readout = torch.tanh(self.w_c(readout))  # h~_t = tanh(W_c [c_t; h_t])  Eq. 5
        return self.dropout(readout), weights
