"""What word is to be expected between the words before and after it: context2vec.

Melamud, Goldberger and Dagan 2016, "context2vec: Learning Generic Context Embedding with Bidirectional LSTM",
https://aclanthology.org/K16-1006/. One LSTM reads what stands before a word, another, from the end, what stands after
it; their states are projected to the space of the word vectors.

Differs from the paper: trained with a sampled softmax instead of negative sampling; one projection instead of a network
with a hidden layer; one matrix for the words that are read and the words that are expected.

Shapes: B texts, S words of the longest, E embedding, H states of each direction, V vocabulary.
"""

import torch
from torch import Tensor, nn

from zoo.layers.dropout import Dropout
from zoo.layers.losses import output_loss, sampled_output_loss
from zoo.layers.masking import lengths_to_mask
from zoo.layers.recurrent import RecurrentEncoder
from zoo.layers.tied import TiedOutput

_PIECE = 96  # words of a text that are read together in training


class ContextModel(TiedOutput):
    """Vectors of the contexts of words, in the space of word vectors.

    Args:
        vocab_size, embedding_size, hidden_size: V, E, H.
        dropout: on word vectors, states and contexts.
        sampled_words: words in the softmax of a training batch besides those of its texts (`sampled_output_loss`).
    """

    def __init__(
        self, vocab_size: int, embedding_size: int, hidden_size: int, dropout: float = 0.0, sampled_words: int = 1000
    ):
        super().__init__()
        self.scale, self.sampled_words = embedding_size**0.5, sampled_words
        self.table = nn.Embedding(vocab_size, embedding_size)
        nn.init.normal_(self.table.weight, std=1 / self.scale)
        self.encoder = RecurrentEncoder("lstm", embedding_size, hidden_size)
        self.project = nn.Linear(2 * hidden_size, embedding_size)
        self.output = nn.Linear(embedding_size, vocab_size)
        self.output.weight = self.table.weight
        nn.init.zeros_(self.output.bias)
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The context of each word, without the word itself: ids (B, S), lengths (B,) -> (B, S, E)."""
        states, _ = self.encoder(self.dropout(self.table(ids) * self.scale), lengths)  # 0 after the lengths
        before, after = states.chunk(2, -1)
        around = nn.functional.pad(before, (0, 0, 1, 0))[:, :-1], nn.functional.pad(after, (0, 0, 0, 1))[:, 1:]
        return self.project(self.dropout(torch.cat(around, -1)))

    def loss(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Mean cross-entropy of the words given their contexts within pieces of 96 words, in nats.

        In training it is an estimate, and pieces are much faster than long texts.
        """
        count = -(-ids.size(1) // _PIECE)
        starts = _PIECE * torch.arange(count, device=ids.device)
        lengths = (lengths.unsqueeze(1) - starts).clamp(0, _PIECE).flatten()
        ids = nn.functional.pad(ids, (0, count * _PIECE - ids.size(1))).view(-1, _PIECE)
        mask = lengths_to_mask(lengths, _PIECE)
        contexts, words = self.dropout(self(ids, lengths)[mask]), ids[mask]
        if self.training:
            loss = sampled_output_loss(self.output, contexts, words, self.sampled_words)
        else:
            loss = output_loss(self.output, contexts, words)
        return loss / max(1, len(words))
