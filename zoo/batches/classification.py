"""Batches of texts and documents with labels."""

from collections.abc import Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from zoo.batches.rows import Rows, members
from zoo.text import PAD


class TextBatch(NamedTuple):
    """A padded batch of texts, or of pairs of texts; `B` texts of up to `S` words, without BOS and EOS.

    Attributes:
        tokens: (B, S) int64, PAD after the words; S is at least 1 even if all texts are empty.
        lengths: (B,) int64, number of words; 0 for an empty text.
        labels: (B,) int64; or (B, C) float32 of 0 and 1 if a text can have several of C labels, or of probabilities
            in training with texts that have no certain label; None at inference.
        tokens2: (B, S2) int64, the second text of each pair; None if there are no pairs.
        scores: (B,) float32, an additional number for each text or pair, NaN where it has none; None if none has
            any.
    """

    tokens: Tensor
    lengths: Tensor
    labels: Tensor | None
    tokens2: Tensor | None = None
    lengths2: Tensor | None = None
    scores: Tensor | None = None

    def second(self) -> tuple[Tensor, Tensor]:
        """`tokens2` and `lengths2`.

        Raises:
            ValueError: there are no pairs.
        """
        if self.tokens2 is None or self.lengths2 is None:
            raise ValueError("this batch has no second texts; a model of pairs reads batches of pairs")
        return self.tokens2, self.lengths2

    def word_counts(self) -> list[Tensor]:
        """Number of words of each text (B,); for pairs also of each second text."""
        return [self.lengths] if self.lengths2 is None else [self.lengths, self.lengths2]

    def known_labels(self) -> Tensor:
        """`labels`.

        Raises:
            ValueError: a batch for inference has none.
        """
        return _known(self.labels)

    def rows(self) -> list[list[int]]:
        """The words of each text; of a pair those of both."""
        seconds = [[] for _ in self.tokens] if self.tokens2 is None else _rows(*self.second())
        return [first + second for first, second in zip(_rows(self.tokens, self.lengths), seconds, strict=True)]

    def select(self, rows: Rows) -> "TextBatch":
        """The sub-batch of some of the texts, at most as wide as this one.

        Args:
            rows: a slice, or indices of texts.
        """
        index = torch.arange(len(self.lengths), device=self.lengths.device)[rows]
        first = _narrow(self.tokens[index], self.lengths[index])
        labels, scores = (None if values is None else values[index] for values in (self.labels, self.scores))
        if self.tokens2 is None or self.lengths2 is None:
            return TextBatch(*first, labels, scores=scores)
        return TextBatch(*first, labels, *_narrow(self.tokens2[index], self.lengths2[index]), scores)


class DocumentBatch(NamedTuple):
    """`B` documents with `N` sentences and `P` words in all, concatenated without any padding.

    Attributes:
        words: (P,) int64, the words of the first sentence of the first document first.
        sentence_lengths: (N,) int64, number of words in each sentence, at least 1.
        document_lengths: (B,) int64, number of sentences in each document; 0 for an empty document.
        labels: as in `TextBatch`.
    """

    words: Tensor
    sentence_lengths: Tensor
    document_lengths: Tensor
    labels: Tensor | None

    def word_counts(self) -> list[Tensor]:
        """Number of words of each document (B,), in a list of one."""
        documents = torch.arange(len(self.document_lengths), device=self.words.device)
        counts = self.document_lengths.new_zeros(len(documents))
        return [counts.index_add(0, documents.repeat_interleave(self.document_lengths), self.sentence_lengths)]

    def known_labels(self) -> Tensor:
        """As of `TextBatch`."""
        return _known(self.labels)

    def rows(self) -> list[list[int]]:
        """The words of each document."""
        sentences = iter(self.words.split(self.sentence_lengths.tolist()))
        return [[i for s in islice(sentences, n) for i in s.tolist()] for n in self.document_lengths.tolist()]

    def select(self, rows: Rows) -> "DocumentBatch":
        """The sub-batch of some of the documents.

        Args:
            rows: a slice, or indices of documents.
        """
        index = torch.arange(len(self.document_lengths), device=self.words.device)[rows]
        sentences = members(self.document_lengths, index)
        words = members(self.sentence_lengths, sentences)
        labels = None if self.labels is None else self.labels[index]
        lengths = self.sentence_lengths[sentences], self.document_lengths[index]
        return DocumentBatch(self.words[words], *lengths, labels)


def collate_texts(
    texts: Sequence[Sequence[int]],
    labels: Tensor | None = None,
    texts2: Sequence[Sequence[int]] | None = None,
    scores: Tensor | None = None,
) -> TextBatch:
    """Pads `B` token lists (or integer arrays), which may be empty, into a batch.

    Args:
        texts: `B` lists of token ids.
        labels: (B,) int64 or (B, C) float32; None at inference.
        texts2: the second text of each pair.
        scores: (B,) float32, see `TextBatch`.
    """
    second = (None, None) if texts2 is None else _pad(texts2)
    return TextBatch(*_pad(texts), labels, *second, scores)


def collate_documents(documents: Sequence[Sequence[Sequence[int]]], labels: Tensor | None = None) -> DocumentBatch:
    """Joins `B` documents, each a list of sentences, each a list of token ids; empty sentences are dropped.

    Args:
        documents: `B` lists of lists of token ids.
        labels: (B,) int64 or (B, C) float32; None at inference.
    """
    kept = [[sentence for sentence in document if len(sentence)] for document in documents]
    sentences = list(chain.from_iterable(kept))
    return DocumentBatch(
        torch.tensor(list(chain.from_iterable(sentences)), dtype=torch.int64),
        torch.tensor(list(map(len, sentences)), dtype=torch.int64),
        torch.tensor(list(map(len, kept)), dtype=torch.int64),
        labels,
    )


def _known(labels: Tensor | None) -> Tensor:
    if labels is None:
        raise ValueError("this batch has no labels; a loss and a score need them")
    return labels


def _pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    tokens = np.full((len(rows), max(1, int(lengths.max(initial=0)))), PAD, np.int64)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
    return torch.from_numpy(tokens), torch.from_numpy(lengths)


def _rows(tokens: Tensor, lengths: Tensor) -> list[list[int]]:
    return [row[:length] for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]


def _narrow(tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    width = max(1, int(lengths.max())) if len(lengths) else 1
    return tokens[:, :width], lengths
