"""Merity, Xiong, Bradbury, Socher 2017: Pointer Sentinel Mixture Models (ICLR, arXiv:1609.07843).

An LSTM language model that can take the next word from the last L words of the text: the attention weights are
probabilities of these words, and what the attention gives to a sentinel goes to the softmax over the vocabulary
(zoo/layers/pointer_sentinel.py). A rare word that was just read, such as a name, is then probable again.

Differs from the paper:
* The window ends before the word just read, as in the other models here, so the same word twice in a row comes from
  the vocabulary; the paper's begins with it.
* The window continues from the previous batch (without gradient); the paper recomputes its states. So no gradient
  reaches words of the batches before.
* One layer by default, and the readout is projected to the embedding size and scored with the embedding matrix
  (`tie_output`); the paper has two layers of 650 and two matrices. No zoneout.
* AdamW without momentum, with warm-up and cosine schedule, as the other language models; the bias of the output layer
  starts from the word frequencies.

Shapes: B batch, T steps, L window, H hidden, E embedding, V vocabulary.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.layers.pointer_sentinel import PointerSentinel
from zoo.layers.window import last_steps
from zoo.tasks.language_modelling import State
from zoo.tasks.lstm_language_model import LSTMLanguageModel, check_limits
from zoo.tasks.words import Words
from zoo.text import PAD


class PointerSentinelLM(LSTMLanguageModel):
    """LSTM language model that points at words it has read, or at a sentinel for the whole vocabulary.

    Args:
        vocab_size: V.
        window: L, words to which it can point.
        embedding_size: E.
        hidden_size: H.
        num_layers: LSTM layers.
        tie_output: the output layer is the embedding matrix.
        dropout: on the readout; not on what the pointer compares.
        inner_dropout: between layers.
        input_dropout: on the embeddings.
        word_dropout: share of the vocabulary that is dropped from the inputs of a training batch.
        weight_dropout: on the recurrent weights, one mask per batch.
        evaluation_temperature: divides the readouts in evaluation; choose it on validation data.
    """

    tiny: ClassVar[dict[str, Any]] = dict(vocab_size=12, embedding_size=6, hidden_size=8, window=4, dropout=0.0)

    def __init__(
        self,
        vocab_size: int,
        window: int = 100,
        embedding_size: int = 256,
        hidden_size: int = 512,
        num_layers: int = 1,
        tie_output: bool = True,
        dropout: float = 0.4,
        inner_dropout: float = 0.0,
        input_dropout: float = 0.0,
        word_dropout: float = 0.0,
        weight_dropout: float = 0.0,
        evaluation_temperature: float = 1.0,
    ):
        super().__init__()
        check_limits(window, num_layers)
        self.pointer = PointerSentinel(hidden_size, window)
        self.words = Words(
            vocab_size,
            embedding_size,
            hidden_size,
            tie_output,
            word_dropout,
            evaluation_temperature=evaluation_temperature,
        )
        self.add_layers(
            embedding_size, [hidden_size] * num_layers, input_dropout, inner_dropout, dropout, weight_dropout
        )

    def start(self, batch_size: int) -> State:
        """h and c of each layer (B, H), the last outputs (B, L, H) and words (B, L), and the number that exist (B,)."""
        past = self.cells[0].bias.detach().new_zeros(batch_size, self.pointer.window, self.config["hidden_size"])
        words = torch.full(past.shape[:2], PAD, dtype=torch.int64, device=self.device)
        known = torch.zeros(batch_size, dtype=torch.int64, device=self.device)
        return *self.start_layers(batch_size), past, words, known

    def read(self, inputs: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None, State]:
        *layers, past, words, known = state
        window = self.pointer.window
        x, new = self.run_layers(inputs, layers, lengths)
        outputs = torch.cat([past.transpose(0, 1), x])  # (L + T, B, H)
        weights = self.pointer(outputs, known)
        past = last_steps(outputs.transpose(0, 1), window, lengths)
        words = last_steps(torch.cat([words, inputs], dim=1), window, lengths)
        known = (known + (inputs.size(1) if lengths is None else lengths)).clamp(max=window)
        return self.dropout(x).transpose(0, 1), weights.transpose(0, 1), (*new, past, words, known)

    def pointed(self, inputs: Tensor, state: State) -> Tensor:
        words = torch.cat([state[-2], inputs[:, :-1]], dim=1)  # (B, L + T - 1)
        return words.unfold(1, self.pointer.window, 1).flip(-1)
