"""Recurrent classifier with any attention of this package over its states: many inputs, one output.

The attention layers of Luong, Pham and Manning 2015, https://arxiv.org/abs/1508.04025 (scores and global, local-m and
local-p attention), used many-to-one as in the layers of ongunuzaymacar/attention-mechanisms: the last state is the
query, all states are the memory, and h~ = tanh(W_c [c; h]) (Eq. 5) is classified. The classes are those of the text,
or the words that may follow it. Two models to compare with: `score: uniform` takes the mean of the states as c,
`attention: none` classifies the last state alone.

Differs from the paper:
- one query per text instead of one per target word; the query is the final state of each direction;
- local-m looks at the last words of the text, the last one and the D before it: its position is that of the last
  word;
- AdamW, dropout, optional adversarial training.

Shapes: B texts, S words, E embedding size, H hidden size of all directions together.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.batches.classification import TextBatch
from zoo.layers.attention import NoAttention, make_attention
from zoo.layers.dropout import Dropout
from zoo.layers.masking import lengths_to_mask
from zoo.layers.packed import to_padded
from zoo.layers.recurrent import RecurrentEncoder
from zoo.tasks.classification import TextClassifier
from zoo.text import PAD


class AttentionClassifier(TextClassifier):
    """Recurrent encoder, attention with the last state as its query, one hidden layer.

    Args:
        vocab_size: V.
        num_classes: C; for next-word prediction the number of words.
        multi_label: a text may have several labels, or none.
        embedding_size: E.
        hidden_size: H, half of it per direction if bidirectional.
        num_layers: recurrent layers.
        cell: "lstm" or "gru".
        bidirectional: read in both directions.
        attention: "global", "local_m", "local_p", "local_p_full", "local_p_star", or "none": h~ = tanh(W_c h), and all
            weights are 0.
        score: "dot", "scaled_dot", "general", "concat", "uniform" (equal weights: the mean of the states), or
            "location" (with global attention only).
        normalize: how scores become weights: "softmax" or "sparsemax", which gives many exact zeros.
        window: D of the local attentions.
        renormalize: local-p variants: divide the weights by their sum after the Gaussian or the gate.
        max_source_length: number of positions that location scores distinguish.
        dropout: on embeddings, states and the hidden layer.
        word_dropout: share of the words replaced by UNK in training.
        label_smoothing: share of the target probability spread over all classes.
        adversarial: above 0, texts are also learnt with shifted word vectors; length of the shift, relative to that of
            the vectors (zoo/tasks/adversarial.py).
    """

    heads = ("classifier",)
    tiny: ClassVar[dict[str, Any]] = dict(vocab_size=12, num_classes=3, embedding_size=6, hidden_size=8, dropout=0.0)

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        multi_label: bool = False,
        embedding_size: int = 100,
        hidden_size: int = 200,
        num_layers: int = 1,
        cell: Literal["lstm", "gru"] = "lstm",
        bidirectional: bool = True,
        attention: Literal["global", "local_m", "local_p", "local_p_full", "local_p_star", "none"] = "global",
        score: Literal["dot", "scaled_dot", "general", "concat", "location", "uniform"] = "general",
        normalize: Literal["softmax", "sparsemax"] = "softmax",
        window: int = 10,
        renormalize: bool = False,
        max_source_length: int = 500,
        dropout: float = 0.3,
        word_dropout: float = 0.0,
        label_smoothing: float = 0.0,
        adversarial: float = 0.0,
    ):
        super().__init__()
        if bidirectional and hidden_size % 2:
            raise ValueError(f"hidden_size must be even for a bidirectional encoder (half each way); got {hidden_size}")
        self.embedding = nn.Embedding(vocab_size, embedding_size, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.encoder = RecurrentEncoder(
            cell, embedding_size, hidden_size // (2 if bidirectional else 1), num_layers, bidirectional, dropout
        )
        self.attention, context_size = NoAttention(), 0
        if attention != "none":
            context_size = hidden_size
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
        self.w_c = nn.Linear(context_size + hidden_size, hidden_size, bias=False)
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(hidden_size, num_classes)

    def read(self, batch: TextBatch) -> tuple[Tensor, list[Tensor]]:
        """Logits (B, C) and the attention weights, one (B, 1, S)."""
        mask = lengths_to_mask(batch.lengths, batch.tokens.size(1))
        embedded, rows = self.embed_words(batch.tokens[mask])
        states, finals = self.encoder.flat(self.dropout(embedded), batch.lengths, rows)  # (P, H)
        memory = self.attention.project(to_padded(self.dropout(states), mask), mask)
        query = self.dropout(finals[-1][0].to(states.dtype)).unsqueeze(1)  # (B, 1, H)
        context, weights = self.attention(query, memory, mask.size(1))  # local-m: clamped to the last word
        # h~ = tanh(W_c [c; h])  Eq. 5
        hidden = torch.tanh(self.w_c(torch.cat([context.to(query.dtype), query], dim=-1))).squeeze(1)
        return self.classifier(self.dropout(hidden)), [weights]
