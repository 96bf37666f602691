"""Hierarchical attention network for documents: attention over the words of a sentence, then over the sentences.

Yang, Yang, Dyer, He, Smola and Hovy 2016, "Hierarchical Attention Networks for Document Classification", NAACL 2016,
https://aclanthology.org/N16-1174/ (Eq. 5-12).

An empty document has the zero vector, so its class is decided by the output layer's bias.

Differs from the paper:
- dropout on the embeddings, between the levels and before the output layer, optional word dropout and adversarial
  training, AdamW instead of SGD with momentum (the paper has neither dropout nor Adam);
- the reset gate of the GRU acts after the hidden product, as in cuDNN;
- `cell: lstm` as an option; optional multi-label documents (a sigmoid per label instead of a softmax).

Shapes: B documents, N sentences and P words of all of them, E embedding size, H hidden size per direction, K attention
size. All tensors are flat (zoo/layers/packed.py): there is no padding at either level.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.batches.classification import DocumentBatch
from zoo.layers.dropout import Dropout
from zoo.layers.kernels import wide
from zoo.layers.packed import segment_softmax, segment_sum
from zoo.layers.recurrent import RecurrentEncoder
from zoo.tasks.classification import DocumentClassifier
from zoo.text import PAD


class ContextAttention(nn.Module):
    """Attention of a learned context vector over the items of each sequence, and the weighted sum.

    Args:
        size: size of an item.
        attention_size: K.
    """

    def __init__(self, size: int, attention_size: int):
        super().__init__()
        self.project = nn.Linear(size, attention_size)  # W, b
        # u_w, u_s
        self.context = nn.Parameter(torch.empty(attention_size).uniform_(-(attention_size**-0.5), attention_size**-0.5))

    def forward(self, items: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """items (P, D), lengths (N,) -> sums (N, D), zeros for an empty sequence; weights (P,)."""
        weights = segment_softmax(self.scores(items), lengths)  # Eq. 6, 9
        return segment_sum(items, weights, lengths), weights  # Eq. 7, 10

    def scores(self, items: Tensor) -> Tensor:
        """items (..., D) -> scores before the softmax (...)."""
        return torch.matmul(wide(torch.tanh(self.project(items))), wide(self.context))  # Eq. 5, 8


class HAN(DocumentClassifier):
    """Hierarchical attention network.

    Args:
        vocab_size: V.
        num_classes: C.
        multi_label: a document may have several labels, or none.
        embedding_size: E.
        hidden_size: H per direction, at both levels.
        attention_size: K, at both levels.
        cell: "gru" (the paper) or "lstm".
        word_layers: recurrent layers over the words of a sentence.
        sentence_layers: recurrent layers over the sentences.
        dropout: on embeddings, sentence vectors and the document vector.
        word_dropout: share of the words replaced by UNK in training.
        label_smoothing: share of the target probability spread over all classes.
        adversarial: above 0, texts are also learnt with shifted word vectors; length of the shift, relative to that of
            the vectors (zoo/tasks/adversarial.py).
    """

    heads = ("classifier",)
    tiny: ClassVar[dict[str, Any]] = dict(
        vocab_size=12, num_classes=3, embedding_size=6, hidden_size=4, attention_size=5, dropout=0.0
    )

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        multi_label: bool = False,
        embedding_size: int = 200,
        hidden_size: int = 50,
        attention_size: int = 100,
        cell: Literal["gru", "lstm"] = "gru",
        word_layers: int = 1,
        sentence_layers: int = 1,
        dropout: float = 0.3,
        word_dropout: float = 0.0,
        label_smoothing: float = 0.0,
        adversarial: float = 0.0,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_size, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.word_encoder = RecurrentEncoder(cell, embedding_size, hidden_size, word_layers, dropout=dropout)
        self.word_attention = ContextAttention(2 * hidden_size, attention_size)
        self.sentence_encoder = RecurrentEncoder(cell, 2 * hidden_size, hidden_size, sentence_layers, dropout=dropout)
        self.sentence_attention = ContextAttention(2 * hidden_size, attention_size)
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(2 * hidden_size, num_classes)

    def read(self, batch: DocumentBatch) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits (B, C), word weights (P,), sentence weights (N,); they sum to 1 per sentence and per document."""
        embedded, rows = self.embed_words(batch.words)  # (R, E), (P,)
        words, _ = self.word_encoder.flat(self.dropout(embedded), batch.sentence_lengths, rows)  # h_it (P, 2H)
        sentences, word_weights = self.word_attention(words, batch.sentence_lengths)  # s_i (N, 2H)
        states, _ = self.sentence_encoder.flat(self.dropout(sentences), batch.document_lengths)  # h_i (N, 2H)
        documents, sentence_weights = self.sentence_attention(states, batch.document_lengths)  # v (B, 2H)
        return self.classifier(self.dropout(documents.to(states.dtype))), (word_weights, sentence_weights)  # Eq. 11
