"""Invented labelled examples that exist in memory only, and what data modules make of them."""

import random

import labeled_fakes

from zoo.batches.classification import DocumentBatch
from zoo.data.classification.arrays import Example
from zoo.data.classification.base import LabeledData
from zoo.text.sentences import encode_document

NAMES = ("red", "green", "blue")


class Invented(LabeledData):
    """Documents or pairs that exist in memory only; the first word of each is different."""

    def __init__(self, sizes=(203, 30, 40), structure="document", pair=False, multi_label=False, **options):
        super().__init__(**options)
        self.structure, self.pair, self.multi_label = structure, pair, multi_label
        self.sizes = dict(zip(("train", "val", "test"), sizes, strict=True))
        self.holds_out = not self.sizes["val"]

    def signature(self, split):
        return [split, self.sizes]

    def examples(self, split):
        rng = random.Random(split)
        for number in range(self.sizes[split]):
            label = NAMES[number % 3]
            text = f"n{number} {labeled_fakes.document(rng, label)}"
            second = f"m{number} {labeled_fakes.sentence(rng, label)}" if self.pair else None
            yield Example(text, second, (label, "red") if self.multi_label else (label,))


def ready(data, stages=("fit",)):
    data.prepare_data()
    for stage in stages:
        data.setup(stage)
    return data


def words_of(batch):
    """Word ids of each document or text, and of the second text if there is one."""
    if isinstance(batch, DocumentBatch):
        words, lengths = iter(batch.words.tolist()), iter(batch.sentence_lengths.tolist())
        return [
            [[next(words) for _ in range(next(lengths))] for _ in range(n)] for n in batch.document_lengths.tolist()
        ]
    rows = [row[:n] for row, n in zip(batch.tokens.tolist(), batch.lengths.tolist(), strict=True)]
    if batch.tokens2 is None:
        return rows
    seconds = [row[:n] for row, n in zip(batch.tokens2.tolist(), batch.lengths2.tolist(), strict=True)]
    return list(map(list, zip(rows, seconds, strict=True)))


def contents(loader):
    """Words and labels of each example, sorted."""
    return sorted(pair for batch in loader for pair in zip(words_of(batch), batch.labels.tolist(), strict=True))


def expected(data, split):
    def encode(text):
        return encode_document(text, data.tokenizer)[0] if data.structure == "document" else data.tokenizer.encode(text)

    contents = []
    for example in data.examples(split):
        words = [encode(example.text), encode(example.text2)] if data.pair else encode(example.text)
        ids = [data.labels.index(label) for label in example.labels]
        contents.append((words, [float(i in ids) for i in range(len(NAMES))] if data.multi_label else ids[0]))
    return sorted(contents)
