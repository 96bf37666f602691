"""A cache that holds the text of other options: each option gives what it gives with an empty cache."""

import json
import random

import numpy as np
import pytest
import torch
from captions_fakes import invent, sample

from zoo.data import ImageCaptions, LabeledText, ParallelText, PlainText
from zoo.data.classification.arrays import LabeledArrays
from zoo.data.reading.own import Cloze

WORDS = [f"{first}{second}" for first in "bdfgkl" for second in ("a", "e", "I", "o")]


def sentence(rng):
    return " ".join(rng.choices(WORDS, [n % 7 + 0.2 for n in range(len(WORDS))], k=rng.randint(2, 9)))


def pairs(folder):
    rng = random.Random(0)
    lines = [f"{sentence(rng)}\t{sentence(rng)}." for _ in range(30)]
    (folder / "train.tsv").write_text("\n".join(lines))
    (folder / "val.tsv").write_text("\n".join(lines[:5]))
    return ParallelText, {"train_src": str(folder / "train.tsv"), "val_src": str(folder / "val.tsv")}


def texts(folder):
    rng = random.Random(0)
    rows = [f"{sentence(rng)}. {sentence(rng)}!\t{n % 2}\t{n % 3}" for n in range(30)]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel\tother", *rows]))
    return LabeledText, {"train": str(folder / "train.tsv"), "val_fraction": 0.2}


def running(folder):
    rng = random.Random(0)
    (folder / "train.txt").write_text("\n".join(sentence(rng) for _ in range(30)))
    return PlainText, {"train": str(folder / "train.txt"), "batch_size": 2, "val_streams": 1}


def questions(folder):
    rng, rows = random.Random(0), []
    for _ in range(30):
        document = sentence(rng).split()
        query = " ".join(["XXXXX", *document[1:3], "BLANK"])
        rows.append({"document": " ".join(document), "query": query, "answer": document[0], "candidates": document[:2]})
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return Cloze, {"train": str(folder / "train.jsonl"), "val_fraction": 0.2}


def captions(folder):
    files = {"folder": "images", "captions": "captions.tsv"}
    invent(ImageCaptions, files, folder, sample((8, 2, 2), captions=2))
    return ImageCaptions, {**files, "root": str(folder), "size": 8, "min_frequency": 1}


OPTIONS = [
    *((pairs, {"tokenizer": kind}) for kind in ("word", "char")),
    (pairs, {"vocab_size": 30}),
    (pairs, {"shared_vocab": False}),
    (pairs, {"lowercase": True}),
    (pairs, {"max_length": 8}),
    (pairs, {"train_size": 20}),
    (texts, {"vocab_size": 12}),
    (texts, {"lowercase": False}),
    (texts, {"min_frequency": 9}),
    (texts, {"max_words": 5}),
    (texts, {"split_sentences": True}),
    (texts, {"split_sentences": True, "max_sentences": 1}),
    (texts, {"label_column": "other"}),
    (texts, {"val_fraction": 0.4}),
    (texts, {"split_seed": 1}),
    *((running, {"tokenizer": kind}) for kind in ("word", "bpe")),
    (running, {"vocab_size": 12}),
    (running, {"lowercase": True}),
    (running, {"min_frequency": 9}),
    (running, {"val_fraction": 0.4}),
    (questions, {"vocab_size": 12}),
    (questions, {"lowercase": True}),
    (questions, {"min_frequency": 9}),
    (questions, {"candidates_column": None}),
    (questions, {"val_fraction": 0.4}),
    (questions, {"split_seed": 1}),
    (questions, {"blank": "BLANK"}),
    (captions, {"keep_punctuation": True}),
    (captions, {"vocab_size": 12}),
    (captions, {"min_frequency": 3}),
    (captions, {"max_words": 3}),
]


def contents(cls, cache, **options):
    """The vocabularies and all batches."""
    data = cls(**options, cache_dir=str(cache))
    data.prepare_data()
    data.setup("fit")
    names = "tokenizer", "src_tokenizer", "tgt_tokenizer"
    vocabularies = [tokenizer.to_json() for name in names if (tokenizer := getattr(data, name, None))]
    return vocabularies, [
        plain(batch) for loader in (data.train_dataloader(), data.val_dataloader()) for batch in loader
    ]


def plain(batch):
    return [x.tolist() if isinstance(x, torch.Tensor) else x for x in batch]


@pytest.mark.parametrize("make, options", OPTIONS, ids=lambda x: getattr(x, "__name__", None) or str(x))
def test_what_is_cached_for_other_options_is_not_taken(make, options, tmp_path):
    cls, given = make(tmp_path)
    without = {"split_sentences": True} if len(options) > 1 else {}
    before = contents(cls, tmp_path / "used", **given, **without)
    wanted = contents(cls, tmp_path / "new", **{**given, **options})
    assert before != wanted, "this option changes nothing"
    assert contents(cls, tmp_path / "used", **{**given, **options}) == wanted


def test_texts_cached_for_labels_in_another_order_are_not_taken(tmp_path):
    """The order is that of a pretrained model, if it has labels."""
    cls, given = texts(tmp_path)
    data, found = cls(**given, cache_dir=str(tmp_path / "cache")), []
    data.prepare_data()
    data.setup("fit")
    for labels in (["0", "1"], ["1", "0"]):
        arrays = LabeledArrays(data._build("train", data.tokenizer, labels))
        found.append(arrays.batch(np.arange(len(arrays))).labels)
    assert torch.equal(found[0], 1 - found[1]) and len(found[0].unique()) == 2
