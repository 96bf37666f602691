"""ClassificationModule: what all classifiers of texts share: loss, metrics, vocabulary, and `classify`.

A model implements `read(batch) -> (logits (B, C), attention)`. How a text becomes a batch and an answer it inherits
from `TextClassifier` (texts are rows of words, one text or a pair) or `DocumentClassifier` (documents are lists of
sentences).

Shapes: B texts, C classes, V words in the vocabulary.
"""

import json
import logging
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from zoo.batches.classification import DocumentBatch, TextBatch, collate_documents, collate_texts
from zoo.batches.rows import groups_of_similar_size
from zoo.layers.kernels import wide
from zoo.metrics import ClassScores
from zoo.results.classification import Classification, DocumentClassification
from zoo.tasks.checks import as_list, check_assets, check_finite, present
from zoo.tasks.confidence import Evidence, trusted
from zoo.tasks.evaluation import evaluated
from zoo.tasks.scored import ScoredModule
from zoo.tasks.task import Task
from zoo.tasks.vocabulary import extend_embedding, place_vectors
from zoo.text import UNK, Tokenizer
from zoo.text.familiar import known_share
from zoo.text.sentences import encode_document
from zoo.utils import strict_json

MAX_LABELS = 2**14  # of a bundle
RELATEDNESS = 1.0, 5.0  # lowest and highest

Batch = TypeVar("Batch", bound=TextBatch | DocumentBatch)
Result = TypeVar("Result", bound=Classification | DocumentClassification)
log = logging.getLogger(__name__)


class ClassificationModule(ScoredModule, Generic[Batch, Result]):
    """Base class of the classifiers, by what they read and what they answer.

    Every subclass has the `__init__` arguments of `required`, which are read from `self.config`; and `embedding`, an
    nn.Embedding, and `classifier`, an nn.Linear that gives the logits.
    """

    task = Task(
        "classification", "classify", "document", Classification, "text-classification", 'model.classify("...").label'
    )
    required = ("vocab_size", "num_classes", "multi_label", "embedding_size", "word_dropout", "label_smoothing")
    measures: ClassVar[tuple[str, ...]] = ()  # names of the values of `measure`
    structure: ClassVar[Literal["document", "text"]]  # its input, as in data modules
    embedding: nn.Embedding
    classifier: nn.Linear
    tokenizer: Tokenizer | None = None
    label_names: list[str] | None = None

    def __init__(self):
        super().__init__()
        c = self.config
        for name, low, high in [("label_smoothing", 0, 1), ("word_dropout", 0, 1)]:
            if not low <= c[name] < high:
                raise ValueError(f"{name} must be in [{low}, {high}); got {c[name]}")
        if c["num_classes"] < 2 and not c["multi_label"]:
            raise ValueError(f"num_classes must be at least 2; got {c['num_classes']}")
        if c.get("pair"):
            self.task = replace(self.task, input="pair", example='model.classify(("...", "...")).label')

    @property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ValueError: there is none yet.
        """
        return present(self.tokenizer)

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

    def encode(self, text: Any) -> tuple[Any, Any]:
        """A user's input -> token ids, words."""
        raise NotImplementedError

    def collate(self, ids: Sequence[Any]) -> Batch:
        """Token ids of several texts -> a batch without labels."""
        raise NotImplementedError

    def answers(self, choice: list[dict[str, Any]], attention: Any, words: Sequence[Any]) -> list[Result]:
        """Result objects, from the label, labels, probabilities and relatedness of each text, attention and words."""
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
        seen[tokens] = True
        return self.embedding(seen.nonzero().squeeze(1)), (seen.cumsum(0) - 1)[tokens]

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Summed loss of a batch in nats, including the attention term, and the number of its texts."""
        logits, attention = self.read(batch)
        loss = self._classification_loss(logits, batch.known_labels(), self.config["label_smoothing"])
        return loss + self.penalty(attention), len(logits)

    def _classification_loss(self, logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
        logits = wide(logits)
        if not self.config["multi_label"]:
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
        if self.label_names is not None and stage == "fit" and not same:
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

    def replace_labels(self, names: Sequence[str], multi_label: bool = False) -> None:
        """Gives the model other labels: re-initialises the last layer, with a warning; everything else stays.

        Args:
            names: the labels.
            multi_label: a text may have several labels, or none.
        """
        names, old = list(names), self.label_names
        if len(names) < 2 and not multi_label:
            raise ValueError(
                f"a classifier needs at least two labels; got only {', '.join(map(repr, names)) or 'none'}"
            )
        self._new_classifier(len(names), multi_label)
        self.label_names = names
        log.warning(
            "re-initialised classifier for the labels %s (the weights have %s)", _listed(names), _listed(old or [])
        )

    def _new_classifier(self, num_classes: int, multi_label: bool) -> None:
        weight = self.classifier.weight
        self.classifier = nn.Linear(weight.size(1), num_classes, device=weight.device, dtype=weight.dtype)
        self.config |= {"num_classes": num_classes, "multi_label": multi_label}
        self.calibration = None

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
        loss, count = self.loss(batch)
        self.log("train/loss", loss.detach() / count, prog_bar=True, batch_size=count)
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

    # ---- use ----

    @overload
    def classify(self, texts: str | tuple[str, str]) -> Result: ...

    @overload
    def classify(self, texts: list[str] | list[tuple[str, str]]) -> list[Result]: ...

    @evaluated
    def classify(
        self, texts: str | tuple[str, str] | Sequence[str] | Sequence[tuple[str, str]]
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
            batch = self.collate([encoded[n][0] for n in rows])
            logits, attention, relatedness = self.read_related(_on(self.device, batch))
            choice = [self._choose(row) for row in check_finite(logits.float().cpu())]
            if relatedness is not None:
                for chosen, value in zip(choice, relatedness.clamp(*RELATEDNESS).tolist(), strict=True):
                    chosen["relatedness"] = value
            answers = self.answers(choice, attention, [encoded[n][1] for n in rows])
            sure = self._sureness(logits.float().cpu())
            for n, answer, score in zip(rows, answers, sure, strict=True):
                results[n] = trusted(answer, self.calibration, self._evidence(score, encoded[n][0], texts_of[n]))
        return results[0] if one else results

    def _checked(self, texts: list[Any]) -> list[Any]:
        self.check_ready(self.tokenizer, self.label_names)
        pair = self.config.get("pair", False)
        for text in texts:
            if pair and not (
                isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text)
            ):
                raise TypeError(
                    f"this model reads pairs of texts: give a tuple (text, text); got {type(text).__name__}"
                )
            if not pair and not isinstance(text, str):
                raise TypeError(f"classify takes a string or a list of strings; got {type(text).__name__}")
        return texts

    def _choose(self, logits: Tensor) -> dict[str, Any]:
        probabilities = logits.sigmoid() if self.config["multi_label"] else logits.softmax(-1)
        order = probabilities.argsort(descending=True).tolist()
        chosen = [n for n in order if probabilities[n] > 0.5] if self.config["multi_label"] else order[:1]
        names = present(self.label_names)
        labels = [names[n] for n in chosen]
        return {
            "label": labels[0] if labels else None,
            "labels": labels,
            "probabilities": dict(zip(names, probabilities.tolist(), strict=True)),
        }

    # ---- calibration ----

    def event(self) -> str:
        return f"the {'set of labels' if self.config['multi_label'] else 'label'} is right"

    def judge(self, batch: Batch) -> list[tuple[Evidence, Any]]:
        """The default answers, and whether they are right."""
        logits, _ = self.read(batch)
        labels = batch.known_labels()
        right = ((logits > 0) == (labels > 0.5)).all(-1) if self.config["multi_label"] else logits.argmax(-1) == labels
        scores = self._sureness(logits.float().cpu())
        return [
            (self._evidence(score, [ids], " ".join(self.vocabulary.tokens(ids))), happened)
            for score, ids, happened in zip(scores, batch.rows(), right.tolist(), strict=True)
        ]

    def _sureness(self, logits: Tensor) -> list[float]:
        """The log-odds of the answers, by the model's own probabilities."""
        if self.config["multi_label"]:
            log_p = nn.functional.logsigmoid(logits.double().abs()).sum(-1)
            return (log_p - torch.log(-torch.expm1(log_p.clamp(max=-1e-12)))).tolist()
        best, others = logits.double().sort(descending=True).values.tensor_split([1], -1)
        return (best.squeeze(-1) - others.logsumexp(-1)).tolist()

    def _evidence(self, score: float, ids: Sequence[Sequence[int]], text: str) -> Evidence:
        words = list(chain.from_iterable(ids))
        notes = () if words else ("the text has no words",)
        return Evidence({"score": score}, known_share(words, self.vocabulary), text, notes=notes)

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

    @evaluated
    def golden(self) -> dict[str, Tensor]:
        """The logits, and the relatedness if any, of a fixed batch."""
        batch = self.example_batch(6)
        logits, _, relatedness = self.read_related(_on(self.device, batch))
        inputs = {name: x for name, x in batch._asdict().items() if isinstance(x, Tensor) and name != "labels"}
        related = {} if relatedness is None else {"relatedness": relatedness}
        return {**inputs, "logits": logits[:, :: max(1, logits.size(-1) // 100)].contiguous(), **related}

    def _example_labels(self, batch_size: int) -> Tensor:
        classes = self.config["num_classes"]
        labels = torch.arange(batch_size) % classes
        return nn.functional.one_hot(labels, classes).float() if self.config["multi_label"] else labels

    def _example_words(self, generator: torch.Generator, length: int) -> list[int]:
        return torch.randint(UNK, self.config["vocab_size"], (length,), generator=generator).tolist()


class TextClassifier(ClassificationModule[TextBatch, Classification]):
    """Base class of classifiers of rows of words, or of pairs of them; attention is a list of (B, hops, S)."""

    structure = "text"

    def encode(self, text: str | tuple[str, str]) -> tuple[list[list[int]], list[list[str]]]:
        parts = [text] if isinstance(text, str) else list(text)
        return self.vocabulary.encode_batch(parts), [self.vocabulary.words(part) for part in parts]

    def collate(self, ids: Sequence[list[list[int]]]) -> TextBatch:
        firsts, *seconds = zip(*ids, strict=True)
        return collate_texts(firsts, texts2=seconds[0] if seconds else None)

    def answers(
        self, choice: list[dict[str, Any]], attention: list[Tensor], words: Sequence[list[list[str]]]
    ) -> list[Classification]:
        return [
            Classification(
                **chosen,
                tokens=tokens,
                attention=[a[n, :, : len(t)].cpu() for a, t in zip(attention, tokens, strict=True)],
            )
            for n, (chosen, tokens) in enumerate(zip(choice, words, strict=True))
        ]

    def example_batch(self, batch_size: int) -> TextBatch:
        """Random words, lengths from 0 up."""
        generator = torch.Generator().manual_seed(batch_size)
        texts = [self._example_words(generator, n % 7) for n in range(batch_size)]
        texts2 = [self._example_words(generator, 1 + (n + 2) % 5) for n in range(batch_size)]
        return collate_texts(texts, self._example_labels(batch_size), texts2 if self.config.get("pair") else None)


class DocumentClassifier(ClassificationModule[DocumentBatch, DocumentClassification]):
    """Base class of document classifiers; attention is word weights (P,), sentence weights (N,), flat like it."""

    task = replace(ClassificationModule.task, result=DocumentClassification)
    structure = "document"

    def encode(self, text: str) -> tuple[list[list[int]], list[list[str]]]:
        return encode_document(text, self.vocabulary)

    def collate(self, ids: Sequence[list[list[int]]]) -> DocumentBatch:
        return collate_documents(ids)

    def answers(
        self, choice: list[dict[str, Any]], attention: tuple[Tensor, Tensor], words: Sequence[list[list[str]]]
    ) -> list[DocumentClassification]:
        word_weights = list(attention[0].cpu().split([len(sentence) for document in words for sentence in document]))
        results, first = [], 0
        for chosen, document, sentence_weights in zip(
            choice, words, attention[1].cpu().split([len(d) for d in words]), strict=True
        ):
            of_words = word_weights[first : first + len(document)]
            results.append(
                DocumentClassification(
                    **chosen, words=document, sentence_weights=sentence_weights, word_weights=of_words
                )
            )
            first += len(document)
        return results

    def example_batch(self, batch_size: int) -> DocumentBatch:
        """Random words; 0 to 3 sentences of 1 to 4 words."""
        generator = torch.Generator().manual_seed(batch_size)
        documents = [
            [self._example_words(generator, 1 + (n + s) % 4) for s in range(min(n, 3))] for n in range(batch_size)
        ]
        return collate_documents(documents, self._example_labels(batch_size))


def _label_names(text: str, file: str) -> list[str] | None:
    """The labels of a bundle; None if its model has a new, untrained head."""
    try:
        names = strict_json.loads(text, MAX_LABELS)
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if names is None:
        return None
    if not isinstance(names, list) or not all(
        isinstance(name, str) and not re.search(r"[\x00-\x1f\x7f-\x9f]", name) for name in names
    ):
        raise ValueError(f"{file} must be a list of texts without control characters; got {reprlib.repr(names)}")
    if len(set(names)) != len(names):
        raise ValueError(f"{file} has a label twice")
    return names


def _listed(names: Sequence[str]) -> str:
    """At most ten quoted names, for a message."""
    return ", ".join([*map(repr, names[:10]), *["..."] * (len(names) > 10)])


def _on(device: torch.device, batch: Batch) -> Batch:
    """The batch with its tensors on a device."""
    return batch._make(x.to(device) if isinstance(x, Tensor) else x for x in batch)


def _size(ids: Any) -> int:
    return sum(len(part) for part in ids)
