"""The upstream files as they are published, given to the public verbs: each test example becomes the numbers its card
was measured on.

What is compared is what the network reads, example by example, so that the score of the raw text is that of the card.
"""

import gzip
import json
import lzma
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

import zoo
import zoo.data
from zoo import registry
from zoo.batches.reading import ClozeBatch, collate_questions
from zoo.data.translation.dates import Dates
from zoo.text.words import word_id

RECIPES = Path(__file__).parent.parent / "recipes"
NAMES = registry.list_models()


def rows_of(root, name):
    """The rows of a published table, read without any help of the data modules."""
    with lzma.open(root / f"{name}.xz", "rt", encoding="utf-8", newline="\n") as file:
        if name.endswith(".jsonl"):
            return [json.loads(line) for line in file]
        header, *lines = file.read().removesuffix("\n").split("\n")
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def lines_of(path):
    with (lzma.open if path.suffix == ".xz" else gzip.open)(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def same_texts(model, data, texts):
    assert len(data._test) == len(texts)
    for n, text in enumerate(texts):
        ids, _ = model.encode(text)
        found, wanted = model.collate([ids]), data._test.batch(np.array([n]))
        for name in ("tokens", "lengths", "tokens2", "lengths2", "words", "sentence_lengths", "document_lengths"):
            a, b = getattr(found, name, None), getattr(wanted, name, None)
            assert (a is None and b is None) or torch.equal(a, b), f"{name} of text {n + 1}: {text!r:.200}"


def imdb(model, data, root):
    same_texts(model, data, [row["text"] for row in rows_of(root / "text", "imdb_test.tsv")])


def reuters(model, data, root):
    topics = {"train": set(), "test": set()}
    rows = rows_of(root / "text", "reuters_modapte.jsonl")
    for row in rows:
        topics[row["split"]].update(row["topics"])
    tested = [row for row in rows if row["split"] == "test" and topics["train"] & topics["test"] & {*row["topics"]}]
    same_texts(model, data, [f"{row['title']}\n\n{row['text']}" for row in tested])


def sst2(model, data, root):
    same_texts(model, data, [row["text"] for row in rows_of(root / "text", "sst2.tsv") if row["split"] == "test"])


def trec6(model, data, root):
    same_texts(model, data, [row["text"] for row in rows_of(root / "text", "trec6.tsv") if row["split"] == "test"])


def sick(model, data, root):
    rows = [row for row in rows_of(root / "text", "sick.tsv") if row["split"] == "test"]
    same_texts(model, data, [(row["sentence1"], row["sentence2"]) for row in rows])


def cloze(model, data, root):
    lines = lines_of(root / "text" / "cbt_books_test.txt.xz")
    rows = rows_of(root / "text", f"cbtlike_{data.kind}_test.tsv")
    assert len(data._test) == len(rows)
    for n, row in enumerate(rows):
        start, place = int(row["start"]), int(row["pos"])
        query = lines[start + 20].split(" ")
        query[place] = "XXXXX"
        question = model.read_question(
            "\n".join(lines[start : start + 20]), " ".join(query), row["candidates"].split("|")
        )
        numbers = {}
        texts = [[np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)] for words in question]
        found = collate_questions(
            *texts, None, np.array([word_id(word, model.tokenizer) for word in numbers], np.int64)
        )
        wanted = data._test.batch(np.array([n]))
        for name in ClozeBatch._fields[:-1]:
            assert torch.equal(getattr(found, name), getattr(wanted, name)), f"{name} of question {n + 1}: {row}"


def translation(model, data, root):
    for (pairs, tokens), texts in zip(data._test, sources(data, root), strict=True):
        assert len(pairs) == len(tokens) == len(texts)
        for (src, _), text in zip(tokens, texts, strict=True):
            assert model.src_tokenizer.encode(text) == list(src), text


def sources(data, root):
    if isinstance(data, Dates):
        return [[text for text, _ in pairs] for pairs in data.test_sets()]
    if isinstance(data, zoo.data.Tatoeba):
        return [list(data.references("test"))]
    return [lines_of(root / "nmt" / "multi30k" / f"{name}.{data.src_lang}.gz") for name in data.test_names]


def ptb(model, data, root):
    text = "\n".join(lines_of(root / "text" / "ptb.test.txt.xz"))
    assert model._encode(text) == data._test.ids.tolist()


def captions(model, data, root):
    records = list(data.records("test"))
    images = data._arrays("test")
    for n in range(0, len(records), 10):
        with data.images("test").open(records[n].image) as file:
            pixels, _ = model._seen(file.read())
        assert (pixels == images.batch(np.array([n])).images[0].numpy()).all(), records[n].image


READERS = {
    "IMDB": imdb,
    "Reuters": reuters,
    "SST": sst2,
    "TREC6": trec6,
    "SICK": sick,
    "CBTLike": cloze,
    "PTB": ptb,
    "Flickr8k": captions,
    "Multi30k": translation,
    "Tatoeba": translation,
    "Dates": translation,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_verb_reads_what_the_card_was_measured_on(name, tmp_path, monkeypatch):
    settings = yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))["data"]
    kind = settings["class_path"].rpartition(".")[2]
    if kind != "Dates" and "ZOO_TEST_DATA" not in os.environ:
        pytest.skip("needs the test data of the recipe: set ZOO_TEST_DATA to the folder that holds it")
    root = Path(os.environ.get("ZOO_TEST_DATA", ""))
    monkeypatch.setenv("ZOO_DATA", str(root) if kind != "Dates" else "")
    model = zoo.load(name)
    options = {"cache_features": False} if kind == "Flickr8k" else {}
    data = getattr(zoo.data, kind)(**{**settings.get("init_args", {}), "cache_dir": str(tmp_path), **options})
    data.trainer = SimpleNamespace(
        state=SimpleNamespace(fn="test"), lightning_module=model, global_rank=0, world_size=1
    )
    data.prepare_data()
    data.setup("test")
    READERS[kind](model, data, root)
