"""Texts and documents with labels: batches, and the way from a text to its words, shared by models and data."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from sentencex import segment
from torch import Tensor

from zoo.text import PAD, Tokenizer

Rows = slice | Sequence[int]
WORDS_AT_ONCE = 20_000  # in one batch of texts that a user gives


class TextBatch(NamedTuple):
    """A padded batch of texts, or of pairs of texts; `B` texts of up to `S` words, without BOS and EOS.

    Attributes:
        tokens: (B, S) int64, PAD after the words; S is at least 1 even if all texts are empty.
        lengths: (B,) int64, number of words; 0 for an empty text.
        labels: (B,) int64; or (B, C) float32 of 0 and 1 if a text can have several of C labels; None at inference.
        tokens2: (B, S2) int64, the second text of each pair; None if there are no pairs.
        lengths2: (B,) int64, the same for the second text.
        scores: (B,) float32, a number that each text, or pair, has beside its label, NaN where it has none; None if none has.
    """

    tokens: Tensor
    lengths: Tensor
    labels: Tensor | None
    tokens2: Tensor | None = None
    lengths2: Tensor | None = None
    scores: Tensor | None = None

    def select(self, rows: Rows) -> "TextBatch":
        """The batch of some of the texts, at most as wide as this one.

        Args:
            rows: a slice, or numbers of texts.
        """
        index = torch.arange(len(self.lengths), device=self.lengths.device)[rows]
        first = _narrow(self.tokens[index], self.lengths[index])
        labels, scores = (None if values is None else values[index] for values in (self.labels, self.scores))
        second = (None, None) if self.tokens2 is None else _narrow(self.tokens2[index], self.lengths2[index])
        return TextBatch(*first, labels, *second, scores)


class DocumentBatch(NamedTuple):
    """`B` documents of `N` sentences of `P` words in all, one after the other, without any padding.

    Attributes:
        words: (P,) int64, the words of the first sentence of the first document first.
        sentence_lengths: (N,) int64, words of each sentence, at least 1.
        document_lengths: (B,) int64, sentences of each document; 0 for an empty document.
        labels: as in `TextBatch`.
    """

    words: Tensor
    sentence_lengths: Tensor
    document_lengths: Tensor
    labels: Tensor | None

    def select(self, rows: Rows) -> "DocumentBatch":
        """The batch of some of the documents.

        Args:
            rows: a slice, or numbers of documents.
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
    """Pads `B` token lists (or integer arrays), which may be empty, to a batch.

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


def _pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    tokens = np.full((len(rows), max(1, int(lengths.max(initial=0)))), PAD, np.int64)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
    return torch.from_numpy(tokens), torch.from_numpy(lengths)


def _narrow(tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    width = max(1, int(lengths.max())) if len(lengths) else 1
    return tokens[:, :width], lengths


def members(lengths: Tensor, groups: Tensor) -> Tensor:
    """Numbers of the members of some groups; the members are counted through all groups, which have `lengths` members."""
    first = (lengths.cumsum(0) - lengths)[groups]
    chosen = lengths[groups]
    # Members of the chosen groups are counted through from 0; each group is moved to where its members really are.
    moves = (first - (chosen.cumsum(0) - chosen)).repeat_interleave(chosen)
    return torch.arange(len(moves), device=moves.device) + moves


def groups_of_similar_size(sizes: list[int]) -> list[list[int]]:
    """Numbers of texts that are read together: similar in size, together at most WORDS_AT_ONCE words."""
    groups: list[list[int]] = []
    total = 0
    for n in sorted(range(len(sizes)), key=sizes.__getitem__):
        if not groups or total + sizes[n] > WORDS_AT_ONCE:
            groups.append([])
            total = 0
        groups[-1].append(n)
        total += sizes[n]
    return groups


_LONGEST_PARAGRAPH = 20_000  # characters; the library's time grows with the square of the quotation marks that are never closed
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


def split_sentences(text: str) -> list[str]:
    """The sentences of an English text in their order, white space normalised; together they hold all of its words.

    A blank line always ends a sentence, a single line end never does (the text may be hard-wrapped).

    Done by `sentencex` of the Wikimedia Foundation: of the libraries tried it alone splits both text in lower case and
    text without a space after the full stop; it keeps "the U.S. Army" and "J. R. R. Tolkien" whole, and it takes 0.03 ms a
    review of 230 words, where syntok takes 1 ms and pysbd 6 ms. It is given longer paragraphs in parts, so its time is linear.
    """
    # Only plain spaces are passed on: the library stops the whole program at wide ones beside a full stop.
    paragraphs = (" ".join(paragraph.split()) for paragraph in _BLANK_LINE.split(text))
    parts = (part for paragraph in paragraphs for part in _parts(paragraph))
    sentences = (sentence.strip() for part in parts for sentence in segment("en", part))
    return [sentence for sentence in sentences if sentence]


def _parts(paragraph: str) -> Iterator[str]:
    """A paragraph in parts that are not too long, cut behind a sentence or at least behind a word where that is possible."""
    start = 0
    while len(paragraph) - start > _LONGEST_PARAGRAPH:
        limit = start + _LONGEST_PARAGRAPH
        stop = max(paragraph.rfind(mark, start, limit) for mark in (". ", "! ", "? "))
        stop = stop if stop > start else paragraph.rfind(" ", start, limit)
        end = stop + 1 if stop > start else limit
        yield paragraph[start:end]
        start = end
    yield paragraph[start:]


def encode_document(
    text: str, tokenizer: Tokenizer, max_sentences: int | None = None, max_sentence_words: int | None = None
) -> tuple[list[list[int]], list[list[str]]]:
    """Token ids and words (as written) of the sentences of a text; sentences without words are dropped.

    Args:
        text: a document in English.
        tokenizer: gives the ids; its kind is best "word_punct".
        max_sentences: sentences behind so many are dropped.
        max_sentence_words: words of a sentence behind so many are dropped.
    """
    encoded = ((tokenizer.encode(sentence), sentence) for sentence in split_sentences(tokenizer.clean(text)))
    kept = [(ids, sentence) for ids, sentence in encoded if ids][:max_sentences]
    ids = [sentence_ids[:max_sentence_words] for sentence_ids, _ in kept]
    return ids, [tokenizer.words(sentence)[:max_sentence_words] for _, sentence in kept]
