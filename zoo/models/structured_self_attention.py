"""Structured self-attentive sentence embedding: several attention hops over a BiLSTM represent a text as a matrix.

Lin, Feng, dos Santos, Yu, Xiang, Zhou and Bengio 2017, "A Structured Self-attentive Sentence Embedding", ICLR 2017,
https://arxiv.org/abs/1703.03130 (Eq. 2-8, the pair encoder of section 4.3, the pruned MLP of appendix A).

The penalty is ||A A^T - I||_F^2, summed over the r x r entries and averaged over the batch. (The authors' code takes
the mean over the padded n x n entries of A^T A - I instead, which makes its strength depend on the padding.)

Differs from the paper:
- dropout on the embeddings as well; optional word dropout and adversarial training; AdamW instead of SGD or AdaGrad;
- optional multi-label texts;
- for pairs the penalties of both texts are added, as in the authors' code;
- an optional second linear layer that predicts the relatedness of a pair, trained jointly with the classes.

Shapes: B texts, S words, E embedding size, U hidden size of a direction, D = 2 U, r hops, K attention size.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.batches.classification import TextBatch, collate_texts
from zoo.layers.dropout import Dropout
from zoo.layers.kernels import wide
from zoo.layers.masking import lengths_to_mask, masked_softmax
from zoo.layers.packed import to_padded
from zoo.layers.recurrent import RecurrentEncoder
from zoo.tasks.classification import TextClassifier
from zoo.text import PAD
from zoo.verbs.base import evaluated
from zoo.verbs.checks import texts_of
from zoo.verbs.groups import groups_of_similar_size

MIDDLE = 3.0  # of the relatedness scale, 1 to 5


class HopAttention(nn.Module):
    """A = softmax(W_s2 tanh(W_s1 H^T)) and M = A H (Eq. 5-6), without biases.

    Args:
        size: D.
        attention_size: K.
        hops: r.
        dropout: on the input of the score; M uses the states without it, as in the authors' code.
    """

    def __init__(self, size: int, attention_size: int, hops: int, dropout: float):
        super().__init__()
        self.w_s1 = nn.Linear(size, attention_size, bias=False)
        self.w_s2 = nn.Linear(attention_size, hops, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """states (P, D) of the real words, mask (B, S) of their positions -> M (B, r, D), A (B, r, S)."""
        weights = masked_softmax(to_padded(self.scores(self.dropout(states)), mask).transpose(1, 2), mask.unsqueeze(1))
        return torch.bmm(weights.to(states.dtype), to_padded(states, mask)), weights

    def scores(self, states: Tensor) -> Tensor:
        """states (..., D) -> scores before the softmax (..., r)."""
        return self.w_s2(torch.tanh(self.w_s1(states)))


class PrunedMLP(nn.Module):
    """Hidden layer of appendix A: p units see one row (hop) of M each, q units see one column each.

    Args:
        hops: r.
        size: D.
        row_units: p; r * p units in all.
        column_units: q; D * q units in all.
    """

    def __init__(self, hops: int, size: int, row_units: int, column_units: int):
        super().__init__()
        self.rows = nn.Parameter(torch.empty(hops, size, row_units).uniform_(-(size**-0.5), size**-0.5))
        self.row_bias = nn.Parameter(torch.zeros(hops, row_units))
        self.columns = nn.Parameter(torch.empty(size, hops, column_units).uniform_(-(hops**-0.5), hops**-0.5))
        self.column_bias = nn.Parameter(torch.zeros(size, column_units))

    def forward(self, m: Tensor) -> Tensor:
        """M (B, r, D) -> (B, r * p + D * q)."""
        by_row = torch.einsum("brd,rdp->brp", m, self.rows) + self.row_bias
        by_column = torch.einsum("brd,drq->bdq", m, self.columns) + self.column_bias
        return torch.relu(torch.cat([by_row.flatten(1), by_column.flatten(1)], dim=-1))


class StructuredSelfAttention(TextClassifier):
    """Structured self-attentive classifier of texts or of pairs of texts.

    Args:
        vocab_size: V.
        num_classes: C.
        multi_label: a text may have several labels, or none.
        pair: two texts, read by one encoder and compared hop by hop through multiplicative gates.
        embedding_size: E.
        hidden_size: U per direction.
        num_layers: LSTM layers.
        attention_size: K, d_a in the paper.
        hops: r.
        penalty: coefficient of ||A A^T - I||_F^2.
        pair_size: number of features per hop in which a pair is compared.
        pair_features: "gates", the products of the features as in the paper; or "gates_and_difference", which adds
            their absolute differences.
        mlp_size: hidden units before the output layer; 0 for none.
        row_units: p of the pruned hidden layer, which replaces the dense one; 0 keeps the dense one.
        column_units: q of the pruned hidden layer.
        dropout: on embeddings, the score's input and the hidden layer.
        word_dropout: share of the words replaced by UNK in training.
        label_smoothing: share of the target probability spread over all classes.
        adversarial: above 0, texts are also learnt with shifted word vectors; length of the shift, relative to that of
            the vectors (zoo/tasks/adversarial.py).
        relatedness: above 0 the model also predicts the relatedness of a pair, from 1 to 5; this is the weight of the
            squared error in the loss of pairs that have a score.
    """

    heads = ("mlp", "classifier", "relatedness")
    measures = ("overlap",)
    may_be_zero = ("mlp_size",)
    tiny: ClassVar[dict[str, Any]] = dict(
        vocab_size=12,
        num_classes=3,
        embedding_size=6,
        hidden_size=4,
        attention_size=5,
        hops=2,
        penalty=0.01,
        pair_size=4,
        mlp_size=8,
        dropout=0.0,
    )

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        multi_label: bool = False,
        pair: bool = False,
        embedding_size: int = 100,
        hidden_size: int = 300,
        num_layers: int = 1,
        attention_size: int = 350,
        hops: int = 30,
        penalty: float = 1.0,
        pair_size: int = 150,
        pair_features: Literal["gates", "gates_and_difference"] = "gates",
        mlp_size: int = 512,
        row_units: int = 0,
        column_units: int = 0,
        dropout: float = 0.3,
        word_dropout: float = 0.0,
        label_smoothing: float = 0.0,
        adversarial: float = 0.0,
        relatedness: float = 0.0,
    ):
        super().__init__()
        if hops < 1:
            raise ValueError(f"hops must be at least 1; got {hops}")
        if relatedness and not (relatedness > 0 and pair):
            raise ValueError(
                f"relatedness must be 0, or above 0 for a model of pairs; got {relatedness} with pair "
                f"{str(pair).lower()}"
            )
        if min(row_units, column_units) < 0 or bool(row_units) != bool(column_units):
            raise ValueError(
                "row_units and column_units must be set together, to at least 1, or both be 0; got "
                f"{row_units} and {column_units}"
            )
        self.embedding = nn.Embedding(vocab_size, embedding_size, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.encoder = RecurrentEncoder("lstm", embedding_size, hidden_size, num_layers, dropout=dropout)
        self.attention = HopAttention(2 * hidden_size, attention_size, hops, dropout)
        size = 2 * hidden_size
        if pair:
            gate = torch.empty(hops, size, pair_size).uniform_(-(size**-0.5), size**-0.5)
            # W_fh, W_fp: equal at first, so the product measures similarity
            self.gates = nn.ParameterList([gate, gate.clone()])
            size = pair_size if pair_features == "gates" else 2 * pair_size
        if row_units:
            self.mlp, width = PrunedMLP(hops, size, row_units, column_units), hops * row_units + size * column_units
        elif mlp_size:
            self.mlp, width = nn.Sequential(nn.Flatten(), nn.Linear(hops * size, mlp_size), nn.ReLU()), mlp_size
        else:
            self.mlp, width = nn.Flatten(), hops * size
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(width, num_classes)
        if relatedness:
            self.relatedness = nn.Linear(width, 1)

    def read(self, batch: TextBatch) -> tuple[Tensor, list[Tensor]]:
        """Logits (B, C) and A (B, r, S) of each text."""
        hidden, weights = self.hidden(batch)
        return self.classifier(self.dropout(hidden)), weights

    def read_related(self, batch: TextBatch) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """As `read`, and the relatedness (B,), unclipped; the hidden layer reaches it without dropout."""
        hidden, weights = self.hidden(batch)
        logits = self.classifier(self.dropout(hidden))
        return (
            logits,
            weights,
            wide(self.relatedness(hidden).squeeze(-1)) + MIDDLE if self.config["relatedness"] else None,
        )

    def hidden(self, batch: TextBatch) -> tuple[Tensor, list[Tensor]]:
        """The last hidden layer (B, H) and A (B, r, S) of each text."""
        texts = [(batch.tokens, batch.lengths)]
        if self.config["pair"]:
            texts.append(batch.second())
        embeddings, weights = zip(*(self.embed_text(*text) for text in texts), strict=True)
        m = embeddings[0] if len(embeddings) == 1 else self.compare(*embeddings)
        return self.mlp(m), list(weights)

    def loss(self, batch: TextBatch) -> tuple[Tensor, int]:
        """The classifiers' loss plus the weighted squared error of the relatedness, for texts that have a score."""
        logits, attention, found = self.read_related(batch)
        loss = self._classification_loss(logits, batch.known_labels(), self.config["label_smoothing"])
        loss = loss + self.penalty(attention)
        if found is not None:
            wanted = found.new_full((), torch.nan) if batch.scores is None else batch.scores
            # without any score the error is 0 instead of absent, so that each parameter gets a gradient
            error = torch.where(wanted.isnan(), 0.0, found - wanted.nan_to_num(MIDDLE))
            loss = loss + self.config["relatedness"] * error.square().sum()
        return loss, len(logits)

    def compare(self, first: Tensor, second: Tensor) -> Tensor:
        """Embeddings M of two texts, (B, r, D) each -> features of the pair (B, r, F)."""
        f, g = (torch.einsum("brd,rdk->brk", m, gate) for m, gate in zip((first, second), self.gates, strict=True))
        gated = f * g  # F_r = (M_h W_fh) * (M_p W_fp)
        return gated if self.config["pair_features"] == "gates" else torch.cat([gated, (f - g).abs()], dim=-1)

    def embed_text(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """tokens (B, S), lengths (B,) -> the embedding M (B, r, D) and the weights A (B, r, S)."""
        mask = lengths_to_mask(lengths, tokens.size(1))
        embedded, rows = self.embed_words(tokens[mask])
        states, _ = self.encoder.flat(self.dropout(embedded), lengths, rows)  # H (P, D)
        return self.attention(states, mask)

    def penalty(self, attention: list[Tensor]) -> Tensor | float:
        """Coefficient times ||A A^T - I||_F^2 (Eq. 8), summed over texts; attention: (B, r, S), two for pairs."""
        if not self.config["penalty"]:
            return 0.0
        identity = torch.eye(self.config["hops"], device=attention[0].device, dtype=attention[0].dtype)
        return self.config["penalty"] * sum(
            (torch.bmm(a, a.transpose(1, 2)) - identity).square().sum() for a in attention
        )

    def measure(self, attention: list[Tensor]) -> dict[str, Tensor]:
        """Overlap of the hops of each text, (B,): the mean over pairs of hops i < j of sum_s min(a_is, a_js).

        1: all hops have the same weights; 0: no two hops share a word (or there is only one hop).
        """
        hops = self.config["hops"]
        texts = []
        for a in attention:  # (B, r, S)
            shared = [torch.minimum(a[:, i : i + 1], a[:, i + 1 :]).sum(-1).sum(-1) for i in range(hops - 1)]
            texts.append(sum(shared, a.new_zeros(len(a))) / max(1, hops * (hops - 1) // 2))
        return {"overlap": torch.stack(texts).mean(0)}

    @evaluated
    def embed(self, texts: str | list[str]) -> Tensor:
        """Embeds raw texts, each one separately (also with a model of pairs).

        Args:
            texts: N texts, or one.

        Returns:
            (N, r * 2 U) the rows of M, concatenated; zeros for an empty text.

        Raises:
            ValueError: the model has no tokenizer.
            TypeError: `texts` is neither a string nor strings in an order.
        """
        _, texts = texts_of(texts, "embed")
        self.check_ready(self.tokenizer)
        ids = self.vocabulary.encode_batch(map(self.vocabulary.plain, texts))
        found = torch.zeros(len(texts), self.config["hops"] * 2 * self.config["hidden_size"])
        for rows in groups_of_similar_size(list(map(len, ids))):
            batch = collate_texts([ids[n] for n in rows])
            m, _ = self.embed_text(batch.tokens.to(self.device), batch.lengths.to(self.device))
            found[rows] = m.flatten(1).float().cpu()
        return found
