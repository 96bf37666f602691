"""ClassificationModule: what all classifiers of texts share: loss, metrics and vocabulary; its verb is in zoo/verbs.

A model implements `read(batch) -> (logits (B, C), attention)`. How a text becomes a batch and an answer it inherits
from `TextClassifier` (texts are rows of words, one text or a pair) or `DocumentClassifier` (documents are lists of
sentences).

Shapes: B texts, C classes, V words in the vocabulary.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from zoo.batches.classification import DocumentBatch, TextBatch, collate_documents, collate_texts
from zoo.batches.devices import on
from zoo.layers.kernels import wide
from zoo.metrics import ClassScores
from zoo.results.classification import Classification, DocumentClassification
from zoo.tasks.adversarial import adversarial_loss
from zoo.tasks.scored import ScoredModule
from zoo.tasks.vocabulary import check_fits, extend_embedding, place_vectors
from zoo.text import UNK, Tokenizer
from zoo.utils.labels import check_labels
from zoo.verbs.base import evaluated
from zoo.verbs.classification import RELATEDNESS, Classifier, OfDocuments, OfTexts, sureness
from zoo.verbs.confidence import Evidence

Batch = TypeVar("Batch", bound=TextBatch | DocumentBatch)
Result = TypeVar("Result", bound=Classification | DocumentClassification)
log = logging.getLogger(__name__)


class ClassificationModule(Classifier[Result], ScoredModule, Generic[Batch, Result]):
    """Base class of the classifiers, by what they read and what they answer.

    Every subclass has the `__init__` arguments of `required`, which are read from `self.config`; and `embedding`, an
    nn.Embedding, and `classifier`, an nn.Linear that gives the logits.
    """

    required = ("vocab_size", "num_classes", "multi_label", "embedding_size", "word_dropout", "label_smoothing")
    methods = ("read", "collate", "split")
    measures: ClassVar[tuple[str, ...]] = ()  # names of the values of `measure`
    structure: ClassVar[Literal["document", "text"]]  # its input, as in data modules
    embedding: nn.Embedding
    classifier: nn.Linear
    has_new_labels = False  # a training that begins has replaced them

    def __init__(self):
        super().__init__()
        c = self.config
        for name, low, high in [("label_smoothing", 0, 1), ("word_dropout", 0, 1)]:
            if not low <= c[name] < high:
                raise ValueError(f"{name} must be in [{low}, {high}); got {c[name]}")
        if not 0 <= c.get("adversarial", 0.0) < 1:
            raise ValueError(f"adversarial must be in [0, 1); got {c['adversarial']}")
        if c["num_classes"] < 2 and not c["multi_label"]:
            raise ValueError(f"num_classes must be at least 2; got {c['num_classes']}")
        self.task = self.task_of(c)

    # ---- filled in by the model ----

    def read(self, batch: Batch) -> tuple[Tensor, Any]:
        """A batch -> logits (B, C) and the attention weights."""
        raise NotImplementedError

    def read_related(self, batch: Batch) -> tuple[Tensor, Any, Tensor | None]:
        """As `read`, plus the relatedness of each pair (B,) on the data's scale, or None if not predicted."""
        return *self.read(batch), None

    def penalty(self, attention: Any) -> Tensor | float:
        """The loss term for the attention weights of a batch, summed over its texts."""
        return 0.0

    def measure(self, attention: Any) -> dict[str, Tensor]:
        """Statistics of the attention of each text (B,), whose means are reported with the scores; see `measures`."""
        return {}

    def collate(self, ids: Sequence[Any]) -> Batch:
        """Token ids of several texts -> a batch without labels."""
        raise NotImplementedError

    def split(self, attention: Any, ids: Sequence[Any]) -> list[Any]:
        """The attention of a batch -> that of each text, on the CPU, as `zoo.verbs.classification` has it."""
        raise NotImplementedError

    # ---- training ----

    def forward(self, batch: Batch) -> tuple[Tensor, Any]:
        """As `read`: a batch -> logits (B, C) and the attention weights."""
        return self.read(batch)

    def embed_words(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Embeds each distinct word once: tokens (P,) -> (R, E) and the row of each token, (P,)."""
        if self.training and self.config["word_dropout"]:
            tokens = tokens.masked_fill(
                torch.rand(tokens.shape, device=tokens.device) < self.config["word_dropout"], UNK
            )
        seen = torch.zeros(self.config["vocab_size"], dtype=torch.bool, device=tokens.device)
        seen.scatter_(0, tokens, True)  # unlike an index it takes no negative id
        return self.embedding(seen.nonzero().squeeze(1)), (seen.cumsum(0) - 1)[tokens]

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Summed loss of a batch in nats, including the attention term, and the number of its texts."""
        logits, attention = self.read(batch)
        loss = self._classification_loss(logits, batch.known_labels(), self.config["label_smoothing"])
        return loss + self.penalty(attention), len(logits)

    def _classification_loss(self, logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
        logits = wide(logits)
        if not self.config["multi_label"]:
            labels = labels.to(logits.dtype) if labels.is_floating_point() else labels  # probabilities
            return cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction="sum")
        labels = labels.to(logits.dtype) * (1 - label_smoothing) + label_smoothing / 2
        return binary_cross_entropy_with_logits(logits, labels, reduction="sum")

    def adapt(self, data: Any, stage: str) -> None:
        """Takes labels and vocabulary from a data module; in "fit" also labels and words new to a pretrained model."""
        if len(data.labels) < 2 and not data.multi_label:
            raise ValueError(
                f"{data.source('train')}: all texts have the label {data.labels[0]!r}; give texts of two labels or more"
            )
        same = self.label_names == data.labels and self.config["multi_label"] == data.multi_label
        self.has_new_labels = self.label_names is not None and stage == "fit" and not same
        if self.has_new_labels:
            self.replace_labels(data.labels, data.multi_label)
        for argument, value in (("num_classes", len(data.labels)), ("multi_label", data.multi_label)):
            if self.config[argument] != value:
                raise ValueError(
                    f"the data has {argument} {value}, the model {self.config[argument]}; set {argument} to {value}"
                )
        if self.label_names is None:
            self.label_names = data.labels
        if self.tokenizer is not None and len(data.tokenizer) > len(self.tokenizer):
            known = len(self.tokenizer)
            self._extend(known, data.tokenizer)
            if (found := data.vectors(self.config["embedding_size"])) is not None:
                place_vectors(self.embedding, known, *found)
        elif self.tokenizer is not None:
            self.tokenizer = data.tokenizer  # the same words; the data may clean more
        if self.tokenizer is None:
            check_fits(data.tokenizer, self.config["vocab_size"])
            self.tokenizer = data.tokenizer
            if stage == "fit" and (found := data.vectors(self.config["embedding_size"])) is not None:
                vectors, known = found
                self.embedding.weight.data[: len(known)][known] = vectors[known].to(self.embedding.weight)

    def replace_labels(self, names: Sequence[str], multi_label: bool = False) -> None:
        """Gives the model other labels: re-initialises the last layer, with a warning; everything else stays.

        Args:
            names: the labels.
            multi_label: a text may have several labels, or none.

        Raises:
            ValueError: fewer than two labels, one twice, or one with a control character.
            TypeError: one text instead of a list.
        """
        if isinstance(names, str):
            raise TypeError(f"the labels must be a list of texts; got the text {names!r}")
        names, old = list(names), self.label_names
        check_labels(names, "names")
        if len(names) < 2 and not multi_label:
            raise ValueError(
                f"a classifier needs at least two labels; got only {', '.join(map(repr, names)) or 'none'}"
            )
        from lightning.pytorch.utilities import rank_zero_only  # late: an answer needs no Lightning

        self._new_classifier(len(names), multi_label)
        self.label_names = names
        rank_zero_only(log.warning)(
            "re-initialised classifier for the labels %s (the weights have %s)", _listed(names), _listed(old or [])
        )

    def _new_classifier(self, num_classes: int, multi_label: bool) -> None:
        weight = self.classifier.weight
        self.classifier = nn.Linear(weight.size(1), num_classes, device=weight.device, dtype=weight.dtype)
        self.config |= {"num_classes": num_classes, "multi_label": multi_label}

    def extend_vocabulary(self, words: Sequence[str]) -> None:
        """Appends words to the vocabulary, to be learnt in training. All other weights stay bit-identical.

        See zoo/tasks/vocabulary.py.

        Args:
            words: single words; known ones are skipped.

        Raises:
            ValueError: no tokenizer, or one that splits a word.
        """
        self.check_ready(self.tokenizer)
        self._extend(len(self.vocabulary), self.vocabulary.extended(words))

    def _extend(self, known: int, tokenizer: Tokenizer) -> None:
        self._give_rows(known, len(tokenizer))
        self.tokenizer = tokenizer

    def _give_rows(self, known: int, size: int) -> None:
        if size > known:
            extend_embedding(self.embedding, known, size)
            self.config["vocab_size"] = len(self.embedding.weight)

    def make_room(self, config: Mapping[str, Any]) -> None:
        self._give_rows(self.config["vocab_size"], config.get("vocab_size", 0))
        labels = {key: config.get(key, self.config[key]) for key in ("num_classes", "multi_label")}
        if any(self.config[key] != value for key, value in labels.items()):
            self._new_classifier(**labels)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        shift = self.config.get("adversarial")
        loss, count = adversarial_loss(self, batch, shift) if shift else self.loss(batch)
        self.log("train/loss", loss.detach() / max(count, 1), prog_bar=True, batch_size=max(count, 1))
        return self.normalize_gradient(loss, count)

    def new_scores(self) -> ClassScores:
        related = bool(self.config.get("relatedness"))
        return ClassScores(self.config["num_classes"], self.config["multi_label"], self.measures, related).to(
            self.device
        )

    def score(self, batch: Batch, scores: ClassScores, validating: bool) -> tuple[Tensor, int]:
        logits, attention, relatedness = self.read_related(batch)
        labels, wanted = batch.known_labels(), batch.scores if isinstance(batch, TextBatch) else None
        scores.update(logits, labels, **self.measure(attention))
        if relatedness is not None and wanted is not None and scores.relatedness is not None:
            scores.relatedness.update(relatedness.clamp(*RELATEDNESS), wanted)
        return self._classification_loss(logits, labels), len(logits)

    # ---- use: what the verb `classify` computes ----

    def weigh(self, rows: Sequence[Any]) -> tuple[np.ndarray, list[Any], list[float] | None]:
        batch = on(self.device, self.collate(rows))
        logits, attention, relatedness = self.read_related(batch)
        related = None if relatedness is None else relatedness.clamp(*RELATEDNESS).tolist()
        return logits.float().cpu().numpy(), self.split(attention, rows), related

    # ---- calibration ----

    def event(self) -> str:
        return f"the {'set of labels' if self.config['multi_label'] else 'label'} is right"

    def judge(self, batch: Batch) -> list[tuple[Evidence, Any]]:
        """The default answers, and whether they are right."""
        logits, _ = self.read(batch)
        labels = batch.known_labels()
        right = ((logits > 0) == (labels > 0.5)).all(-1) if self.config["multi_label"] else logits.argmax(-1) == labels
        scores = sureness(logits.float().cpu().numpy(), self.config["multi_label"])
        return [
            (self.evidence_of(score, [ids], [words := self.vocabulary.tokens(ids)], " ".join(words)), happened)
            for score, ids, happened in zip(scores, batch.rows(), right.tolist(), strict=True)
        ]

    # ---- bundle ----

    @evaluated
    def golden(self) -> dict[str, Tensor]:
        """The logits, and the relatedness if any, of a fixed batch."""
        batch = on(self.device, self.example_batch(6))
        logits, _, relatedness = self.read_related(batch)
        inputs = {name: x for name, x in batch._asdict().items() if isinstance(x, Tensor) and name != "labels"}
        related = {} if relatedness is None else {"relatedness": relatedness}
        return {**inputs, "logits": logits[:, :: max(1, logits.size(-1) // 100)].contiguous(), **related}

    def _example_labels(self, batch_size: int) -> Tensor:
        classes = self.config["num_classes"]
        labels = torch.arange(batch_size) % classes
        return nn.functional.one_hot(labels, classes).float() if self.config["multi_label"] else labels

    def _example_words(self, generator: torch.Generator, length: int) -> list[int]:
        return torch.randint(UNK, self.config["vocab_size"], (length,), generator=generator).tolist()


class TextClassifier(OfTexts, ClassificationModule[TextBatch, Classification]):
    """Base class of classifiers of rows of words, or of pairs of them; attention is a list of (B, hops, S)."""

    structure = "text"

    def collate(self, ids: Sequence[list[list[int]]]) -> TextBatch:
        firsts, *seconds = zip(*ids, strict=True)
        return collate_texts(firsts, texts2=seconds[0] if seconds else None)

    def split(self, attention: list[Tensor], ids: Sequence[list[list[int]]]) -> list[list[Tensor]]:
        weights = [part.cpu() for part in attention]
        return [[a[n, :, : len(t)] for a, t in zip(weights, texts, strict=True)] for n, texts in enumerate(ids)]

    def example_batch(self, batch_size: int) -> TextBatch:
        """Random words, lengths from 0 up."""
        generator = torch.Generator().manual_seed(batch_size)
        texts = [self._example_words(generator, n % 7) for n in range(batch_size)]
        texts2 = [self._example_words(generator, 1 + (n + 2) % 5) for n in range(batch_size)]
        return collate_texts(texts, self._example_labels(batch_size), texts2 if self.config.get("pair") else None)


class DocumentClassifier(OfDocuments, ClassificationModule[DocumentBatch, DocumentClassification]):
    """Base class of document classifiers; attention is word weights (P,), sentence weights (N,), flat like it."""

    structure = "document"

    def collate(self, ids: Sequence[list[list[int]]]) -> DocumentBatch:
        return collate_documents(ids)

    def split(
        self, attention: tuple[Tensor, Tensor], ids: Sequence[list[list[int]]]
    ) -> list[tuple[list[Tensor], Tensor]]:
        of_words = iter(attention[0].cpu().split([len(sentence) for document in ids for sentence in document]))
        of_sentences = attention[1].cpu().split([len(document) for document in ids])
        return [([next(of_words) for _ in document], of_sentences[n]) for n, document in enumerate(ids)]

    def example_batch(self, batch_size: int) -> DocumentBatch:
        """Random words; 0 to 3 sentences of 1 to 4 words."""
        generator = torch.Generator().manual_seed(batch_size)
        documents = [
            [self._example_words(generator, 1 + (n + s) % 4) for s in range(min(n, 3))] for n in range(batch_size)
        ]
        return collate_documents(documents, self._example_labels(batch_size))


def _listed(names: Sequence[str]) -> str:
    """At most ten quoted names, for a message."""
    return ", ".join([*map(repr, names[:10]), *["..."] * (len(names) > 10)])
