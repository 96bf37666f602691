"""Cheng, Dong, Lapata 2016: Long Short-Term Memory-Networks for Machine Reading (EMNLP, arXiv:1601.06733).

An LSTM language model with attention inside its memory. Instead of one state it keeps a tape of the last L hidden
states and cells, and each step starts from a weighted sum of these (section 3):

    a_ti = v^T tanh(W_h h_i + W_x x_t + W_h~ h~_{t-1}),  s_t = softmax(a_t)
    h~_t = sum_i s_ti h_i,  c~_t = sum_i s_ti c_i
    i, f, o = sigmoid(W [h~_t; x_t] + b),  g = tanh(W [h~_t; x_t] + b)
    c_t = f c~_t + i g,  h_t = o tanh(c_t)

Differs from the paper:
* The tape continues from the previous batch (without gradient) and holds the last `window` steps; the paper's holds the
  whole sentence. While it is empty, h~ and c~ are 0.
* More than one layer: each has its own tape and reads the outputs of the layer below; no skip connections.
* AdamW with warm-up and cosine schedule; the output bias starts from the word frequencies; dropout on embeddings,
  between layers and on the readout, with the same mask at all steps; the readout may be projected to the embedding size
  and share its matrix with the embeddings.

Shapes: B batch, T steps, L window, E embedding, I input size of a layer, H hidden, A attention, V vocabulary.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.layers.dropout import LockedDropout
from zoo.layers.kernels import wide
from zoo.layers.masking import masked_softmax
from zoo.layers.module_list import ModuleList
from zoo.layers.recurrent import LSTMCell
from zoo.layers.scores import additive_score
from zoo.layers.window import last_steps, window_mask
from zoo.tasks.language_modelling import LanguageModelModule, State
from zoo.tasks.words import Words


class IntraAttentionLSTM(nn.Module):
    """One layer. Its state: the tape, h and c of the last L steps (B, L, H) each, the oldest first, and h~ (B, H).

    Args:
        input_size: I.
        hidden_size: H.
        attention_size: A.
        window: L.
    """

    def __init__(self, input_size: int, hidden_size: int, attention_size: int, window: int):
        super().__init__()
        self.window, self.cell = window, LSTMCell(input_size, hidden_size)
        self.w_h, self.w_summary = (nn.Linear(hidden_size, attention_size, bias=False) for _ in range(2))
        self.w_x = nn.Linear(input_size, attention_size, bias=False)
        for layer in (self.w_h, self.w_summary, self.w_x):
            nn.init.xavier_uniform_(layer.weight)
        self.v = nn.Parameter(torch.empty(attention_size).uniform_(-(attention_size**-0.5), attention_size**-0.5))

    def start(self, batch_size: int) -> State:
        tape = wide(self.cell.bias.detach()).new_zeros(batch_size, self.window, self.cell.hidden_size)
        return tape, tape, tape[:, 0]

    def forward(self, inputs: Tensor, state: State, mask: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, State]:
        """All steps.

        Args:
            inputs: (B, T, I).
            state: as returned by `start`.
            mask: (T, B, L) bool, which of the previous steps are on the tape, the nearest first.
            lengths: (B,) number of real steps in each row.

        Returns:
            h_t (B, T, H), weights s_t (B, T, L), the nearest step first, and the state after the real steps.
        """
        hidden, cells, summaries = [*state[0].unbind(1)], [*state[1].unbind(1)], [state[2]]
        keys = [*self.w_h(state[0].to(inputs.dtype)).unbind(1)]  # W_h h_i
        of_inputs, shown, recent = self.w_x(inputs), [], slice(None, -self.window - 1, -1)
        for x, of_x, known in zip(inputs.unbind(1), of_inputs.unbind(1), mask, strict=True):
            key, h, c = (torch.stack(tape[recent], dim=1) for tape in (keys, hidden, cells))  # (B, L, ...) each
            query = (of_x + self.w_summary(summaries[-1].to(inputs.dtype))).unsqueeze(1)  # (B, 1, A)
            weights = masked_softmax(additive_score(query, key, self.v), known.unsqueeze(1))  # s_t (B, 1, L)
            summary, cell = (torch.matmul(weights.to(part.dtype), part).squeeze(1) for part in (h, c))  # h~_t, c~_t
            h, c = self.cell(x, (summary, cell))
            hidden.append(h)
            cells.append(c)
            keys.append(self.w_h(h.to(inputs.dtype)))
            summaries.append(summary)
            shown.append(weights)
        rows = torch.arange(len(inputs), device=inputs.device)
        tapes = (last_steps(torch.stack(tape, dim=1), self.window, lengths) for tape in (hidden, cells))
        outputs = torch.stack(hidden[self.window :], dim=1).to(inputs.dtype)
        return outputs, torch.cat(shown, dim=1), (*tapes, torch.stack(summaries, dim=1)[rows, lengths])


class LSTMNLM(LanguageModelModule):
    """LSTM language model with attention to its own memory (LSTMN).

    Args:
        vocab_size: V.
        window: L, number of previous steps that the attention sees.
        embedding_size: E (paper: 150).
        hidden_size: H (paper: 300).
        attention_size: A; the hidden size if not given.
        num_layers: layers (paper: 1 to 3); the attention of the top one is shown.
        tie_output: the output layer is the embedding matrix.
        dropout: on the readout.
        inner_dropout: between layers.
        input_dropout: on the embeddings.
        word_dropout: share of the vocabulary that is dropped from the inputs of a training batch.
    """

    tiny: ClassVar[dict[str, Any]] = dict(vocab_size=12, embedding_size=6, hidden_size=8, dropout=0.0)

    def __init__(
        self,
        vocab_size: int,
        window: int = 15,
        embedding_size: int = 256,
        hidden_size: int = 256,
        attention_size: int | None = None,
        num_layers: int = 1,
        tie_output: bool = True,
        dropout: float = 0.4,
        inner_dropout: float = 0.0,
        input_dropout: float = 0.0,
        word_dropout: float = 0.0,
    ):
        super().__init__()
        if not 1 <= window <= 1000:  # no weight's shape bounds this
            raise ValueError(f"window must be from 1 to 1,000; got {window:,}")
        self.words = Words(vocab_size, embedding_size, hidden_size, tie_output, word_dropout)
        self.layers = ModuleList(
            IntraAttentionLSTM(hidden_size if n else embedding_size, hidden_size, attention_size or hidden_size, window)
            for n in range(num_layers)
        )
        self.input_dropout, self.inner_dropout, self.dropout = map(
            LockedDropout, (input_dropout, inner_dropout, dropout)
        )

    def start(self, batch_size: int) -> State:
        """Tape and h~ of each layer, and the number of steps on the tapes (B,)."""
        known = torch.zeros(batch_size, dtype=torch.int64, device=self.device)
        return *(x for layer in self.layers for x in layer.start(batch_size)), known

    def read(self, inputs: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None, State]:
        *layers, known = state
        steps, window = inputs.size(1), self.config["window"]
        lengths = torch.full_like(known, steps) if lengths is None else lengths
        mask = window_mask(known, steps, window)
        x, new, weights = self._drop(self.input_dropout, self.words(inputs)), [], None  # (B, T, E)
        for n, layer in enumerate(self.layers):
            x = self._drop(self.inner_dropout, x) if n else x
            x, weights, after = layer(x, tuple(layers[3 * n : 3 * n + 3]), mask, lengths)
            new += after
        return self._drop(self.dropout, x), weights, (*new, (known + lengths).clamp(max=window))

    @staticmethod
    def _drop(dropout: LockedDropout, x: Tensor) -> Tensor:
        """Dropout with the same mask at all steps: (B, T, D) -> (B, T, D)."""
        return dropout(x.transpose(0, 1)).transpose(0, 1)
