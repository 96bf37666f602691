"""Daniluk, Rocktaschel, Welbl, Riedel 2017: Frustratingly Short Attention Spans in Neural Language Modeling.

https://arxiv.org/abs/1702.04521. An LSTM language model that attends to its last L outputs at every step. Here:
attention over whole outputs (Eq. 2-6), outputs divided into key and value (Eq. 7-9) or into key, value and predict
(Eq. 10-13), the N-gram RNN, which looks back without attention (Eq. 14), and the plain LSTM.

Differs from the paper:
* The window also holds outputs of the previous batch (without gradient). At the beginning of a text it holds those that
  exist, and without any the context r is 0. The paper does not specify either case.
* AdamW without momentum, with warm-up and cosine schedule (Melis et al. 2018, arXiv:1707.05589); the bias of the output
  layer starts from the word frequencies. With momentum and without this initialisation the outputs saturate in the
  first steps and stay saturated for long.
* Dropout of words, inputs, outputs and recurrent weights (Merity et al. 2018, arXiv:1708.02182), the same at all steps;
  the readout may be projected to the embedding size and share its matrix with the embeddings (`tie_output`).
* Training may use a sampled softmax (`sampled_words`); evaluation may divide the readouts by a temperature
  (`evaluation_temperature`).
* More than one layer: the attention is on the top one.

Shapes: B batch, T steps, L window, K size of a key, O = K, 2K, 3K or (N-1)K output size of the top layer, E embedding,
V vocabulary. Inside, steps come first: (T, B, ...).
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.layers.masking import masked_softmax
from zoo.layers.window import last_steps, window_mask, window_score, window_sum
from zoo.tasks.language_modelling import State
from zoo.tasks.lstm_language_model import LSTMLanguageModel, check_limits
from zoo.tasks.words import Words


class _Plain(nn.Module):
    """The plain LSTM: the outputs as they are."""

    parts, length = 1, 0  # output size in units of K; number of outputs remembered

    def __init__(self, size: int, window: int, ngram: int):
        super().__init__()

    def forward(self, outputs: Tensor, known: Tensor) -> tuple[Tensor, Tensor | None]:
        """Outputs (length + T, B, O), `known` (B,) of the first `length` real -> readouts (T, B, K), weights/None."""
        return outputs, None


class _NGram(nn.Module):
    """Each of the last N - 1 outputs gives its own part: h*_t = tanh(W_N [h_t^1; h_{t-1}^2; ...; h_{t-N+2}^{N-1}])."""

    def __init__(self, size: int, window: int, ngram: int):
        super().__init__()
        if ngram < 2:
            raise ValueError(f"ngram must be at least 2; got {ngram}")
        self.size, self.parts, self.length = size, ngram - 1, ngram - 2
        self.w_n = nn.Linear(self.parts * size, size, bias=False)

    def forward(self, outputs: Tensor, known: Tensor) -> tuple[Tensor, None]:
        steps = len(outputs) - self.length
        slices = outputs.split(self.size, dim=-1)  # outputs that do not exist are 0
        shifted = [part[self.length - n : self.length - n + steps] for n, part in enumerate(slices)]
        return torch.tanh(self.w_n(torch.cat(shifted, dim=-1))), None


class WindowAttention(nn.Module):
    """Attention over the last L outputs, which are keys and values at once."""

    parts = 1

    def __init__(self, size: int, window: int, ngram: int):
        super().__init__()
        if window < 1:
            raise ValueError(f"window must be at least 1; got {window}")
        self.size, self.length = size, window
        self.w_y, self.w_h, self.w_r, self.w_x = (nn.Linear(size, size, bias=False) for _ in range(4))
        for layer in (self.w_y, self.w_h, self.w_r, self.w_x):
            nn.init.xavier_uniform_(layer.weight)
        self.w = nn.Parameter(torch.empty(size).uniform_(-(size**-0.5), size**-0.5))

    def forward(self, outputs: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        parts = outputs.split(self.size, dim=-1)
        key, value, predict = parts[0], parts[min(1, len(parts) - 1)], parts[-1]  # (L + T, B, K) each
        now = self.length
        scores = self.scores(key[now:], key[:-1])
        weights = masked_softmax(scores, window_mask(known, len(scores), self.length))  # a_t
        context = window_sum(weights, value[:-1]).to(value.dtype)  # r_t = sum_i a_ti v_i
        return torch.tanh(self.w_r(context) + self.w_x(predict[now:])), weights  # h*_t = tanh(W_r r_t + W_x p_t)

    def scores(self, key: Tensor, before: Tensor) -> Tensor:
        """Keys of the steps (T, B, K) and of those before them (L + T - 1, B, K) -> (T, B, L), the nearest first."""
        return window_score(self.w_h(key), self.w_y(before), self.w)  # w^T tanh(W_Y k_i + W_h k_t)


class _KeyValue(WindowAttention):
    """h = [k; v]; the value also predicts."""

    parts = 2


class _KeyValuePredict(WindowAttention):
    """h = [k; v; p]."""

    parts = 3


READERS = {
    "none": _Plain,
    "ngram": _NGram,
    "attention": WindowAttention,
    "key_value": _KeyValue,
    "key_value_predict": _KeyValuePredict,
}


class KeyValuePredictLM(LSTMLanguageModel):
    """LSTM language model with a short memory of its last outputs.

    Args:
        vocab_size: V.
        attention: "none" (plain LSTM), "ngram" (N-gram RNN), "attention" over whole outputs, "key_value" or
            "key_value_predict".
        window: L, number of outputs that the attention sees.
        ngram: N of the N-gram RNN.
        embedding_size: E.
        hidden_size: K; the top layer's outputs have 1 ("none", "attention"), 2, 3 or N - 1 times this size.
        num_layers: LSTM layers.
        inner_size: output size of the layers below the top one; that of the top one if not given.
        tie_output: the output layer is the embedding matrix.
        dropout: on the readout.
        inner_dropout: between layers, and on the outputs that the attention (or the N-gram RNN) reads.
        input_dropout: on the embeddings.
        word_dropout: share of the vocabulary that is dropped from the inputs of a training batch.
        weight_dropout: on the recurrent weights (Wan et al. 2013), one mask per batch.
        sampled_words: words in the softmax of a training batch, in addition to its targets; all if not given.
        evaluation_temperature: divides the readouts in evaluation; choose it on validation data.
        locked_dropout: one dropout mask for all steps of a batch.
    """

    tiny: ClassVar[dict[str, Any]] = dict(vocab_size=12, embedding_size=6, hidden_size=8, ngram=4, dropout=0.0)

    def __init__(
        self,
        vocab_size: int,
        attention: Literal["none", "ngram", "attention", "key_value", "key_value_predict"] = "key_value_predict",
        window: int = 5,
        ngram: int = 5,
        embedding_size: int = 256,
        hidden_size: int = 256,
        num_layers: int = 1,
        inner_size: int | None = None,
        tie_output: bool = True,
        dropout: float = 0.4,
        inner_dropout: float = 0.0,
        input_dropout: float = 0.0,
        word_dropout: float = 0.0,
        weight_dropout: float = 0.0,
        sampled_words: int | None = None,
        evaluation_temperature: float = 1.0,
        locked_dropout: bool = True,
    ):
        super().__init__()
        check_limits(window, num_layers)
        self.reader = READERS[attention](hidden_size, window, ngram)
        self.output_size = self.reader.parts * hidden_size
        sizes = [inner_size or self.output_size] * (num_layers - 1) + [self.output_size]
        self.words = Words(
            vocab_size, embedding_size, hidden_size, tie_output, word_dropout, sampled_words, evaluation_temperature
        )
        self.add_layers(embedding_size, sizes, input_dropout, inner_dropout, dropout, weight_dropout, locked_dropout)

    def start(self, batch_size: int) -> State:
        """h and c of each layer (B, H), the last outputs (B, length, O), and the number of them that exist (B,)."""
        past = self.cells[0].bias.detach().new_zeros(batch_size, self.reader.length, self.output_size)
        known = torch.zeros(batch_size, dtype=torch.int64, device=self.device)
        return *self.start_layers(batch_size), past, known

    def read(self, inputs: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None, State]:
        *layers, past, known = state
        steps, length = inputs.size(1), self.reader.length
        x, new = self.run_layers(inputs, layers, lengths)
        outputs = torch.cat([past.transpose(0, 1), x])  # (length + T, B, O)
        readouts, weights = self.reader(
            outputs if isinstance(self.reader, _Plain) else self.inner_dropout(outputs), known
        )
        past = last_steps(outputs.transpose(0, 1), length, lengths)  # (B, length, O)
        known = (known + (steps if lengths is None else lengths)).clamp(max=length)
        return (
            self.dropout(readouts).transpose(0, 1),
            None if weights is None else weights.transpose(0, 1),
            (*new, past, known),
        )
