"""Batches of questions about documents, each query with one word left out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from zoo.batches.rows import Rows, members


class ClozeBatch(NamedTuple):
    """`B` documents with a query each, with `P` and `Q` words in all, concatenated without any padding.

    The distinct words of an example are numbered from 0 in order of occurrence, first in its document and then in its
    query. Two words are the same if their strings are equal, including case, whether they are in the vocabulary or not.

    Attributes:
        words: (W,) int64, vocabulary ids of the distinct words of the first example, then of the second, ...;
            several may be UNK.
        word_counts: (B,) int64, number of distinct words in each example.
        document: (P,) int64, for each document word its number within its example.
        document_lengths: (B,) int64; 0 for an empty document.
        query: (Q,) int64, the same for the queries.
        query_lengths: (B,) int64; 0 for an empty query.
        candidates: (C,) int64, numbers of the candidate answers, -1 for one that is not in the example.
        candidate_counts: (B,) int64.
        answers: (B,) int64, numbers of the right answers, -1 for one that is not in the document; None at inference.
    """

    words: Tensor
    word_counts: Tensor
    document: Tensor
    document_lengths: Tensor
    query: Tensor
    query_lengths: Tensor
    candidates: Tensor
    candidate_counts: Tensor
    answers: Tensor | None

    def known_answers(self) -> Tensor:
        """`answers`.

        Raises:
            ValueError: a batch for inference has none.
        """
        if self.answers is None:
            raise ValueError("this batch has no answers; a loss and a score need them")
        return self.answers

    def to(self, device: torch.device) -> "ClozeBatch":
        """The batch on a device."""
        return self._make(x if x is None else x.to(device) for x in self)

    def first_words(self) -> Tensor:
        """Index in `words` of each example's first distinct word, (B,)."""
        return self.word_counts.cumsum(0) - self.word_counts

    def candidate_places(self) -> Tensor:
        """Index in `words` of each candidate, (C,); -1 for one that is not in the document."""
        places = self.candidates + self.first_words().repeat_interleave(self.candidate_counts)
        return places.masked_fill(self.candidates < 0, -1)

    def select(self, rows: Rows) -> "ClozeBatch":
        """The sub-batch of some of the examples.

        Args:
            rows: a slice, or indices of examples.
        """
        index = torch.arange(len(self.word_counts), device=self.words.device)[rows]

        def some(part: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
            return part[members(lengths, index)], lengths[index]

        return ClozeBatch(
            *some(self.words, self.word_counts),
            *some(self.document, self.document_lengths),
            *some(self.query, self.query_lengths),
            *some(self.candidates, self.candidate_counts),
            None if self.answers is None else self.answers[index],
        )


def collate_questions(
    documents: Sequence[np.ndarray],
    queries: Sequence[np.ndarray],
    candidates: Sequence[np.ndarray],
    answers: Sequence[int] | None,
    ids: np.ndarray,
) -> ClozeBatch:
    """Joins `B` examples whose words are given as indices into a list of `S` different words.

    Args:
        documents: `B` integer arrays.
        queries: `B` integer arrays.
        candidates: `B` integer arrays; an empty one means all words of the document.
        answers: `B` indices; None at inference.
        ids: (S,) vocabulary id of each word of the list.
    """
    count, size = len(documents), max(1, len(ids))
    texts = [text for pair in zip(documents, queries, strict=True) for text in pair]
    lengths = np.fromiter(map(len, texts), np.int64, 2 * count)
    example = np.arange(count).repeat(lengths[::2] + lengths[1::2])
    in_query = (np.arange(2 * count) % 2 == 1).repeat(lengths)
    # One key per word and example; sorted by first occurrence they are in the order of the examples.
    distinct, first, inverse = np.unique(example * size + _joined(texts), return_index=True, return_inverse=True)
    order = first.argsort()
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    word_counts = np.bincount(distinct // size, minlength=count)
    in_document = np.bincount(distinct[~in_query[first]] // size, minlength=count)
    starts = word_counts.cumsum() - word_counts
    numbers = place[inverse] - starts[example]
    known, place = np.append(distinct, -1), np.append(place, 0)

    def find(words: np.ndarray, examples: np.ndarray) -> np.ndarray:
        """Numbers of words within their examples, -1 for words that are not there."""
        wanted = examples * size + words
        index = np.searchsorted(distinct, wanted)
        return np.where(known[index] == wanted, place[index] - starts[examples], -1)

    given = np.fromiter(map(len, candidates), np.int64, count)
    candidate_counts = np.where(given > 0, given, in_document)
    owner = np.arange(count).repeat(candidate_counts)
    choice = np.arange(len(owner)) - (candidate_counts.cumsum() - candidate_counts)[owner]
    choice[given[owner] > 0] = find(_joined(candidates), np.arange(count).repeat(given))
    right = None
    if answers is not None:
        found = find(np.asarray(answers, np.int64), np.arange(count))
        right = torch.from_numpy(np.where(found < in_document, found, -1))
    return ClozeBatch(
        words=_tensor(ids[distinct[order] % size]),
        word_counts=_tensor(word_counts),
        document=_tensor(numbers[~in_query]),
        document_lengths=_tensor(lengths[::2]),
        query=_tensor(numbers[in_query]),
        query_lengths=_tensor(lengths[1::2]),
        candidates=_tensor(choice),
        candidate_counts=_tensor(candidate_counts),
        answers=right,
    )


def _tensor(numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers, np.int64))


def _joined(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int64)
