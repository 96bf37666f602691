"""ReadingModule: what all document readers share: pointer sums, loss, score and vocabulary; its verb is in zoo/verbs.

A model implements `forward(batch) -> (weights of document words (P,), weights of query words (Q,) or None)`.

Shapes: B examples, W distinct words of all examples, C candidates of all examples, P and Q words of all documents and
queries.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.batches.devices import on
from zoo.batches.reading import ClozeBatch, collate_questions
from zoo.layers.masking import lengths_to_mask
from zoo.layers.packed import segment_ids, to_padded
from zoo.metrics import Mean
from zoo.tasks.scored import ScoredModule
from zoo.tasks.vocabulary import check_fits
from zoo.text import EOS, UNK
from zoo.text.words import BLANK_ID
from zoo.verbs.base import evaluated
from zoo.verbs.confidence import Evidence
from zoo.verbs.reading import Numbered, Reader, log_odds_of_best


class Accuracy:
    """Accuracy in percent."""

    def __init__(self) -> None:
        self._mean = Mean()

    def update(self, right: Tensor) -> None:
        """Adds a batch of (B,) bool, True for a right answer."""
        self._mean.update(right.sum(), len(right))

    def compute(self) -> dict[str, float]:
        return {"accuracy": 100 * self._mean.compute()}


class ReadingModule(Reader, ScoredModule):
    """Base class of the readers.

    Every subclass has the `__init__` arguments of `required`, which are read from `self.config`; and `embedding`, an
    nn.Embedding whose first rows are the vocabulary's.
    """

    required = ("vocab_size", "embedding_size")
    methods = ("forward",)
    embedding: nn.Embedding

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
        return nn.functional.pad(probabilities, (0, 1))[batch.candidate_places()]  # -1 is the 0 at the end

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
        check_fits(data.tokenizer, self.config["vocab_size"])
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

    # ---- use: what the verb `answer` computes ----

    def weigh(self, questions: Sequence[Numbered], ids: np.ndarray) -> list[tuple[Tensor, Tensor | None, np.ndarray]]:
        documents, queries, candidates = ([question[part] for question in questions] for part in range(3))
        batch = collate_questions(documents, queries, candidates, None, ids).to(self.device)
        weights, query_weights = self(batch)
        found = self.candidate_probabilities(self.word_probabilities(weights, batch), batch).cpu()
        of_words = weights.cpu().split(batch.document_lengths.tolist())
        of_queries = (
            [None] * len(questions)
            if query_weights is None
            else query_weights.cpu().split(batch.query_lengths.tolist())
        )
        by_candidate = [p.numpy() for p in found.split(batch.candidate_counts.tolist())]
        return list(zip(of_words, of_queries, by_candidate, strict=True))

    # ---- calibration ----

    def event(self) -> str:
        return "the answer is right, if it is one of the candidates given"

    def judge(self, batch: ClozeBatch) -> list[tuple[Evidence, Any]]:
        """The default answers, and whether they are right; none to a document without words and candidates."""
        probabilities = self.word_probabilities(self(batch)[0], batch)
        found = self.candidate_probabilities(probabilities, batch).cpu().split(batch.candidate_counts.tolist())
        words = batch.words.split(batch.word_counts.tolist())
        numbers = batch.document.split(batch.document_lengths.tolist())
        documents = [own[n].tolist() for own, n in zip(words, numbers, strict=True)]
        texts = [" ".join(self.vocabulary.tokens(ids)) for ids in documents]
        return [
            (self.evidence_of(log_odds_of_best(p.numpy()), ids, text), happened)
            for p, ids, text, happened in zip(
                found, documents, texts, self.is_right(probabilities, batch).tolist(), strict=True
            )
            if len(p)
        ]

    # ---- bundle and tests ----

    def example_batch(self, batch_size: int) -> ClozeBatch:
        """Random words, some unknown; the first document is empty, and every third answer is not in its document."""
        rng = np.random.default_rng(batch_size)
        size = self.config["vocab_size"] + 3
        ids = np.arange(size)
        ids[-3:] = UNK  # three different unknown words
        words = np.delete(np.arange(size), [0, 2, EOS])
        documents = [rng.choice(words, 3 * n % 11) for n in range(batch_size)]
        queries = [rng.choice(words, 1 + (n + 2) % 5) for n in range(batch_size)]
        if self.config.get("context_size"):  # other readers do not care which word is the blank
            queries = [np.insert(query, n % len(query), BLANK_ID) for n, query in enumerate(queries)]
        answers = [int(d[n % len(d)]) if len(d) and n % 3 != 2 else size - 1 for n, d in enumerate(documents)]
        candidates = [
            np.append(rng.choice(words, 3), answer) if n % 4 else np.empty(0, int) for n, answer in enumerate(answers)
        ]
        return collate_questions(documents, queries, candidates, answers, ids)

    @evaluated
    def golden(self) -> dict[str, Tensor]:
        """The weights for a fixed batch."""
        batch = on(self.device, self.example_batch(6))
        weights, _ = self(batch)
        return {**{name: x for name, x in batch._asdict().items() if name != "answers"}, "weights": weights}
