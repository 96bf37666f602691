"""ReadingModule: what all document readers share: pointer sums, loss, score, vocabulary, and `answer`.

A model implements `forward(batch) -> (weights of document words (P,), weights of query words (Q,) or None)`.

Shapes: B examples, W distinct words of all examples, C candidates of all examples, P and Q words of all documents and
queries.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from zoo.batches.reading import ClozeBatch, collate_questions
from zoo.batches.rows import groups_of_similar_size
from zoo.layers.masking import lengths_to_mask
from zoo.layers.packed import segment_ids, to_padded
from zoo.metrics import Mean
from zoo.results.reading import Reading
from zoo.tasks.checks import as_list, check_assets, check_finite, present
from zoo.tasks.confidence import Evidence, trusted
from zoo.tasks.evaluation import evaluated
from zoo.tasks.scored import ScoredModule
from zoo.tasks.task import Task
from zoo.text import EOS, UNK, Tokenizer
from zoo.text.familiar import known_share
from zoo.text.words import BLANK, split_words, word_id


class Accuracy:
    """Accuracy in percent."""

    def __init__(self) -> None:
        self._mean = Mean()

    def update(self, right: Tensor) -> None:
        """Adds a batch of (B,) bool, True for a right answer."""
        self._mean.update(right.sum(), len(right))

    def compute(self) -> dict[str, float]:
        return {"accuracy": 100 * self._mean.compute()}


class ReadingModule(ScoredModule):
    """Base class of the readers.

    Every subclass has the `__init__` arguments of `required`, which are read from `self.config`; and `embedding`, an
    nn.Embedding whose first rows are the vocabulary's.
    """

    task = Task(
        "reading", "answer", "question", Reading, "question-answering", 'model.answer("...", "... XXXXX ...").answer'
    )
    required = ("vocab_size", "embedding_size")
    embedding: nn.Embedding
    tokenizer: Tokenizer | None = None

    def __init__(self):
        super().__init__()

    @property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ValueError: there is none yet.
        """
        return present(self.tokenizer)

    # ---- filled in by the model ----

    def forward(self, batch: ClozeBatch) -> tuple[Tensor, Tensor | None]:
        """Weights of the document words (P,), and of the query words (Q,) or None."""
        raise NotImplementedError

    # ---- pointer sums ----

    def word_probabilities(self, weights: Tensor, batch: ClozeBatch) -> Tensor:
        """P(w), the summed weights of all occurrences in the document, for each distinct word of each example, (W,)."""
        index = batch.document + batch.first_words()[segment_ids(batch.document_lengths)]
        return weights.new_zeros(len(batch.words)).index_add(0, index, weights)

    def candidate_probabilities(self, probabilities: Tensor, batch: ClozeBatch) -> Tensor:
        """P(w) of the candidates, (C,); 0 for a candidate that is not in the document."""
        index = batch.candidates + batch.first_words()[segment_ids(batch.candidate_counts)]
        nowhere = len(probabilities)
        return nn.functional.pad(probabilities, (0, 1))[index.masked_fill(batch.candidates < 0, nowhere)]

    def is_right(self, probabilities: Tensor, batch: ClozeBatch) -> Tensor:
        """Whether the most probable candidate (the first of ties) is the answer and is in the document, (B,) bool."""
        mask = lengths_to_mask(batch.candidate_counts, max(1, int(batch.candidate_counts.max())))
        found = torch.full(mask.shape, -1.0, device=mask.device)
        found[mask] = self.candidate_probabilities(probabilities, batch)
        best = to_padded(batch.candidates, mask).gather(1, found.argmax(1, keepdim=True)).squeeze(1)
        answers = batch.known_answers()
        return (best == answers) & (answers >= 0)

    # ---- training ----

    def loss(self, batch: ClozeBatch) -> tuple[Tensor, int]:
        """Summed -log P(answer) in nats over the examples whose answer is in the document, and their number."""
        loss, count, _ = self._loss(batch)
        return loss, count

    def _loss(self, batch: ClozeBatch) -> tuple[Tensor, int, Tensor]:
        weights, _ = self(batch)
        probabilities = self.word_probabilities(weights, batch)
        answers = batch.known_answers()
        index = (answers + batch.first_words())[answers >= 0]
        loss = -probabilities[index].clamp(min=torch.finfo(probabilities.dtype).tiny).log().sum()
        return loss, len(index), probabilities

    def adapt(self, data: Any, stage: str) -> None:
        """Takes the vocabulary of a data module, and in "fit" its word vectors; a pretrained model keeps its own."""
        if self.tokenizer is not None:
            return
        if len(data.tokenizer) > self.config["vocab_size"]:
            raise ValueError(
                f"the data has a vocabulary of {len(data.tokenizer)} words, the model one of "
                f"{self.config['vocab_size']}; "
                f"set the model's vocab_size to at least {len(data.tokenizer)}"
            )
        self.tokenizer = data.tokenizer
        if stage == "fit" and (found := data.vectors(self.config["embedding_size"])) is not None:
            vectors, known = found
            self.embedding.weight.data[: len(known)][known] = vectors[known].to(self.embedding.weight)

    def training_step(self, batch: ClozeBatch, batch_idx: int) -> Tensor:
        loss, count = self.loss(batch)
        self.log("train/loss", loss.detach() / max(count, 1), prog_bar=True, batch_size=max(count, 1))
        if absent := len(batch.known_answers()) - count:
            self.log("train/absent_answers", float(absent), reduce_fx="sum", on_step=False, on_epoch=True)
        return self.normalize_gradient(loss, count)

    def new_scores(self) -> Accuracy:
        return Accuracy()

    def score(self, batch: ClozeBatch, scores: Accuracy, validating: bool) -> tuple[Tensor, int]:
        loss, count, probabilities = self._loss(batch)
        scores.update(self.is_right(probabilities, batch))
        return loss, count

    # ---- use ----

    @overload
    def answer(self, document: str, query: str, candidates: Sequence[str] | None = ...) -> Reading: ...

    @overload
    def answer(
        self,
        document: str | Sequence[str],
        query: list[str] | tuple[str, ...],
        candidates: Sequence[Sequence[str] | None] | None = ...,
    ) -> list[Reading]: ...

    @evaluated
    def answer(
        self,
        document: str | Sequence[str],
        query: str | Sequence[str],
        candidates: Sequence[str] | Sequence[Sequence[str] | None] | None = None,
    ) -> Reading | list[Reading]:
        """Finds the missing word of a query in a document.

        Args:
            document: raw or tokenised text; a list of N, one per query; or one text for all queries.
            query: a sentence with XXXXX in place of the missing word, or a list of N of them.
            candidates: possible answers, compared as strings; for a list of queries a list of N such lists. If not
                given, any word of the document may be the answer. With `exclude_query_words` the words of the query
                cannot be the answer.

        Returns:
            One Reading for one query, a list of them for a list.

        Raises:
            ValueError: the model has no tokenizer; a document or query has no words; a query has no XXXXX; there
                are no candidates, one has several words, or none is in the document or possible; the lists differ
                in length.
            TypeError: something is not a string, or not a list.
        """
        self.check_ready(self.tokenizer)
        one = isinstance(query, str)
        queries = [query] if one else as_list(query, "query")
        documents = [document] * len(queries) if isinstance(document, str) else as_list(document, "document")
        choices = (
            [candidates]
            if one
            else [None] * len(queries)
            if candidates is None
            else as_list(candidates, "candidates", "lists of words")
        )
        for name, values in (("documents", documents), ("lists of candidates", choices)):
            if len(values) != len(queries):
                raise ValueError(f"there must be as many {name} as queries; got {len(values)} and {len(queries)}")
        questions = [
            self.read_question(*parts, "" if one else f"question {n}: ")
            for n, parts in enumerate(zip(documents, queries, choices, strict=True), 1)
        ]
        results: list[Any] = [None] * len(questions)
        for rows in groups_of_similar_size([len(words) + len(asked) for words, asked, _ in questions]):
            for n, result in zip(rows, self._answers([questions[n] for n in rows]), strict=True):
                results[n] = result
        return results[0] if one else results

    def read_question(
        self, document: Any, query: Any, candidates: Any, where: str = ""
    ) -> tuple[list[str], list[str], list[str]]:
        """Words of document and query, and candidates; errors as in `answer`, with `where` in front."""
        for name, text in (("document", document), ("query", query)):
            if not isinstance(text, str):
                raise TypeError(f"{where}the {name} must be a string; got {type(text).__name__}")
        if candidates is not None:
            listed = None if isinstance(candidates, str) or not isinstance(candidates, Iterable) else list(candidates)
            if listed is None or not all(isinstance(word, str) for word in listed):
                raise TypeError(f"{where}candidates must be a list of strings; got {candidates!r:.50}")
            candidates = [unicodedata.normalize("NFC", word) for word in listed]
        keep = {BLANK, *(candidates or ())}
        words, asked = (split_words(text, self.vocabulary, keep) for text in (document, query))
        for name, found in (("document", words), ("query", asked)):
            if not found:
                raise ValueError(f"{where}the {name} has no words; give a text")
        if BLANK not in asked:
            raise ValueError(f"{where}the query must have {BLANK} in place of the missing word; got {query!r:.100}")
        if candidates is None:
            return words, asked, []
        if not candidates:
            raise ValueError(
                f"{where}there are no candidates; give some, or None to choose from all words of the document"
            )
        for word in candidates:
            if split_words(word, self.vocabulary, keep) != [word]:
                raise ValueError(f"{where}a candidate must be one word of the document; got {word!r}")
        if not set(candidates) & set(words):
            given = ", ".join(map(repr, candidates[:10]))
            raise ValueError(f"{where}none of the candidates is in the document (upper and lower case differ): {given}")
        free = set(words) - set(asked) or set(words)
        if self.config.get("exclude_query_words") and not set(candidates) & free:
            raise ValueError(
                f"{where}this model never answers with a word of the query, and the candidates in the document are "
                "such words"
            )
        return words, asked, candidates

    def _answers(self, questions: list[tuple[list[str], list[str], list[str]]]) -> list[Reading]:
        numbers: dict[str, int] = {}

        def numbered(words: list[str]) -> np.ndarray:
            return np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)

        texts = [[numbered(words) for words in question] for question in questions]
        documents, queries, candidates = ([text[part] for text in texts] for part in range(3))
        ids = np.array([word_id(word, self.vocabulary) for word in numbers], np.int64)
        batch = collate_questions(documents, queries, candidates, None, ids).to(self.device)
        weights, query_weights = self(batch)
        found = check_finite(self.candidate_probabilities(self.word_probabilities(weights, batch), batch).cpu())
        by_document = weights.cpu().split(batch.document_lengths.tolist())
        by_query = (
            [None] * len(questions)
            if query_weights is None
            else query_weights.cpu().split(batch.query_lengths.tolist())
        )
        results = []
        by_candidate = found.split(batch.candidate_counts.tolist())
        for (words, asked, given), w, v, p in zip(questions, by_document, by_query, by_candidate, strict=True):
            probabilities = dict(zip(given or dict.fromkeys(words), p.tolist(), strict=True))
            if not given and len(probabilities) > 1:
                probabilities.pop(BLANK, None)  # the document may contain the mark too
            best = max(probabilities, key=probabilities.__getitem__)
            if not given:
                probabilities = dict(sorted(probabilities.items(), key=lambda item: -item[1]))
            result = Reading(best, probabilities, words, w, asked, v)
            known = [int(ids[numbers[word]]) for word in words]
            score = _log_odds(p) if given else math.nan  # measured with candidates only
            results.append(trusted(result, self.calibration, self._evidence(score, known, " ".join(words))))
        return results

    # ---- calibration ----

    def event(self) -> str:
        return "the answer is right, if it is one of the candidates given"

    def judge(self, batch: ClozeBatch) -> list[tuple[Evidence, Any]]:
        """The default answers, and whether they are right."""
        probabilities = self.word_probabilities(self(batch)[0], batch)
        found = self.candidate_probabilities(probabilities, batch).cpu().split(batch.candidate_counts.tolist())
        words = batch.words.split(batch.word_counts.tolist())
        numbers = batch.document.split(batch.document_lengths.tolist())
        documents = [own[n].tolist() for own, n in zip(words, numbers, strict=True)]
        texts = [" ".join(self.vocabulary.tokens(ids)) for ids in documents]
        return [
            (self._evidence(_log_odds(p), ids, text), happened)
            for p, ids, text, happened in zip(
                found, documents, texts, self.is_right(probabilities, batch).tolist(), strict=True
            )
        ]

    def _evidence(self, score: float, document: list[int], text: str) -> Evidence:
        return Evidence({"score": score}, known_share(document, self.vocabulary), text)

    # ---- bundle and tests ----

    def assets(self) -> dict[str, str]:
        """tokenizer.json."""
        return {} if self.tokenizer is None else {"tokenizer.json": self.tokenizer.to_json()}

    def load_assets(self, assets: dict[str, str]) -> None:
        if assets:
            check_assets(assets, name := "tokenizer.json")
            self.tokenizer = Tokenizer.from_json(assets[name], self.config["vocab_size"], name)

    def example_batch(self, batch_size: int) -> ClozeBatch:
        """Random words, some unknown; the first document is empty, and every third answer is not in its document."""
        rng = np.random.default_rng(batch_size)
        size = self.config["vocab_size"] + 3
        ids = np.arange(size)
        ids[-3:] = UNK  # three different unknown words
        words = np.delete(np.arange(size), [0, 2, EOS])
        documents = [rng.choice(words, 3 * n % 11) for n in range(batch_size)]
        queries = [rng.choice(words, 1 + (n + 2) % 5) for n in range(batch_size)]
        answers = [int(d[n % len(d)]) if len(d) and n % 3 != 2 else size - 1 for n, d in enumerate(documents)]
        candidates = [
            np.append(rng.choice(words, 3), answer) if n % 4 else np.empty(0, int) for n, answer in enumerate(answers)
        ]
        return collate_questions(documents, queries, candidates, answers, ids)

    @evaluated
    def golden(self) -> dict[str, Tensor]:
        """The weights for a fixed batch."""
        batch = self.example_batch(6)
        weights, _ = self(batch)
        return {**{name: x for name, x in batch._asdict().items() if name != "answers"}, "weights": weights}


def _log_odds(probabilities: Tensor) -> float:
    """Log-odds of the best of (C,) candidates, whose probabilities may sum to less than 1."""
    found = probabilities.double().clamp(min=1e-9)
    best = float(found.max() / found.sum())
    return math.log(best) - math.log(max(1 - best, 1e-9))
