"""Tokenised texts and documents with labels in memory-mapped files."""

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from zoo.batches.classification import DocumentBatch, TextBatch, collate_texts
from zoo.data.common.arrays import Ragged, RaggedWriter, as_lists, chunks, token_type
from zoo.data.common.cache import appearing_when_complete, is_intact
from zoo.data.common.loaders import BatchStream
from zoo.text import UNK, Tokenizer
from zoo.text.sentences import split_sentences

_CHUNK = 1024  # examples tokenised together

log = logging.getLogger(__name__)


class Example(NamedTuple):
    """A text with its labels.

    Attributes:
        text: as in the corpus.
        text2: the second text of a pair; None if there are no pairs.
        labels: names of its labels: exactly one, or any number for multi-label data; none if it has probabilities.
        score: an additional number, if it has one.
        probabilities: of each label, in the order of the data's labels; empty if its labels are known.
    """

    text: str
    text2: str | None
    labels: tuple[str, ...]
    score: float | None = None
    probabilities: tuple[float, ...] = ()


def quoted(names: Iterable[str]) -> str:
    """At most twenty quoted names, for a message."""
    listed = list(map(repr, names))
    return ", ".join(listed[:20] + ["..."] * (len(listed) > 20))


class Encoding(NamedTuple):
    """How examples are turned into ids.

    Attributes:
        tokenizer: gives the word ids.
        label_ids: id of each label name.
        structure: "document" keeps the sentences separate, "text" does not.
        pair: examples have two texts.
        multi_label: a text may have any number of labels.
        max_words: texts are cut after this many words.
        max_sentences: documents are cut after this many sentences.
        scored: keep the scores of the examples; for texts only.
        soft: some examples have probabilities instead of labels.
        model: the model whose labels these are, for messages; None if they are those of the training text.
    """

    tokenizer: Tokenizer
    label_ids: Mapping[str, int]
    structure: Literal["document", "text"] = "text"
    pair: bool = False
    multi_label: bool = False
    max_words: int | None = None
    max_sentences: int | None = None
    scored: bool = False
    soft: bool = False
    model: str | None = None

    def words(self, text: str) -> list[int]:
        """Word ids of a text."""
        return self.tokenizer.encode(text)[: self.max_words]

    def sentences(self, text: str) -> tuple[list[int], list[int]]:
        """Word ids of a document, and the number of words in each of its sentences, at least 1."""
        sentences = [ids for ids in self.tokenizer.encode_batch(split_sentences(self.tokenizer.clean(text))) if ids][
            : self.max_sentences
        ]
        words = [i for ids in sentences for i in ids][: self.max_words]
        ends = [min(end, len(words)) for end in accumulate(map(len, sentences))]
        lengths = [end - start for start, end in zip([0, *ends], ends)]
        return words, [length for length in lengths if length]

    def labels(self, names: Sequence[str], source: str) -> list[int]:
        """Label ids of an example of the text `source`, in ascending order."""
        unknown = next((name for name in names if name not in self.label_ids), None)
        if unknown is not None:
            where = f"unknown to {self.model}" if self.model else "not in the training text"
            raise ValueError(f"{source}: label {unknown!r} is {where}, which has {quoted(self.label_ids)}")
        if not self.multi_label and len(names) != 1:
            raise ValueError(f"{source}: expected exactly one label for each text; got {list(names)}")
        return sorted({self.label_ids[name] for name in names})

    def probabilities(self, example: Example, source: str) -> list[float]:
        """Of each label; 0 and 1 if the labels are known."""
        if example.probabilities:
            return list(example.probabilities)
        known = set(self.labels(example.labels, source))
        return [float(i in known) for i in self.label_ids.values()]


class LabeledArrays:
    """Tokenised examples, read from the folder that `build` wrote.

    Attributes:
        empty: number of examples left out because they have no words.
        tokens: number of words of all texts.
        texts: number of texts, two for each pair.
    """

    special = 0  # no tokens are added to a text

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        meta = json.loads((folder / "meta.json").read_text())
        self._size: int = meta["examples"]
        self.empty: int = meta["empty"]
        self.tokens: int = meta["tokens"]
        self._classes: int | None = meta["classes"]  # None: exactly one label each
        self._parts = {name: Ragged(folder, name, dtype) for name, dtype in meta["parts"].items()}
        self._texts = [self._parts[name] for name in ("words", "words2") if name in self._parts]
        self.texts = len(self._texts) * self._size
        self.noun = "documents" if "sentences" in self._parts else "texts"

    def __reduce__(self) -> tuple:
        return LabeledArrays, (self.folder,)  # a worker process maps the files itself

    def __len__(self) -> int:
        return self._size

    def lengths(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Word counts of first and second text of the examples `index`, (N,) int32; twice the same for single texts."""
        lengths = [part.lengths(index) for part in self._texts]
        return lengths[0], lengths[-1]

    def rows(self, index: np.ndarray) -> tuple[list[np.ndarray], ...]:
        """Word counts of each text of the examples `index`."""
        return tuple(part.rows(index) for part in self._texts)

    def sentences(self, index: np.ndarray) -> list[list[np.ndarray]]:
        """Word counts of each sentence of the examples `index`; a text that is not a document is one sentence."""
        if "sentences" not in self._parts:
            return [list(texts) for texts in zip(*self.rows(index), strict=True)]
        documents = zip(self.rows(index)[0], self._parts["sentences"].rows(index), strict=True)
        return [np.split(words, np.cumsum(lengths[:-1])) for words, lengths in documents]

    def unknown(self) -> int:
        """Number of words that are UNK."""
        return sum(text.count(UNK) for text in self._texts)

    def batch(self, index: np.ndarray, part: "Part | None" = None) -> TextBatch | DocumentBatch:
        """The examples `index` as one batch, or a part of each."""
        words, labels = self.rows(index), self._labels(index)
        if "sentences" not in self._parts:
            if part is not None:
                words = tuple(list(map(part.words, rows, index.tolist())) for rows in words)
            first, second = as_lists(words[0]), as_lists(words[1]) if len(words) > 1 else None
            return collate_texts(first, labels, second, self._scores(index))
        documents, lengths = words[0], self._parts["sentences"].rows(index)
        if part is not None:
            documents, lengths = map(list, zip(*map(part.sentences, documents, lengths, index.tolist()), strict=True))
        return DocumentBatch(_joined(documents), _joined(lengths), torch.tensor(list(map(len, lengths))), labels)

    def release(self) -> None:
        """Releases the pages read so far, which would otherwise count as this process's memory."""
        for part in self._parts.values():
            part.release()

    def _labels(self, index: np.ndarray) -> Tensor:
        if "probabilities" in self._parts:
            return torch.from_numpy(np.stack(self._parts["probabilities"].rows(index)))
        rows = self._parts["labels"].rows(index)
        if self._classes is None:
            return _joined(rows)
        labels = torch.zeros(len(rows), self._classes)
        for row, ids in zip(labels, rows, strict=True):
            row[ids.astype(np.int64)] = 1
        return labels

    def _scores(self, index: np.ndarray) -> Tensor | None:
        return torch.from_numpy(np.concatenate(self._parts["scores"].rows(index))) if "scores" in self._parts else None

    @staticmethod
    def build(folder: Path, examples: Iterable[Example], encoding: Encoding, source: str, keep_empty: bool) -> None:
        """Tokenises `examples` into `folder`, which appears only when it is complete.

        Args:
            folder: target; nothing is done if it already exists and is intact.
            examples: read once and never held in memory together.
            encoding: how they are turned into ids.
            source: name of the text in messages.
            keep_empty: keep examples with a text without words, which are otherwise left out and counted.

        Raises:
            ValueError: a label is unknown, or there is no example with words.
        """
        if is_intact(folder):
            return
        with appearing_when_complete(folder) as temporary:
            _write(temporary, examples, encoding, source, keep_empty)


class Part(NamedTuple):
    """A random part of each text, another one in each epoch; short texts stay whole.

    Attributes:
        limit: words of a part.
        seed, epoch: these and the number of the text select the part.
    """

    limit: int
    seed: int
    epoch: int

    def words(self, words: np.ndarray, number: int) -> np.ndarray:
        """Consecutive words of a text (P,)."""
        if len(words) <= self.limit:
            return words
        first = self._random(number).integers(len(words) - self.limit + 1)
        return words[first : first + self.limit]

    def sentences(self, words: np.ndarray, lengths: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Some sentences of a document (P,), (N,), in their order; the one drawn last is cut at the limit."""
        if len(words) <= self.limit:
            return words, lengths
        lengths = lengths.astype(np.int64)
        order = self._random(number).permutation(len(lengths))
        total = np.cumsum(lengths[order])
        drawn = order[: np.searchsorted(total, self.limit) + 1]
        kept = np.zeros_like(lengths)
        kept[drawn] = lengths[drawn]
        kept[drawn[-1]] -= total[len(drawn) - 1] - self.limit
        starts = np.cumsum(lengths) - lengths
        return np.concatenate([words[i : i + n] for i, n in zip(starts, kept, strict=True)]), kept[kept > 0]

    def _random(self, number: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.epoch, number))


class LabeledStream(BatchStream[LabeledArrays]):
    """Training batches of texts, of which long ones show another part in each epoch.

    Args:
        arrays: the texts.
        sample_words: words of a part; None: whole texts.
        options: see `BatchStream`.
    """

    def __init__(self, arrays: LabeledArrays, sample_words: int | None, *options: Any) -> None:
        super().__init__(arrays, *options)
        self._sample_words = sample_words

    def _batch(self, index: np.ndarray, epoch: int) -> TextBatch | DocumentBatch:
        part = Part(self._sample_words, self._seed, epoch) if self._sample_words else None
        return self.arrays.batch(index, part)


def _joined(rows: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(rows).astype(np.int64))


def _write(folder: Path, examples: Iterable[Example], encoding: Encoding, source: str, keep_empty: bool) -> None:
    words = token_type(encoding.tokenizer)
    parts = {"words": words, **({"probabilities": "float32"} if encoding.soft else {"labels": "uint32"})}
    if encoding.structure == "document":
        parts["sentences"] = "uint32"
    if encoding.pair:
        parts["words2"] = words
    if encoding.scored:
        parts["scores"] = "float32"
    writers = {name: RaggedWriter(folder, name, dtype) for name, dtype in parts.items()}
    size = empty = 0
    try:
        for chunk in chunks(examples, _CHUNK):
            rows = [_encode(example, encoding, source) for example in chunk]
            if not keep_empty:
                rows = [row for row in rows if row["words"] and row.get("words2", True)]
                empty += len(chunk) - len(rows)
            size += len(rows)
            for name, writer in writers.items():
                writer.write([row[name] for row in rows])
    finally:
        for writer in writers.values():
            writer.close()
    if not size:
        raise ValueError(f"{source}: it has no text{'' if keep_empty else ' with words'}")
    tokens = sum(writer.end for name, writer in writers.items() if name.startswith("words"))
    classes = len(encoding.label_ids) if encoding.multi_label else None
    meta = {"examples": size, "empty": empty, "tokens": tokens, "classes": classes, "parts": parts}
    (folder / "meta.json").write_text(json.dumps(meta))


def _encode(example: Example, encoding: Encoding, source: str) -> dict[str, list[int] | list[float]]:
    """The row of each part for one example."""
    row: dict[str, list[int] | list[float]] = {}
    if encoding.soft:
        row["probabilities"] = encoding.probabilities(example, source)
    else:
        row["labels"] = encoding.labels(example.labels, source)
    if encoding.structure == "document":
        row["words"], row["sentences"] = encoding.sentences(example.text)
    else:
        row["words"] = encoding.words(example.text)
    if encoding.pair:
        if example.text2 is None:
            raise ValueError(f"{source}: expected pairs of texts; got a text without a second one")
        row["words2"] = encoding.words(example.text2)
    if encoding.scored:
        row["scores"] = [math.nan if example.score is None else example.score]
    return row
