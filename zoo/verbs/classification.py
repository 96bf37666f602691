"""Classifier: `classify`, of texts or pairs of texts (`OfTexts`) and of documents (`OfDocuments`).

Shapes: B texts, C classes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Generic, TypeVar, overload

import numpy as np

from zoo.results.classification import Classification, DocumentClassification
from zoo.text import Tokenizer
from zoo.text.familiar import known_share
from zoo.text.sentences import encode_document
from zoo.utils import strict_json
from zoo.utils.labels import check_labels
from zoo.verbs.base import Verbs, evaluated
from zoo.verbs.checks import as_list, check_assets, check_finite, present
from zoo.verbs.confidence import NO_WORDS, Evidence, trusted
from zoo.verbs.groups import groups_of_similar_size
from zoo.verbs.task import Task

MAX_LABELS = 2**14  # of a bundle
RELATEDNESS = 1.0, 5.0  # of a pair: lowest and highest

Result = TypeVar("Result", bound=Classification | DocumentClassification)


class Classifier(Verbs, Generic[Result]):
    """The verb of classifiers. `config` has vocab_size, num_classes, multi_label and, for pairs, pair."""

    task = Task(
        "classification", "classify", "document", Classification, "text-classification", 'model.classify("...").label'
    )
    tokenizer: Tokenizer | None = None
    label_names: list[str] | None = None

    @classmethod
    def task_of(cls, config: Mapping[str, Any]) -> Task:
        """The task; a model of pairs reads pairs."""
        if not config.get("pair"):
            return cls.task
        return replace(cls.task, input="pair", example='model.classify(("...", "...")).label')

    @property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ValueError: there is none yet.
        """
        return present(self.tokenizer)

    # ---- filled in by the engine ----

    def weigh(self, rows: Sequence[Any]) -> tuple[np.ndarray, list[Any], list[float] | None]:
        """Token ids of B texts -> logits (B, C) float32, the attention of each text, and the relatedness of each pair.

        The relatedness is None if the model does not predict it.
        """
        raise NotImplementedError

    # ---- filled in by OfTexts or OfDocuments ----

    def encode(self, text: Any) -> tuple[Any, Any]:
        """A user's input -> token ids, words."""
        raise NotImplementedError

    def answer_of(self, chosen: dict[str, Any], attention: Any, words: Any) -> Result:
        """The result object, from label, labels, probabilities and relatedness, the attention and the words."""
        raise NotImplementedError

    # ---- the verb ----

    @overload
    def classify(self, texts: str | tuple[str, str]) -> Result: ...

    @overload
    def classify(
        self, texts: list[str] | list[tuple[str, str]] | Iterator[str] | Iterator[tuple[str, str]]
    ) -> list[Result]: ...

    @overload
    def classify(
        self, texts: str | tuple[str, str] | Iterable[str] | Iterable[tuple[str, str]]
    ) -> Result | list[Result]: ...

    @evaluated
    def classify(
        self, texts: str | tuple[str, str] | Iterable[str] | Iterable[tuple[str, str]]
    ) -> Result | list[Result]:
        """Classifies raw text.

        Args:
            texts: one text or a list of them; for a model of pairs one pair (a tuple of two texts) or a list of
                pairs. An empty text is classified too, by the biases.

        Returns:
            One result for one text, a list of them for a list, in the order given.

        Raises:
            ValueError: the model has no tokenizer.
            TypeError: `texts` is of another type.
        """
        one = isinstance(texts, (str, tuple))
        checked = self._checked([texts] if one else as_list(texts, "classify"))
        encoded = [self.encode(text) for text in checked]
        texts_of = [text if isinstance(text, str) else " ".join(text) for text in checked]
        results: list[Any] = [None] * len(encoded)
        for rows in groups_of_similar_size([_size(ids) for ids, _ in encoded]):
            logits, attention, relatedness = self.weigh([encoded[n][0] for n in rows])
            choice = [self._choose(row) for row in check_finite(logits)]
            if relatedness is not None:
                for chosen, value in zip(choice, relatedness, strict=True):
                    chosen["relatedness"] = value
            sure = sureness(logits, self.config["multi_label"])
            for n, chosen, weights, score in zip(rows, choice, attention, sure, strict=True):
                evidence = self.evidence_of(score, *encoded[n], texts_of[n])
                results[n] = trusted(self.answer_of(chosen, weights, encoded[n][1]), self.calibration, evidence)
        return results[0] if one else results

    def _checked(self, texts: list[Any]) -> list[Any]:
        self.check_ready(self.tokenizer)
        if self.label_names is None:
            raise ValueError(
                "the last layer of this model is new and has no labels yet; train it on a data module, or call "
                "replace_labels"
            )
        pair = self.config.get("pair", False)
        for n, text in enumerate(texts, 1):
            if pair and not (
                isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text)
            ):
                raise TypeError(
                    "this model reads pairs of texts: give a tuple (text, text); got "
                    f"{type(text).__name__} as number {n}"
                )
            if not pair and not isinstance(text, str):
                raise TypeError(
                    f"classify takes a string or a list of strings; got {type(text).__name__} as number {n}"
                )
        return texts

    def _choose(self, logits: np.ndarray) -> dict[str, Any]:
        multi_label = self.config["multi_label"]
        probabilities = _sigmoid(logits) if multi_label else _softmax(logits)
        order = np.argsort(-probabilities, kind="stable").tolist()
        chosen = [n for n in order if probabilities[n] > 0.5] if multi_label else order[:1]
        names = present(self.label_names)
        labels = [names[n] for n in chosen]
        return {
            "label": labels[0] if labels else None,
            "labels": labels,
            "probabilities": dict(zip(names, probabilities.tolist(), strict=True)),
        }

    def evidence_of(
        self, score: float, ids: Sequence[Sequence[int]], words: Sequence[Sequence[str]], text: str
    ) -> Evidence:
        """What is known of the answer to texts, or to sentences: their tokens, and these as words."""
        wordy = [any(map(str.isalnum, "".join(one))) for one in words]
        is_half = self.config.get("pair") and not all(wordy)
        notes = (NO_WORDS,) if not any(wordy) else ("one of the texts has no words",) * bool(is_half)
        known = known_share(list(chain.from_iterable(ids)), self.vocabulary)
        return Evidence({"score": score}, known, text, notes=notes, vocabulary=self.vocabulary)

    # ---- bundle ----

    def assets(self) -> dict[str, str]:
        """tokenizer.json and labels.json."""
        if self.tokenizer is None:
            return {}
        return {
            "tokenizer.json": self.tokenizer.to_json(),
            "labels.json": json.dumps(self.label_names, ensure_ascii=False),
        }

    def load_assets(self, assets: dict[str, str]) -> None:
        if not assets:
            return
        check_assets(assets, words := "tokenizer.json", labels := "labels.json")
        self.tokenizer = Tokenizer.from_json(assets[words], self.config["vocab_size"], words)
        names, count = _label_names(assets[labels], labels), self.config["num_classes"]
        if names is not None and len(names) != count:
            if "num_classes" not in self.overridden:
                raise ValueError(f"{labels} has {len(names):,} labels, the model {count:,} classes")
            names = None  # a new head gets new names
        self.label_names = names


class OfTexts(Classifier[Classification]):
    """Reads rows of words, one text or a pair; its attention is a list with (hops, words) of each text."""

    def encode(self, text: str | tuple[str, str]) -> tuple[list[list[int]], list[list[str]]]:
        parts = [self.vocabulary.plain(part) for part in ([text] if isinstance(text, str) else text)]
        return self.vocabulary.encode_batch(parts), [self.vocabulary.words(part) for part in parts]

    def answer_of(self, chosen: dict[str, Any], attention: Any, words: list[list[str]]) -> Classification:
        return Classification(**chosen, tokens=words, attention=attention)


class OfDocuments(Classifier[DocumentClassification]):
    """Reads lists of sentences; its attention is a list of the word weights of each sentence, and sentence weights."""

    task = replace(Classifier.task, result=DocumentClassification)

    def encode(self, text: str) -> tuple[list[list[int]], list[list[str]]]:
        return encode_document(self.vocabulary.plain(text), self.vocabulary)

    def answer_of(self, chosen: dict[str, Any], attention: Any, words: list[list[str]]) -> DocumentClassification:
        of_words, of_sentences = attention
        return DocumentClassification(**chosen, words=words, sentence_weights=of_sentences, word_weights=of_words)


def sureness(logits: np.ndarray, multi_label: bool) -> list[float]:
    """The log-odds of answers by the model's own probabilities, from logits (B, C)."""
    logits = logits.astype(np.float64)
    if multi_label:
        log_p = -np.log1p(np.exp(-np.abs(logits))).sum(-1)
        return (log_p - np.log(-np.expm1(np.minimum(log_p, -1e-12)))).tolist()
    ordered = -np.sort(-logits, axis=-1)
    return (ordered[:, 0] - np.logaddexp.reduce(ordered[:, 1:], axis=-1)).tolist()


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1, e) / (1 + e)


def _softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max())
    return e / e.sum()


def _label_names(text: str, file: str) -> list[str] | None:
    """The labels of a bundle; None if its model has a new, untrained head."""
    try:
        names = strict_json.loads(text, MAX_LABELS)
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if names is None:
        return None
    check_labels(names, file)
    return names


def _size(ids: Any) -> int:
    return sum(len(part) for part in ids)
