"""Reading comprehension by pointing: which word of a document is missing in a query?

Cui, Chen, Wei, Wang, Liu and Hu 2017, "Attention-over-Attention Neural Networks for Reading Comprehension", ACL 2017,
https://arxiv.org/abs/1607.04423 (section 3; section 4, the re-ranking, is zoo/tasks/reranking.py), and its baseline,
Kadlec, Schmid, Bajgar and Kleindienst 2016, "Text Understanding with the Attention Sum Reader Network",
https://arxiv.org/abs/1603.01547.

Both softmaxes are taken over real words only, and beta is averaged over the true length of the document, so the weights
of the words of a document always sum to 1.

Differs from the papers:
- out-of-vocabulary words (mostly names) get embeddings from a pool of `num_unknown`, in order of occurrence, shuffled
  for each example in training, so that the model can tell them apart (Hermann et al. 2015 anonymised all names
  beforehand); in training, random words of the vocabulary are made unknown too, at all their occurrences;
- words are compared as strings, not by id, so that an unknown word can be the answer;
- `exclude_query_words`: a sentence seldom names a person twice, yet attention favours query words in the document;
- `context_size`: a model of contexts (zoo/layers/contexts.py) re-ranks the words, where section 4 has n-gram models: a
  global one of what is expected in the blank, and a local one, here an attention of the blank's context to those of the
  document's words. The weights of its features are chosen on validation questions, as in the paper;
- AdamW, optional pretrained word vectors, dropout on the states.

Shapes: B examples, W distinct words in all, P and Q words of all documents and queries, D and L those of the longest,
H states of both directions, E the vectors of contexts.
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.batches.reading import ClozeBatch
from zoo.layers.checks import check_mask
from zoo.layers.contexts import ContextModel
from zoo.layers.dropout import Dropout
from zoo.layers.kernels import wide
from zoo.layers.masking import lengths_to_mask, masked_softmax
from zoo.layers.module_list import ModuleList
from zoo.layers.packed import segment_ids, segment_softmax, to_padded
from zoo.layers.recurrent import RecurrentEncoder
from zoo.tasks.reading import ReadingModule
from zoo.text import UNK
from zoo.text.words import BLANK_ID

_SHARPNESS = 15.0  # of the attention by contexts; 5 to 15 had nearly the same likelihood on validation questions


def attend_over_attention(scores: Tensor, document_mask: Tensor, query_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over attention (Eq. 5-9).

    Args:
        scores: M (B, D, L), matching scores of each document word with each query word.
        document_mask: (B, D) True on real words.
        query_mask: (B, L) True on real words.

    Returns:
        s (B, D) and the averaged beta (B, L). Each sums to 1 over real words; zeros for an empty document or query.
    """
    weights, importance, _, _ = attend_both_ways(scores, document_mask, query_mask)
    return weights, importance


def attend_both_ways(
    scores: Tensor, document_mask: Tensor, query_mask: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`attend_over_attention`, and also alpha and beta (B, D, L), which mean nothing on padding."""
    check_mask("document_mask", document_mask, "B, D", *scores.shape[:2])
    check_mask("query_mask", query_mask, "B, L", scores.size(0), scores.size(2))
    scores = wide(scores)
    lowest = torch.finfo(scores.dtype).min
    # (B, D, L), alpha: per query word, over the document
    alpha = scores.masked_fill(~document_mask.unsqueeze(2), lowest).softmax(1)
    # (B, D, L), beta: per document word, over the query
    beta = scores.masked_fill(~query_mask.unsqueeze(1), lowest).softmax(2)
    share = document_mask.to(scores.dtype) / document_mask.sum(1, keepdim=True).clamp(min=1)  # (B, D)
    # (B, L), the masks here are for empty rows
    importance = torch.bmm(share.unsqueeze(1), beta).squeeze(1) * query_mask
    weights = torch.bmm(alpha, importance.unsqueeze(2)).squeeze(2) * document_mask
    return weights, importance, alpha, beta


def outside_query(batch: ClozeBatch) -> Tensor:
    """Marks the document words that do not occur in their query, (P,) bool."""
    starts = batch.first_words()
    free = torch.ones(len(batch.words), dtype=torch.bool, device=batch.words.device)
    free[batch.query + starts[segment_ids(batch.query_lengths)]] = False
    return free[batch.document + starts[segment_ids(batch.document_lengths)]]


def keep_weights(weights: Tensor, kept: Tensor) -> Tensor:
    """Rescales the weights of the `kept` words to the old sum, (B, D) both; a row with none kept stays as it is."""
    chosen = weights * kept
    total = chosen.sum(1, keepdim=True)
    return torch.where(total > 0, chosen / total.masked_fill(total == 0, 1) * weights.sum(1, keepdim=True), weights)


class AttentionOverAttentionReader(ReadingModule):
    """Reader of a document and of a query with one word left out (the blank); the answer is a word of the document.

    Args:
        vocab_size: V.
        attention: "over_attention" (Cui et al. 2017), or "sum": the attention-sum reader (Kadlec et al. 2016), whose
            query is the last states of its encoder.
        shared_encoder: one recurrent encoder for document and query; else one each.
        num_unknown: number of embeddings for unknown words; 0: one embedding for all of them.
        embedding_size: E.
        hidden_size: GRU units per direction.
        num_layers: GRU layers.
        exclude_query_words: the other words of the query cannot be the answer: their weight in the document is
            redistributed to the other words in proportion. For questions whose answer never occurs in the query.
        dropout: on embeddings and states.
        word_dropout: share of the distinct words of an example that are made unknown in training, at all their
            occurrences.
        candidate_dropout: the same for the candidates, which are mostly names that do not occur in later texts.
        context_size: LSTM units per direction of a model of contexts that re-ranks the words outside training; none
            if not given. It learns, beside the reader, to expect each word of the documents from those around it.
        context_embedding_size: size of its word vectors.
        context_share: weight of the attention by contexts against that of the reader, 0 to 1.
        expectation_weight: weight of how much a word is expected in the blank, beside the logarithm of its attention.
        unknown_weight: what an unknown word gets. These three are chosen on validation questions, by
            benchmarks/reader_contexts.py.
    """

    heads = ("contexts",)

    tiny: ClassVar[dict[str, Any]] = dict(vocab_size=12, num_unknown=0, embedding_size=6, hidden_size=4, dropout=0.0)

    def __init__(
        self,
        vocab_size: int,
        attention: Literal["over_attention", "sum"] = "over_attention",
        shared_encoder: bool = True,
        num_unknown: int = 64,
        embedding_size: int = 128,
        hidden_size: int = 128,
        num_layers: int = 1,
        exclude_query_words: bool = False,
        dropout: float = 0.2,
        word_dropout: float = 0.0,
        candidate_dropout: float = 0.0,
        context_size: int | None = None,
        context_embedding_size: int = 128,
        context_share: float = 0.5,
        expectation_weight: float = 0.5,
        unknown_weight: float = 0.5,
    ):
        super().__init__()
        if num_unknown < 0:
            raise ValueError(f"num_unknown must be at least 0; got {num_unknown}")
        rates = (
            ("word_dropout", word_dropout),
            ("candidate_dropout", candidate_dropout),
            ("context_share", context_share),
        )
        for name, rate in rates:
            if not 0 <= rate <= 1:
                raise ValueError(f"{name} must be in [0, 1]; got {rate}")
        self.embedding = nn.Embedding(vocab_size + num_unknown, embedding_size)
        nn.init.normal_(self.embedding.weight, std=0.1)
        encoders = [
            RecurrentEncoder("gru", embedding_size, hidden_size, num_layers, dropout=dropout)
            for _ in range(2 - shared_encoder)
        ]
        self.encoders = ModuleList(encoders)
        self.dropout = Dropout(dropout)
        self.contexts = (
            ContextModel(vocab_size, context_embedding_size, context_size, dropout) if context_size else None
        )

    def forward(self, batch: ClozeBatch) -> tuple[Tensor, Tensor | None]:
        """Weights s of the document words (P,), and of the query words (Q,), or None for the attention-sum reader."""
        documents, queries, last = self.encode(batch)
        lengths, query_lengths = batch.document_lengths, batch.query_lengths
        mask = lengths_to_mask(lengths)
        if self.config["attention"] == "sum":
            scores = torch.einsum("ph,ph->p", documents, last.to(documents.dtype)[segment_ids(lengths)])
            weights, query_weights = segment_softmax(scores, lengths) * (query_lengths > 0)[segment_ids(lengths)], None
        else:
            query_mask = lengths_to_mask(query_lengths)
            # M (B, D, L), Eq. 4
            scores = torch.bmm(to_padded(documents, mask), to_padded(queries, query_mask).transpose(1, 2))
            with torch.autocast(scores.device.type, enabled=False):  # the probabilities are sums of many small weights
                weights, query_weights = attend_over_attention(scores, mask, query_mask)
            weights, query_weights = weights[mask], query_weights[query_mask]
        if self.contexts is not None and not self.training:
            weights = self.rerank(to_padded(weights, mask), *self.texts(batch))[mask]
        if self.config["exclude_query_words"]:
            weights = keep_weights(to_padded(weights, mask), to_padded(outside_query(batch), mask))[mask]
        return weights, query_weights

    def texts(self, batch: ClozeBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Vocabulary ids of the documents (B, D), their lengths (B,), and the same of the queries."""
        starts = batch.first_words()

        def padded(numbers: Tensor, lengths: Tensor) -> Tensor:
            return to_padded(batch.words[numbers + starts[segment_ids(lengths)]], lengths_to_mask(lengths))

        lengths, query_lengths = batch.document_lengths, batch.query_lengths
        return padded(batch.document, lengths), lengths, padded(batch.query, query_lengths), query_lengths

    def rerank(
        self, weights: Tensor, document: Tensor, lengths: Tensor, query: Tensor, query_lengths: Tensor
    ) -> Tensor:
        """Weights s of documents after re-ranking by contexts, (B, D) both; those of a query without one blank stay.

        s'_i is proportional to ((1 - c) s_i + c a_i) exp(w e(x_i) . q + u [x_i is unknown]); a and e(x_i) . q are those
        of `by_contexts`, c is `context_share`, w `expectation_weight` and u `unknown_weight`.

        Args:
            weights: (B, D), zero after the lengths.
            document, lengths, query, query_lengths: as of `texts`.
        """
        near, expected = self.by_contexts(document, lengths, query, query_lengths)
        share = self.config["context_share"]
        mixed = ((1 - share) * wide(weights) + share * near).clamp(min=torch.finfo(near.dtype).tiny)
        scores = mixed.log() + self.config["expectation_weight"] * expected
        scores = scores + self.config["unknown_weight"] * (document == UNK)
        found = masked_softmax(scores, lengths_to_mask(lengths, document.size(1)))
        return torch.where((query == BLANK_ID).sum(1, keepdim=True) == 1, found, weights)

    def by_contexts(
        self, document: Tensor, lengths: Tensor, query: Tensor, query_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """How the context q of the blank attends to those of the document's words, and how much it expects each word.

        Args:
            document, lengths, query, query_lengths: as of `texts`.

        Returns:
            a = softmax_i(15 cos(c_i, q)) and e(x_i) . q, with word vectors e, (B, D) both.
        """
        assert self.contexts is not None
        around, places = wide(self.contexts(query, query_lengths)), wide(self.contexts(document, lengths))
        with torch.autocast(around.device.type, enabled=False):
            asked = torch.bmm((query == BLANK_ID).to(around).unsqueeze(1), around)  # q (B, 1, E)
            scores = _SHARPNESS * nn.functional.cosine_similarity(places, asked, -1)
            expected = (wide(self.contexts.table(document)) * asked).sum(2)
            return masked_softmax(scores, lengths_to_mask(lengths, document.size(1))), expected

    def loss(self, batch: ClozeBatch) -> tuple[Tensor, int]:
        """As that of every reader; in training, that of the model of contexts is added for each example.

        Where nothing but the model of contexts is trained, it is that of the model of contexts alone.
        """
        if self.contexts is None or not self.training:
            return super().loss(batch)
        contexts = self.contexts.loss(*self.texts(batch)[:2])
        trained = {name.startswith("contexts.") for name, value in self.named_parameters() if value.requires_grad}
        if trained == {True}:
            count = len(batch.document_lengths)
            return count * contexts, count
        loss, count = super().loss(batch)
        return loss + count * contexts, count

    def encode(self, batch: ClozeBatch) -> tuple[Tensor, Tensor, Tensor]:
        """States of documents (P, H) and queries (Q, H), and the final query states of both directions (B, H)."""
        starts = batch.first_words()
        texts = (batch.document, batch.document_lengths), (batch.query, batch.query_lengths)
        tokens = torch.cat([numbers + starts[segment_ids(lengths)] for numbers, lengths in texts])
        ids = self.word_ids(batch)
        seen = torch.zeros(self.embedding.num_embeddings, dtype=torch.bool, device=ids.device)
        seen[ids] = True
        embedded = self.dropout(self.embedding(seen.nonzero().squeeze(1)))  # each distinct word is embedded once
        rows = (seen.cumsum(0) - 1)[ids[tokens]]  # (P + Q,)
        sizes = [len(batch.document), len(batch.query)]
        if len(self.encoders) == 1:
            states, finals = self.encoders[0].flat(
                embedded, torch.cat([batch.document_lengths, batch.query_lengths]), rows
            )
            (documents, queries), last = states.split(sizes), finals[-1][0][len(batch.word_counts) :]
        else:
            of_documents, of_queries = rows.split(sizes)
            documents, _ = self.encoders[0].flat(embedded, batch.document_lengths, of_documents)
            queries, finals = self.encoders[1].flat(embedded, batch.query_lengths, of_queries)
            last = finals[-1][0]
        return self.dropout(documents), self.dropout(queries), self.dropout(last)

    def word_ids(self, batch: ClozeBatch) -> Tensor:
        """Embedding row of each distinct word of each example, (W,)."""
        ids, owner = batch.words, segment_ids(batch.word_counts)
        starts = batch.first_words()
        if self.training:
            dropped = torch.rand(ids.shape, device=ids.device) < self.config["word_dropout"]
            choice = batch.candidate_places()
            choice = choice[choice >= 0]
            dropped[choice[torch.rand(choice.shape, device=ids.device) < self.config["candidate_dropout"]]] = True
            ids = ids.masked_fill(dropped & (ids != BLANK_ID), UNK)
        size = self.config["num_unknown"]
        if not size:
            return ids
        unknown = ids == UNK
        before = nn.functional.pad(unknown.cumsum(0), (1, 0))  # unknown words before each word; last entry: all
        order = (before[:-1] - before[starts][owner]) % size
        if self.training:
            order = torch.rand(len(starts), size, device=ids.device).argsort(-1)[owner, order]
        return torch.where(unknown, self.config["vocab_size"] + order, ids)
