"""A pretrained sentence encoder that learns the labels of a data set, and labels other texts."""

import json
import math
import random
from contextlib import nullcontext
from pathlib import Path

import bert_package
import labeled_fakes
import pytest
import torch
import yaml
from fakes import Cut
from rebuild_cases import in_process, rebuild

from zoo.data import SICK
from zoo.rebuilding import encoder as encoders
from zoo.rebuilding.encoder import batches, fine_tune, is_encoder, load_encoder, pretrained
from zoo.rebuilding.labelling import label_file
from zoo.utils import extras

MODEL = {
    "class_path": "zoo.models.structured_self_attention.StructuredSelfAttention",
    "init_args": {"vocab_size": 30, "num_classes": 6},
}
TEXTS = {"A": ["aaa b", "a ab", "aab a", "baa a", "aa"], "B": ["ppp o", "p po", "ppo p", "opp p", "pp"]}


@pytest.fixture
def tensors(tmp_path, monkeypatch):
    return bert_package.install(tmp_path / "packages", monkeypatch)


@pytest.fixture
def recipe(tmp_path):
    """A recipe for questions of two kinds that differ in their letters."""
    rows = [["train", "0" if name == "A" else "1", text] for name in TEXTS for text in TEXTS[name]]
    labeled_fakes.table(tmp_path / "data/trec6.tsv", ["split", "label", "text"], rows + [["test", 0, "a b a"]])
    data = {"class_path": "zoo.data.TREC6", "init_args": {"val_fraction": 0.3}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"model": MODEL, "data": data}))
    return {"recipe": str(tmp_path / "own.yaml"), "root": str(tmp_path / "data")}


@pytest.fixture
def pairs(tmp_path):
    """The same for pairs with scores, whose second text is of one kind or the other."""
    texts = [text for name in TEXTS for text in TEXTS[name]]
    rows = [
        [split, "entailment" if second in TEXTS["A"] else "neutral", 5 if second in TEXTS["A"] else 1, first, second]
        for split, second_texts in (("train", texts), ("dev", texts[:2]), ("test", texts[:1]))
        for first in texts
        for second in second_texts
    ]
    labeled_fakes.table(
        tmp_path / "data/sick.tsv", ["split", "gold_label", "relatedness", "sentence1", "sentence2"], rows
    )
    data = {"class_path": "zoo.data.SICK", "init_args": {}}
    (tmp_path / "pairs.yaml").write_text(yaml.safe_dump({"model": MODEL, "data": data}))
    return {"recipe": str(tmp_path / "pairs.yaml"), "root": str(tmp_path / "data")}


def naive_states(tensors, ids, of_text):
    """BERT's equations for one text or pair, each position and head by itself, in float64."""
    get = lambda name: tensors[name].double()  # noqa: E731
    size, heads = bert_package.SIZES["hidden_size"], bert_package.SIZES["num_attention_heads"]

    def linear(name, x):
        return get(f"{name}.weight") @ x + get(f"{name}.bias")

    def norm(name, x):
        shifted = x - x.mean()
        return shifted / (shifted.square().mean() + 1e-12).sqrt() * get(f"{name}.weight") + get(f"{name}.bias")

    def embedded(position, word, kind):
        words, positions, kinds = (
            get(f"embeddings.{kind}_embeddings.weight") for kind in ("word", "position", "token_type")
        )
        return norm("embeddings.LayerNorm", words[word] + positions[position] + kinds[kind])

    states = [embedded(i, *one) for i, one in enumerate(zip(ids, of_text, strict=True))]
    for i in range(bert_package.SIZES["num_hidden_layers"]):
        layer, new = f"encoder.layer.{i}", []
        for state in states:
            parts = []
            for head in range(heads):
                own = slice(head * size // heads, (head + 1) * size // heads)
                query = linear(f"{layer}.attention.self.query", state)[own]
                keys, values = (
                    [linear(f"{layer}.attention.self.{kind}", other)[own] for other in states]
                    for kind in ("key", "value")
                )
                scores = [math.exp(query @ key / math.sqrt(len(key))) for key in keys]
                parts.append(sum(score / sum(scores) * value for score, value in zip(scores, values)))
            attended = norm(
                f"{layer}.attention.output.LayerNorm",
                state + linear(f"{layer}.attention.output.dense", torch.cat(parts)),
            )
            inner = torch.nn.functional.gelu(linear(f"{layer}.intermediate.dense", attended))
            new.append(norm(f"{layer}.output.LayerNorm", attended + linear(f"{layer}.output.dense", inner)))
        states = new
    return torch.stack(states)


def test_the_states_are_those_of_the_equations_also_beside_a_longer_text(tensors):
    encoder = pretrained(["x", "y"]).double().eval()
    encoded = encoder.tokenizer.encode_batch(["Abba c", ("abc efg", "hhhhh"), ("a", "b")])
    ids, mask, kinds = (
        torch.tensor([getattr(one, name) for one in encoded]) for name in ("ids", "attention_mask", "type_ids")
    )
    assert kinds[1].sum() == 6, "the second text and its end"
    found = encoder.states(ids, mask.bool(), kinds)
    for row, real, kind, of_text in zip(ids, mask.bool(), kinds, found):
        torch.testing.assert_close(of_text[real], naive_states(tensors, row[real].tolist(), kind[real].tolist()))


def test_it_learns_the_labels_and_is_the_same_when_it_is_read_again(tensors, recipe, tmp_path, capsys):
    fine_tune(str(tmp_path / "out"), **recipe, epochs=60, lr=3e-3, batch_size=2)
    assert capsys.readouterr().out.splitlines()[-1] == "encoder: epoch 60 of 60, validation accuracy 100.00"
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]
    encoder = load_encoder(tmp_path / "out")
    (a, *_), (_, b, *_) = encoder.answers(["a aba", "p pop"])
    assert a > 0.8 and b > 0.8 and encoder.labels[:2] == ["DESC", "ENTY"]
    assert is_encoder(tmp_path / "out") and not is_encoder(tmp_path)


def test_it_reads_the_first_word_pieces_only(tensors, recipe, tmp_path):
    fine_tune(str(tmp_path / "out"), **recipe, epochs=1, longest=6)
    short, same, other = load_encoder(tmp_path / "out").answers(["a b c d", "a b c d e f", "a b c p"])
    assert short == pytest.approx(same, abs=1e-6) and short != pytest.approx(other, abs=1e-6)
    with pytest.raises(ValueError, match=r"longest must be 3 to 128 word pieces for the encoder of gt_.*; got 129"):
        fine_tune(str(tmp_path / "long"), **recipe, longest=129)


def test_a_text_has_the_same_probabilities_beside_others(tensors, monkeypatch):
    monkeypatch.setattr(encoders, "in_precision", lambda *given: nullcontext())
    encoder = pretrained(["x", "y", "z"]).double()
    texts = ["a b c", "p", "aaaa bbbb cccc d", "o n"]
    together = encoder.answers(texts, batch=3)
    for text, of_text in zip(texts, together):
        assert encoder.answers([text])[0] == pytest.approx(of_text, abs=1e-9)
        assert sum(of_text) == pytest.approx(1)


def test_a_stopped_training_resumes_to_the_same_encoder(tensors, recipe, tmp_path, monkeypatch):
    options = dict(**recipe, epochs=3, lr=1e-3, batch_size=4)
    fine_tune(str(tmp_path / "whole"), **options)
    measure, calls = encoders._accuracy, []

    def cut(*given):
        calls.append(given)
        if len(calls) == 2:
            raise Cut
        return measure(*given)

    monkeypatch.setattr(encoders, "_accuracy", cut)
    with pytest.raises(Cut):
        fine_tune(str(tmp_path / "cut"), **options)
    fine_tune(str(tmp_path / "cut"), **options)
    assert len(calls) == 4, "the first epoch was not repeated"
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_batches_have_each_text_once_and_similar_lengths():
    examples = [("a" * (1 + i % 50), i, 0.0) for i in range(205)]
    found = list(batches(examples, 10, random.Random(1)))
    assert sorted(one for batch in found for one in batch) == sorted(examples)
    spread = [max(len(text) for text, *_ in batch) - min(len(text) for text, *_ in batch) for batch in found]
    assert sum(spread) / len(spread) < 10 and found != list(batches(examples, 10, random.Random(2)))


def test_it_labels_lines(tensors, recipe, tmp_path):
    fine_tune(str(tmp_path / "out"), **recipe, epochs=1)
    (tmp_path / "lines").write_text("a b\np o\n")
    label_file(str(tmp_path / "lines"), str(tmp_path / "table"), [f"local-dir:{tmp_path / 'out'}"])
    header, *rows = (tmp_path / "table").read_text().splitlines()
    assert header.split("\t") == ["text", "DESC", "ENTY", "ABBR", "HUM", "LOC", "NUM"]
    probabilities = load_encoder(tmp_path / "out").answers(["a b", "p o"])
    for row, text, expected in zip(rows, ["a b", "p o"], probabilities, strict=True):
        first, *values = row.split("\t")
        assert first == text and [float(value) for value in values] == pytest.approx(expected, abs=1e-4)


def test_a_stage_of_a_rebuild(tensors, recipe, tmp_path, monkeypatch, capsys):
    found = yaml.safe_load((tmp_path / "own.yaml").read_text())
    found["stages"] = [
        {"prepare": "echo a b > lines", "to": "lines"},
        {"encoder": {"epochs": 1, "seed": 2}, "to": "teacher"},
        {"classify": "lines", "by": "teacher", "to": "labelled.tsv"},
        {"settings": {"data.extra_examples": ["{labelled.tsv}"]}},
    ]
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(found))
    monkeypatch.chdir(tmp_path)
    ran = in_process(monkeypatch, lambda module, arguments: arguments if module != "zoo" else ["--version"])
    rebuild("own.yaml", "--root", tmp_path / "data")
    assert "stage 2 of 4, teacher: fine-tune a sentence encoder\n" in capsys.readouterr().out
    assert (tmp_path / "runs/rebuild/own/labelled.tsv/labelled.tsv").read_text().startswith("text\tDESC")
    job = json.loads((tmp_path / "runs/rebuild/own/teacher/job.json").read_text())
    assert job["epochs"] == 1 and job["seed"] == 2
    made = json.loads((tmp_path / "runs/rebuild/own/teacher/stage.json").read_text())
    assert list(made["data"]) == ["trec6.tsv"], "the log would not tell what the teacher has learnt from"
    assert [name for name, *_ in ran if name.startswith("zoo.rebuilding.")][-2:] == [
        "zoo.rebuilding.encoder",
        "zoo.rebuilding.labelling",
    ]


def test_it_learns_pairs_and_their_scores(tensors, pairs, tmp_path):
    fine_tune(str(tmp_path / "out"), **pairs, epochs=8, lr=3e-3, batch_size=4)
    lines = [("aaa b", "aaa b"), ("a ab", "pp"), ("p po", "aab a"), ("p po", "pp")]
    (tmp_path / "lines").write_text("".join("\t".join(pair) + "\n" for pair in lines))
    label_file(str(tmp_path / "lines"), str(tmp_path / "table.tsv"), [f"local-dir:{tmp_path / 'out'}"])
    header, *rows = (tmp_path / "table.tsv").read_text().splitlines()
    assert header.split("\t") == ["text", "text2", "entailment", "neutral", "contradiction", "score"]
    scores = [float(row.split("\t")[-1]) for row in rows]
    assert min(scores[0], scores[2]) > max(scores[1], scores[3]) and all(1 <= score <= 5 for score in scores)
    data = SICK(root=pairs["root"], extra_examples=[str(tmp_path / "table.tsv")])
    read = [example for example in data.examples_of("train") if example.probabilities]
    assert [(example.text, example.text2) for example in read] == lines and [
        example.score for example in read
    ] == scores


def test_several_labels_are_refused(recipe):
    file = Path(recipe["recipe"])
    file.write_text(file.read_text().replace("TREC6", "Reuters"))
    with pytest.raises(ValueError, match="from texts with one label each; Reuters of "):
        fine_tune("out", **recipe)


def test_without_the_package_nothing_begins(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(extras.EXTRAS, "encoder", ("gt-absent>=0.1.0",))
    monkeypatch.chdir(tmp_path)
    file = Path(recipe["recipe"])
    stages = [{"to": "first"}, {"encoder": {}, "to": "teacher"}, {"to": "last"}]
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "stages": stages}))
    assert rebuild("own.yaml", "--root", recipe["root"]) == 2
    wanted = 'zoo: error: stage teacher needs gt-absent; install with: pip install --no-deps "gt-absent>=0.1.0"\n'
    assert capsys.readouterr().err == wanted
