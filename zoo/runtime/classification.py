"""Classifiers as graphs.

Shapes: B texts, N sentences of a document, W words of a sentence.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.runtime.base import GraphModel
from zoo.runtime.graphs import Exported, padded
from zoo.verbs.classification import RELATEDNESS, Classifier, OfDocuments, OfTexts
from zoo.verbs.groups import WORDS_AT_ONCE


class _Classifier(Classifier[Any], GraphModel):
    def __init__(self, exported: Exported) -> None:
        super().__init__(exported)
        self.task = self.task_of(self.config)
        self._graph = exported.graph("classifier.onnx")


class GraphTextClassifier(OfTexts, _Classifier):
    """A classifier of texts or pairs of texts."""

    def weigh(self, rows: Sequence[list[list[int]]]) -> tuple[np.ndarray, list[Any], list[float] | None]:
        inputs = {}
        for suffix, texts in zip(("", "2"), zip(*rows, strict=True)):
            inputs[f"tokens{suffix}"], inputs[f"lengths{suffix}"] = padded(list(texts))
        found = self._graph(inputs)
        weights = [found[name] for name in ("attention", "attention2") if name in found]
        attention = [[a[n, :, : len(t)] for a, t in zip(weights, texts, strict=True)] for n, texts in enumerate(rows)]
        related = found.get("relatedness")
        return found["logits"], attention, None if related is None else related.clip(*RELATEDNESS).tolist()


class GraphDocumentClassifier(OfDocuments, _Classifier):
    """A classifier of documents."""

    def weigh(self, rows: Sequence[list[list[int]]]) -> tuple[np.ndarray, list[Any], None]:
        answers: list[Any] = [None] * len(rows)
        for part in _padded_together(rows):
            for n, *answer in zip(part, *self._weigh([rows[n] for n in part]), strict=True):
                answers[n] = answer
        logits, attention = zip(*answers, strict=True)
        return np.stack(logits), [*attention], None

    def _weigh(self, rows: Sequence[list[list[int]]]) -> tuple[np.ndarray, list[Any]]:
        sentences = max(1, max(map(len, rows)))
        words = max([1, *(len(sentence) for document in rows for sentence in document)])
        tokens = np.zeros((len(rows), sentences, words), np.int64)  # (B, N, W)
        lengths = np.zeros((len(rows), sentences), np.int64)
        for n, document in enumerate(rows):
            for s, sentence in enumerate(document):
                tokens[n, s, : len(sentence)], lengths[n, s] = sentence, len(sentence)
        found = self._graph({"tokens": tokens, "lengths": lengths})
        of_words, of_sentences = found["word_attention"], found["sentence_attention"]
        attention = [
            ([of_words[n, s, : len(sentence)] for s, sentence in enumerate(document)], of_sentences[n, : len(document)])
            for n, document in enumerate(rows)
        ]
        return found["logits"], attention


def _padded_together(documents: Sequence[list[list[int]]]) -> list[list[int]]:
    """Indices of documents with similar longest sentences, at most WORDS_AT_ONCE words with their padding, or one.

    One text without full stops would otherwise make a sentence of its length of each sentence of the others.
    """
    sizes = [(max(map(len, document), default=0), len(document)) for document in documents]
    groups: list[list[int]] = []
    sentences = 0
    for n in sorted(range(len(sizes)), key=sizes.__getitem__):
        words, sentences = sizes[n][0], max(sentences, sizes[n][1])
        if not groups or (len(groups[-1]) + 1) * sentences * words > WORDS_AT_ONCE:
            groups.append([])
            sentences = sizes[n][1]
        groups[-1].append(n)
    return groups
