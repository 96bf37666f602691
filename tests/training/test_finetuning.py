"""Fine-tuning from tiny weights: other labels, more words, parts that are frozen for a while, as users do it and to the
bit.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import captions_fakes
import labeled_fakes
import numpy as np
import pytest
import torch
import yaml
from fakes import settings
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging

import zoo
from zoo.batches.translation import pad_batch
from zoo.cli import main
from zoo.data import LabeledText
from zoo.data.common.bpe_dropout import BpeDropout
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.han import HAN
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.tasks.optimizer import longest_prefix
from zoo.tasks.vocabulary import place_vectors
from zoo.text import EOS, UNK, Tokenizer
from zoo.training.checks import TRAINING
from zoo.training.finetuning import FineTuning

pytestmark = pytest.mark.integration

TEXTS = ["a dog runs in the snow", "a man sees the dog", "the snow is white , isn't it ?"]
RUN, STEPS = "runs/tiny", 8
RECIPES = Path(__file__).parents[2] / "recipes"


# ---- tokenizers ----


@pytest.mark.parametrize("kind", ["bpe", "word", "char", "word_punct"])
def test_more_words_change_nothing_else(kind):
    old = Tokenizer.train(TEXTS * 3, kind, 40)
    new_texts = ["a zebra zebra zebra", "quagga dog", "quagga"]
    lacking = old.lacking(new_texts, 9)
    assert lacking[:2] == (["b", "z"] if kind == "char" else ["zebra", "quagga"]) and "dog" not in lacking
    assert old.lacking(new_texts, 1) == lacking[:1]
    assert old.lacking(new_texts, 9, min_frequency=3) == (["b", "z"] if kind == "char" else ["zebra"])
    new = old.extended(lacking)
    assert len(new) == len(old) + len(lacking) and new.kind == kind
    assert new.encode_batch(TEXTS) == old.encode_batch(TEXTS)
    ids = new.encode("quagga" if kind != "char" else "q")
    assert len(ids) == 1 and ids[0] >= len(old) and new.decode(ids) in ("quagga", "q")
    assert new.lacking(new_texts, 9) == [] and new.extended(lacking) is new
    again = Tokenizer.from_json(new.to_json())
    assert again.encode_batch(new_texts) == new.encode_batch(new_texts) and again.to_json() == new.to_json()
    for word in ("two words", ""):
        with pytest.raises(
            ValueError, match=f"'{word}' is not one word to this tokenizer, which splits it into .*; give single words"
        ):
            old.extended([word])


def test_added_words_and_bpe_dropout():
    tokenizer = Tokenizer.train(TEXTS * 3, "bpe", 40).extended(["zebra", "ÿ"])
    rows = [np.array(tokenizer.encode("a zebra runs"))] * 200

    def seen(rate):
        return BpeDropout(tokenizer, rate)(rows, np.random.default_rng(0))

    (zebra,) = tokenizer.encode("zebra")
    assert seen(0.0) == [row.tolist() for row in rows]
    whole = sum(zebra in ids for ids in seen(0.5))
    assert 0 < whole < 200  # sometimes a word, sometimes its pieces
    assert BpeDropout(tokenizer, 0.9)(
        [np.array(tokenizer.encode("ÿ"))], np.random.default_rng(0)
    )  # a character without an entry


# ---- rows of a model ----


def _translator(**options):
    shared = options.get("shared_vocab", False)
    tokenizers = [Tokenizer.train(TEXTS, "char" if options.get("chars") else "bpe", 40)]
    tokenizers.append(tokenizers[0] if shared else Tokenizer.train([text.upper() for text in TEXTS], "bpe", 36))
    options.pop("chars", None)
    spare = options.pop("spare", 0)
    sizes = [len(tokenizer) + spare for tokenizer in tokenizers]
    model = LuongNMT(**{**LuongNMT.tiny, "src_vocab_size": sizes[0], "tgt_vocab_size": sizes[1], **options}).eval()
    model.src_tokenizer, model.tgt_tokenizer = tokenizers
    return model


@pytest.mark.parametrize(
    "options",
    [
        {"shared_vocab": True, "tie_output": True},
        {"tie_output": True},
        {},
        {"shared_vocab": True},
        {"chars": True},
        {"spare": 1},
    ],
    ids=str,
)
def test_a_translator_with_more_words(options, tmp_path):
    torch.manual_seed(1)
    model = _translator(**options)
    torch.nn.init.normal_(model.embeddings.output.bias)
    before, config = {name: t.clone() for name, t in model.state_dict().items()}, dict(model.config)
    src_known, tgt_known = len(model.src_tokenizer), len(model.tgt_tokenizer)
    batch = pad_batch(model.src_tokenizer.encode_batch(TEXTS), model.tgt_tokenizer.encode_batch(TEXTS))
    with torch.no_grad():
        logits = model(batch.src, batch.src_lengths, batch.tgt[:, :-1])[0]
    words = ["z", "q"] if options.get("chars") else ["doggo", "ÿ"]  # of known pieces, and of one that is not
    pieces_of_new = [ids if UNK not in ids else [] for ids in model.src_tokenizer.encode_batch(words)]
    assert [bool(pieces) for pieces in pieces_of_new] == ([False, False] if options.get("chars") else [True, False])
    model.extend_vocabulary(words, ["ZEBRA", "QUAGGA", "GNU"])

    shared = options.get("shared_vocab", False)
    added = (5, 5) if shared else (2, 3)
    spare = options.get("spare", 0)
    assert len(model.src_tokenizer) == src_known + added[0] and len(model.tgt_tokenizer) == tgt_known + added[1]
    assert model.config["src_vocab_size"] == src_known + max(spare, added[0])
    assert model.config == {**config, **{f"{s}_vocab_size": model.config[f"{s}_vocab_size"] for s in ("src", "tgt")}}
    embeddings = model.embeddings
    assert (embeddings.source is embeddings.tgt_table) == shared
    assert (embeddings.output.weight is embeddings.tgt_table.weight) == options.get("tie_output", False)
    known = {
        "src_table.weight": src_known,
        "tgt_table.weight": tgt_known,
        "output.weight": tgt_known,
        "output.bias": tgt_known,
    }
    for name, t in model.state_dict().items():
        rows = known.get(name.removeprefix("embeddings."))
        assert torch.equal(t[:rows], before[name][:rows]), name
    with torch.no_grad():
        again = model(batch.src, batch.src_lengths, batch.tgt[:, :-1])[0]
    torch.testing.assert_close(again[..., :tgt_known], logits[..., :tgt_known])
    bias = embeddings.output.bias
    assert (bias[tgt_known : tgt_known + added[1]] == bias[EOS + 1 : tgt_known].min()).all()
    new, old = embeddings.source.weight[src_known : src_known + added[0]], embeddings.source.weight[:src_known]
    for row, pieces in zip(new, pieces_of_new, strict=False):
        if pieces:  # a word of known pieces
            torch.testing.assert_close(row, old[pieces].mean(0))
        else:
            assert (
                (row - old[EOS + 1 :].mean(0)).abs() < 5 * old[EOS + 1 :].std(0)
            ).all() and row.std() > old.std() / 3

    assert model.embeddings.tgt_table.num_embeddings == embeddings.output.out_features == model.config["tgt_vocab_size"]
    loaded = LuongNMT.from_pretrained(model.save_pretrained(tmp_path / "more"))
    assert loaded.src_tokenizer.to_json() == model.src_tokenizer.to_json() and loaded.config == model.config
    assert all(torch.equal(t, loaded.state_dict()[name]) for name, t in model.state_dict().items())
    assert loaded.translate("zebra" if options.get("chars") else "doggo").source_tokens[0] == (
        "z" if options.get("chars") else "doggo"
    )
    with pytest.raises(ValueError, match="'two words' is not one word"):
        model.extend_vocabulary(["two words"])
    with pytest.raises(TypeError, match="the words must be a list of texts; got the text 'zebra'"):
        model.extend_vocabulary("zebra")
    with pytest.raises(ValueError, match="this model has no tokenizer yet"):
        LuongNMT(**LuongNMT.tiny).extend_vocabulary(["a"])


def _classifier(cls=HAN, labels=("negative", "positive"), **options):
    tokenizer = Tokenizer.train(
        [labeled_fakes.sentence(random.Random(n), n % 2) for n in range(40)], "word_punct", 30, lowercase=True
    )
    model = cls(**{**cls.tiny, "vocab_size": len(tokenizer), "num_classes": len(labels), **options}).eval()
    model.tokenizer, model.label_names = tokenizer, list(labels)
    return model


def _captioner(**options):
    tokenizer = Tokenizer.train(
        ["a red dog runs", "the white cat in the snow", "a man stands"], "word_punct", 30, lowercase=True
    )
    arguments = {
        **ShowAttendTell.tiny,
        "encoder_epoch": None,
        "image_size": 32,
        "layer": "blocks.2",
        "vocab_size": len(tokenizer) + 2,
    }
    model = ShowAttendTell(**{**arguments, **options}).eval()
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize("build", [_classifier, _captioner])
def test_classifiers_and_captioners_with_more_words(build, tmp_path):
    torch.manual_seed(1)
    model, twin = build(), build()
    twin.load_state_dict(model.state_dict())
    before, known = {name: t.clone() for name, t in model.state_dict().items()}, len(model.tokenizer)
    for one in (model, twin):
        one.extend_vocabulary(["zebra", "the", "quagga", "gnu"])
    assert len(model.tokenizer) == known + 3 == model.config["vocab_size"] == model.embedding.num_embeddings
    for name, t in model.state_dict().items():
        rows = known if name in ("embedding.weight", "output.weight", "output.bias") else len(t) if t.dim() else None
        assert torch.equal(t[:rows] if t.dim() else t, before[name][:rows] if t.dim() else before[name]), name
        assert torch.equal(t, twin.state_dict()[name])  # the same rows each time
    if build is _captioner:
        assert (
            torch.equal(model.output.weight[known], model.output.weight[EOS + 1 : known].mean(0))
            and model.output.out_features == known + 3
        )
        assert (model.output.bias[known:] == model.output.bias[EOS + 1 : known].min()).all()
    loaded = type(model).from_pretrained(model.save_pretrained(tmp_path / "more"))
    assert loaded.tokenizer.encode("a quagga") == model.tokenizer.encode("a quagga") and loaded.config == model.config


def test_vectors_of_another_space_are_mapped():
    generator = torch.Generator().manual_seed(0)
    table = torch.nn.Embedding(60, 5)
    true = torch.randn(60, 5, generator=generator)
    table.weight.data[:] = true
    table.weight.data[50:] = 0
    vectors = true @ torch.randn(5, 5, generator=generator)
    found = torch.ones(60, dtype=torch.bool)
    found[55] = found[20] = False
    vectors[~found] = 0
    place_vectors(table, 50, vectors, found)
    expected = true.clone()
    expected[55] = 0
    torch.testing.assert_close(table.weight.detach(), expected, rtol=0, atol=1e-4)
    assert torch.equal(table.weight[:50], true[:50])
    few = table.weight.clone()
    place_vectors(table, 50, vectors * 2, found & (torch.arange(60) > 42))  # seven known words for a map of 5 by 5
    assert torch.equal(table.weight, few)


def test_labels_in_python(caplog):
    model = _classifier()
    body = {name: t.clone() for name, t in model.state_dict().items() if not name.startswith("classifier")}
    model.replace_labels(["b", "a", "c"])
    assert (
        model.classifier.weight.shape == (3, 8)
        and model.config["num_classes"] == 3
        and model.label_names == ["b", "a", "c"]
    )
    assert (
        "re-initialised classifier for the labels 'b', 'a', 'c' (the weights have 'negative', 'positive')"
        in caplog.text
    )
    assert all(torch.equal(t, model.state_dict()[name]) for name, t in body.items())
    assert list(model.classify("a film").probabilities) == ["b", "a", "c"]
    with pytest.raises(ValueError, match="a classifier needs at least two labels; got only 'a'"):
        model.replace_labels(["a"])
    for names, says in (
        (["x", "x"], "names has a label twice: 'x'"),
        ([1, 2], "names must be a list of texts without control characters, such as line ends and tabs; it has 1"),
        (["a\nb", "c"], r"names must be .*; it has 'a\\nb'"),
    ):
        with pytest.raises(ValueError, match=f"^{says}$"):
            model.replace_labels(names)
    with pytest.raises(TypeError, match="the labels must be a list of texts; got the text 'abc'"):
        model.replace_labels("abc")
    assert model.label_names == ["b", "a", "c"]
    model.replace_labels(["a"], multi_label=True)
    assert model.config["multi_label"] and model.classify("a film").labels in ([], ["a"])


# ---- whole trainings ----


@pytest.mark.parametrize(
    "recipe, options, message",
    [
        (
            "finetune_classification",
            ["--data.train", "t.tsv", "--model.name", "luong_dot.dates"],
            "LabeledText is data for classification; LuongNMT is a model for translation",
        ),
        (
            "finetune_translation",
            ["--data.train_src", "t.tsv", "--data.tgt_lang", "de", "--model.name", "han.imdb"],
            "ParallelText is data for translation; HAN is a model for classification",
        ),
        (
            "luong_dot.dates",
            ["--weights", "han.imdb", "--data.train_size", "60", "--data.val_size", "9", "--data.test_size", "9"],
            "Dates is data for translation; HAN is a model for classification",
        ),
    ],
)
def test_a_weight_for_another_task(folder, capsys, recipe, options, message):
    (folder / "t.tsv").write_text("text\tlabel\n" + "".join(f"good {n}\tyes\nbad {n}\tno\n" for n in range(30)))
    assert (
        main(
            [
                "test" if "--weights" in options else "fit",
                "--config",
                str(RECIPES / f"{recipe}.yaml"),
                *options,
                "--trainer.accelerator",
                "cpu",
            ]
        )
        == 2
    )
    assert message in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ZOO_DATA", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _recipe(name, data, data_options, callbacks=(), trainer=None, path="tiny.yaml", lr=0.01, dropout=0.2, **steps):
    quiet = {
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    saving = {"filename": "best", "save_last": True, "every_n_train_steps": 2, "monitor": None}
    saving = {
        "class_path": "zoo.training.checkpoints.ExactCheckpoints",
        "init_args": {**saving, "enable_version_counter": False},
    }
    parts = {
        "seed_everything": 1,
        "trainer": {
            **quiet,
            "log_every_n_steps": 1,
            "max_steps": STEPS,
            **(trainer or {}),
            "callbacks": [*callbacks, saving],
        },
        "model": {"class_path": "zoo.load", "init_args": {"name": name, "overrides": {"dropout": dropout}}},
        **settings(lr=lr, warmup_steps=2, **steps),
        "data": {"class_path": f"zoo.data.{data}", "init_args": data_options},
    }
    with open(path, "w") as file:
        yaml.safe_dump(parts, file)


def _fit(*args):
    return main(["fit", "--config", "tiny.yaml", *args])


def _checkpoint(path=f"{RUN}/checkpoints/last.ckpt"):
    return torch.load(path, weights_only=True, map_location="cpu")


AVERAGING = {"class_path": "zoo.training.averaging.EMAWeights", "init_args": {"decay": 0.8}}
FINE_TUNING = {
    "class_path": "zoo.training.finetuning.FineTuning",
    "init_args": {
        "frozen_until": {"": 1, "classifier": 0, "word_attention": None},
        "learning_rates": {"embedding": 0.001, "sentence_attention.project": 0.02},
        "shrink": {"sentence_encoder": 0.5},
    },
}


def _reviews(labels, count=64, name="mine.tsv"):
    """Texts of two sentences with one word that tells the label, and with two that the weight does not know."""
    rng = random.Random(7)
    rows = []
    for number in range(count):
        words = [*labeled_fakes.sentence(rng, number % len(labels)).split(), "zebra" if number % 4 else "quagga"]
        rng.shuffle(words)
        rows.append((labels[number % len(labels)], f"{' '.join(words[:3])}. {' '.join(words[3:])}."))
    labeled_fakes.table(Path(name), ("label", "text"), rows)


def _same(a, b, name=""):
    """Names of what differs, to the bit."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [d for key in a.keys() | b.keys() for d in _same(a.get(key), b.get(key), f"{name}/{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for i, pair in enumerate(zip(a, b)) for d in _same(*pair, f"{name}/{i}")]
    same = torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b
    return [] if same else [name]


STATES = [
    "state_dict",
    "current_model_state",
    "averaging_state",
    "optimizer_states",
    "lr_schedulers",
    "zoo_random",
    "zoo_assets",
]


def _check_resumed(stop):
    """Trains tiny.yaml in one go, and again with an interruption; both must end alike. Returns the last checkpoint."""
    assert _fit() == 0
    whole = _checkpoint()
    os.rename(RUN, "whole")
    assert _fit("--trainer.max_steps", str(stop)) == 0
    assert _checkpoint()["global_step"] == stop
    assert _fit("--ckpt_path", "last") == 0
    again = _checkpoint()
    assert whole["global_step"] == again["global_step"] == STEPS
    assert _same(*({part: c[part] for part in STATES if part in c} for c in (whole, again))) == []
    assert _same(whole["hyper_parameters"], again["hyper_parameters"]) == []
    return again


def test_a_classifier_with_other_labels_more_words_and_frozen_parts(folder, caplog, capsys):
    weight = _classifier()
    weight.save_pretrained("weight")
    old, known = weight.state_dict(), len(weight.tokenizer)
    _reviews(["bad", "good", "so so"])
    options = {
        "train": "mine.tsv",
        "test": "mine.tsv",
        "split_sentences": True,
        "extend_vocabulary": 3,
        "batch_size": 16,
        "val_fraction": 0.2,
    }
    _recipe("local-dir:weight", "LabeledText", options, [AVERAGING, FINE_TUNING])

    last = _check_resumed(4)  # in the second epoch, in which all but one part is trained
    changed = [line for line in capsys.readouterr().out.splitlines() if "changed by" in line]
    assert len(changed) == 2 and changed[0] == changed[1], (
        "the same after an interruption; until then only the new layer"
    )
    assert (
        "re-initialised classifier for the labels 'bad', 'good', 'so so' (the weights have 'negative', 'positive')"
        in caplog.text
    )
    assert (
        "are words that the model does not know and reads as UNK; they remain after extend_vocabulary 3, which adds the "
        "most frequent, of those seen at least 2 times (min_frequency)" in caplog.text
    )
    assert caplog.text.count("reads as UNK") == 2, (
        "of the whole and of the interrupted training, not of the resumed one"
    )
    config = last["hyper_parameters"]
    assert config["vocab_size"] == known + 3 and config["num_classes"] == 3
    assert json.loads(last["zoo_assets"]["labels.json"]) == ["bad", "good", "so so"]
    tokenizer = Tokenizer.from_json(last["zoo_assets"]["tokenizer.json"])
    assert len(tokenizer) == known + 3 and tokenizer.encode(". zebra") == [
        known,
        known + 1,
    ]  # the most frequent new word comes first

    # what was frozen for good is the weight's, also in the average; the rest moved, at its own rate
    trained, averaged = last["current_model_state"], last["state_dict"]
    assert _same(trained, averaged)
    for name in trained:
        if name.startswith("word_attention."):
            assert torch.equal(averaged[name], old[name]) and torch.equal(trained[name], old[name]), name
        elif name != "embedding.weight" and not name.startswith("classifier"):
            assert not torch.equal(trained[name], old[name]), name
    moved = (trained["embedding.weight"][:known] - old["embedding.weight"]).abs().max()
    assert 0 < moved <= 5.5 * 0.001  # steps after the first epoch times the rate
    rates = {group["initial_lr"]: len(group["params"]) for group in last["optimizer_states"][0]["param_groups"]}
    assert rates == {0.01: len(list(weight.parameters())) - 3, 0.001: 1, 0.02: 2}

    capsys.readouterr()
    assert main(["test", "--config", "tiny.yaml", "--ckpt_path", "last"]) == 0
    tested = [
        float(line.split()[-1])
        for line in capsys.readouterr().out.splitlines()
        if line.strip().startswith("test/accuracy")
    ]
    assert main(["export", f"{RUN}/checkpoints/last.ckpt", "mine"]) == 0
    assert main(["test", "--config", "tiny.yaml", "--weights", "local-dir:mine"]) == 0
    again = [
        float(line.split()[-1])
        for line in capsys.readouterr().out.splitlines()
        if line.strip().startswith("test/accuracy")
    ]
    assert len(tested) == 1 and again == tested
    assert main(["predict", "local-dir:mine", "A zebra film.", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["probabilities"]) == ["bad", "good", "so so"]


def test_frozen_parts_stay_and_thaw(folder):
    weight = _classifier()
    weight.save_pretrained("weight")
    _reviews(["negative", "positive"])
    _recipe(
        "local-dir:weight",
        "LabeledText",
        {"train": "mine.tsv", "split_sentences": True, "batch_size": 16, "val_fraction": 0.2},
        [FINE_TUNING],
    )
    assert _fit("--trainer.max_steps", "-1", "--trainer.max_epochs", "1") == 0
    first = _checkpoint()["state_dict"]
    changed = {name for name, t in first.items() if not torch.equal(t, weight.state_dict()[name])}
    assert changed == {
        "classifier.weight",
        "classifier.bias",
    }  # whose labels are the same ones, so they went on from the weight's
    step = (first["classifier.bias"] - weight.state_dict()["classifier.bias"]).abs().max()
    assert step < 5 * 0.01


def test_a_finetuning_is_resumed_with_the_weight_that_it_began_with(folder, capsys):
    for name in ("weight", "other"):
        _classifier().save_pretrained(name)
    _reviews(["negative", "positive"])
    _recipe("local-dir:weight", "LabeledText", {"train": "mine.tsv", "split_sentences": True, "batch_size": 16})
    assert _fit("--trainer.max_steps", "1") == 0
    capsys.readouterr()
    resumed = ("--ckpt_path", "last", "--trainer.max_steps", "2", "--model.name")
    assert _fit(*resumed, "local-dir:other") == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "--model.name local-dir:other: the training of " in line and "began with local-dir:weight; leave it" in line
    assert _fit(*resumed, "local-dir:weight") == 0 and _checkpoint()["global_step"] == 2


def test_labels_of_other_names_begin_anew_and_those_of_the_same_do_not(folder, caplog, capsys):
    weight = _classifier(StructuredSelfAttention)
    weight.save_pretrained("weight")
    options = {"train": "mine.tsv", "batch_size": 16, "val_fraction": 0.2}
    _recipe("local-dir:weight", "LabeledText", options, trainer={"max_steps": 1}, lr=1e-9)
    _reviews(["positive", "negative"])
    assert _fit() == 0 and "re-initialised" not in caplog.text
    last = _checkpoint()
    assert json.loads(last["zoo_assets"]["labels.json"]) == ["negative", "positive"]
    torch.testing.assert_close(
        last["state_dict"]["classifier.weight"], weight.classifier.weight.detach(), atol=1e-6, rtol=0
    )
    os.rename(RUN, "same")

    _reviews(["good", "bad"])
    assert _fit() == 0 and "re-initialised classifier for the labels 'bad', 'good'" in caplog.text
    last = _checkpoint()
    assert (
        json.loads(last["zoo_assets"]["labels.json"]) == ["bad", "good"]
        and last["hyper_parameters"]["num_classes"] == 2
    )
    assert (last["state_dict"]["classifier.weight"] - weight.classifier.weight).abs().max() > 1e-3
    torch.testing.assert_close(last["state_dict"]["mlp.1.weight"], weight.mlp[1].weight.detach(), atol=1e-6, rtol=0)

    capsys.readouterr()
    assert (
        main(["test", "--config", "tiny.yaml", "--data.test", "mine.tsv"]) == 2
    )  # of the weight itself: nothing is replaced
    assert (
        "label 'good' is unknown to the model StructuredSelfAttention, which has 'negative', 'positive'"
        in capsys.readouterr().err
    )
    _reviews(["good", "bad", "other"], name="more.tsv")
    assert (
        _fit("--ckpt_path", "last", "--data.train", "more.tsv", "--trainer.max_steps", "2") == 2
    )  # nor in a training that goes on
    assert "label 'other' of the data is unknown to the model" in capsys.readouterr().err
    _recipe("local-dir:weight", "LabeledText", {**options, "split_sentences": True}, path="documents.yaml")
    assert main(["fit", "--config", "documents.yaml"]) == 2
    assert (
        "StructuredSelfAttention reads texts, the data are documents; set split_sentences of the data to false"
        in capsys.readouterr().err
    )


def test_null_at_the_command_line(folder):
    _classifier().save_pretrained("weight")
    _reviews(["negative", "positive"])
    options = {"train": "mine.tsv", "split_sentences": True, "batch_size": 16, "val_fraction": 0.2}
    _recipe("local-dir:weight", "LabeledText", options, trainer={"max_steps": 1}, total_steps=50)
    assert _fit("--lr_scheduler.total_steps", "null", "--model.overrides.dropout", "0.1") == 0
    checkpoint = _checkpoint()
    assert checkpoint["hyper_parameters"]["dropout"] == 0.1
    assert checkpoint["zoo_training"]["weight"] == "local-dir:weight"
    training = {name: checkpoint["zoo_training"][name]["init_args"] for name in TRAINING}
    assert training["lr_scheduler"] == {"warmup_steps": 2, "total_steps": None, "cycles": 1}
    assert training["optimizer"]["lr"] == 0.01
    assert "total_steps: null" in Path(f"{RUN}/version_0/config.yaml").read_text()


def test_several_labels_instead_of_one(folder):
    _classifier(AttentionClassifier).save_pretrained("weight")
    rows = [
        (("red", "red|blue", "", "blue")[n % 4], labeled_fakes.sentence(random.Random(n), n % 4)) for n in range(40)
    ]
    labeled_fakes.table(folder / "mine.tsv", ("label", "text"), rows)
    _recipe(
        "local-dir:weight",
        "LabeledText",
        {"train": "mine.tsv", "multi_label": True, "batch_size": 16},
        trainer={"max_steps": 2},
    )
    assert _fit() == 0
    config = _checkpoint()["hyper_parameters"]
    assert (config["num_classes"], config["multi_label"]) == (2, True)


def test_new_words_take_ready_vectors(folder):
    weight = _classifier()
    weight.save_pretrained("weight")
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))[0]
    words = weight.tokenizer.tokens(range(len(weight.tokenizer)))
    vectors = {word: weight.embedding.weight[i].detach() @ turn for i, word in enumerate(words) if i > EOS}
    vectors["."] = weight.embedding.weight[5].detach() @ turn
    lines = [" ".join([word, *(f"{x:.6f}" for x in vector.tolist())]) for word, vector in vectors.items()]
    (folder / "vectors.txt").write_text("".join(f"{line}\n" for line in lines))
    _reviews(["negative", "positive"])
    options = {"train": "mine.tsv", "split_sentences": True, "extend_vocabulary": 1, "word_vectors": "vectors.txt"}
    _recipe("local-dir:weight", "LabeledText", options, trainer={"max_steps": 1}, lr=1e-9)
    assert _fit() == 0
    rows = _checkpoint()["state_dict"]["embedding.weight"]
    assert len(rows) == len(words) + 1
    torch.testing.assert_close(rows[-1], rows[5], atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    "shared", [pytest.param(True, id="subwords"), pytest.param(False, id="characters", marks=pytest.mark.slow)]
)
def test_a_translator_with_the_words_of_the_data(folder, shared, caplog, capsys):
    model = _translator(shared_vocab=True, tie_output=True) if shared else _translator(chars=True)
    if not shared:
        model.tgt_tokenizer = Tokenizer.train([text.upper() for text in TEXTS], "char", 33)
        model = LuongNMT(**{**LuongNMT.tiny, "src_vocab_size": len(model.src_tokenizer), "tgt_vocab_size": 40}).eval()
        model.src_tokenizer = Tokenizer.train(TEXTS, "char", 40)
        model.tgt_tokenizer = Tokenizer.train([text.upper() for text in TEXTS], "char", 33)
    model.save_pretrained("weight")
    known = len(model.src_tokenizer), len(model.tgt_tokenizer)
    rng = random.Random(0)
    lines = [
        " ".join(rng.choices("a dog runs in the snow zebra quagga zoo".split(), k=rng.randint(1, 6))) for _ in range(60)
    ]
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in lines))
    options = {
        "train_src": "pairs.tsv",
        "test_src": "pairs.tsv",
        "val_fraction": 0.1,
        "batch_size": 12,
        "extend_vocabulary": 2,
    }
    _recipe("local-dir:weight", "ParallelText", options, [AVERAGING])
    last = _check_resumed(4)
    assets, config = last["zoo_assets"], last["hyper_parameters"]
    if shared:
        tokenizer = Tokenizer.from_json(assets["tokenizer.json"])
        assert len(tokenizer) == known[0] + 2 == config["src_vocab_size"] == config["tgt_vocab_size"]
        new = tokenizer.tokens([known[0], known[0] + 1])
        assert [tokenizer.encode(word) for word in new] == [[known[0]], [known[0] + 1]]
        state = last["state_dict"]
        assert torch.equal(state["embeddings.output.weight"], state["embeddings.tgt_table.weight"])
    else:
        src, tgt = (Tokenizer.from_json(assets[f"tokenizer.{side}.json"]) for side in ("src", "tgt"))
        assert (len(src), len(tgt)) == (known[0] + 2, known[1] + 2)
        assert config["src_vocab_size"] == known[0] + 2 and config["tgt_vocab_size"] == 40  # there were rows to spare
        assert src.encode("z") == [known[0]] and "of the training text (" in caplog.text
    capsys.readouterr()
    assert main(["test", "--config", "tiny.yaml", "--ckpt_path", "last"]) == 0
    tested = capsys.readouterr().out
    assert "chrf" in tested
    assert main(["export", f"{RUN}/checkpoints/last.ckpt", "mine"]) == 0
    loaded = zoo.load("local-dir:mine")
    assert {"_class_path": config["_class_path"], **loaded.config} == config
    assert loaded.translate("zebra dog").attention.size(1) == len(loaded.src_tokenizer.encode("zebra dog")) + 1


def test_a_captioner_with_the_words_of_the_data(folder, caplog, capsys):
    model = _captioner()
    model.save_pretrained("weight")
    known = len(model.tokenizer)
    captions_fakes.invent(
        zoo.data.ImageCaptions,
        {"folder": "photos", "captions": "captions.tsv"},
        folder,
        captions_fakes.sample((24, 6, 6)),
    )
    options = {"folder": "photos", "captions": "captions.tsv", "batch_size": 8, "min_frequency": 2}
    _recipe("local-dir:weight", "ImageCaptions", options, trainer={"max_steps": 1})
    assert _fit() == 0
    (warning,) = [record.message for record in caplog.records if "UNK" in record.message]
    assert "tokens of the training text (" in warning and "; --data.extend_vocabulary N adds the N most" in warning
    assert _checkpoint()["hyper_parameters"]["vocab_size"] == known + 2
    os.rename(RUN, "none")

    _recipe("local-dir:weight", "ImageCaptions", {**options, "extend_vocabulary": 5}, [AVERAGING])
    last = _check_resumed(4)
    tokenizer = Tokenizer.from_json(last["zoo_assets"]["tokenizer.json"])
    assert (
        len(tokenizer) == known + 5 == last["hyper_parameters"]["vocab_size"] == len(last["state_dict"]["output.bias"])
    )
    assert main(["test", "--config", "tiny.yaml", "--ckpt_path", "last"]) == 0
    assert "cider_d" in capsys.readouterr().out
    assert main(["export", f"{RUN}/checkpoints/last.ckpt", "mine"]) == 0
    assert main(["predict", "local-dir:mine", "photos/0000.png"]) == 0


def test_lightning_alone(folder):
    """Without the command line: Lightning's own average is made between the set-ups of data and model."""
    _classifier().save_pretrained("weight")
    _reviews(["bad", "good", "so so"])

    def data():
        return LabeledText("mine.tsv", split_sentences=True, extend_vocabulary=3, batch_size=16, val_fraction=0.2)

    def trainer(**options):
        return Trainer(
            accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
            callbacks=[EMAWeightAveraging(decay=0.5)], **options,
        )  # fmt: skip

    model, whole = zoo.load("local-dir:weight"), trainer(max_epochs=2, enable_checkpointing=False)
    module = data()
    whole.fit(model, module)
    words = len(model.tokenizer)
    assert model.label_names == ["bad", "good", "so so"] and model.config["vocab_size"] == words
    whole.save_checkpoint("whole.ckpt")
    again = zoo.load("local-dir:weight")
    third = trainer(max_epochs=3, enable_checkpointing=False)
    third.fit(again, data(), ckpt_path="whole.ckpt", weights_only=True)  # the words are chosen again, and are the same
    assert len(again.tokenizer) == words and again.classify("a zebra").label in again.label_names
    trainer(max_epochs=1, enable_checkpointing=False).fit(model, module)
    assert len(model.tokenizer) == words  # a second training adds no more


# ---- the callback and its rates ----


def test_rates_by_name():
    assert longest_prefix("decoder.lstm.bias", ["", "decoder", "decoder.ls"]) == "decoder"
    assert longest_prefix("decoders.bias", ["decoder"]) is None and longest_prefix("a", [""]) == ""
    model = _classifier()
    model.learning_rates = {"word_encoder": 0.5, "word_encoder.layers": 0.25, "classifier": 0.125}
    groups = model.configure_optimizers()["optimizer"].param_groups
    assert {id(p) for group in groups for p in group["params"]} == {id(p) for p in model.parameters()}
    found = {group["initial_lr"]: len(group["params"]) for group in groups}
    assert found[0.125] == 2 and found.get(0.5, 0) + found.get(0.25, 0) == len(list(model.word_encoder.parameters()))


@pytest.mark.parametrize(("labels", "factor"), [(["negative", "positive"], 1), (["bad", "good"], 0.5)])
def test_parts_begin_shrunk_if_the_labels_are_new(folder, labels, factor):
    weight = _classifier()
    weight.save_pretrained("weight")
    _reviews(labels)
    shrinking = {
        "class_path": "zoo.training.finetuning.FineTuning",
        "init_args": {"shrink": {"": 0.5, "embedding": 1.0, "word_attention.project": 0.25}},
    }
    options = {"train": "mine.tsv", "split_sentences": True, "batch_size": 16, "val_fraction": 0.2}
    _recipe("local-dir:weight", "LabeledText", options, [AVERAGING, shrinking], {"max_steps": 1}, lr=1e-9)
    assert _fit() == 0
    checkpoint, old = _checkpoint(), weight.state_dict()
    for state in (checkpoint["state_dict"], checkpoint["current_model_state"]):
        close = {"atol": 1e-7, "rtol": 0}
        torch.testing.assert_close(state["embedding.weight"], old["embedding.weight"], **close)
        for name in ("word_encoder.layers.0.0.weight_input", "sentence_attention.context"):
            torch.testing.assert_close(state[name], factor * old[name], **close)
        name = "word_attention.project.weight"
        torch.testing.assert_close(state[name], factor**2 * old[name], **close)


@pytest.mark.parametrize(("own", "highest", "trained"), [(0.1, 0.01, 0.01), (0.001, 0.01, 0.001), (0.1, None, 0.1)])
def test_the_penalty_of_the_weights_is_limited(folder, own, highest, trained):
    _classifier(StructuredSelfAttention, penalty=own).save_pretrained("weight")
    _reviews(["a", "b", "c"])
    limited = {"class_path": "zoo.training.finetuning.FineTuning", "init_args": {"penalty": highest}}
    options = {"train": "mine.tsv", "batch_size": 16, "val_fraction": 0.2}
    _recipe("local-dir:weight", "LabeledText", options, [limited], {"max_steps": 1})
    assert _fit() == 0
    assert _checkpoint()["hyper_parameters"]["penalty"] == trained
    assert _fit("--ckpt_path", "last", "--trainer.max_steps", "2") == 0
    assert _checkpoint()["hyper_parameters"]["penalty"] == trained


def test_the_recipe_fits_texts_that_are_too_short_for_ten_hops():
    recipe = yaml.safe_load((RECIPES / "finetune_classification.yaml").read_text(encoding="utf-8"))
    (tuning,) = (part for part in recipe["trainer"]["callbacks"] if part["class_path"].endswith("FineTuning"))
    model = zoo.load("structured_self_attention.imdb")
    assert tuning["init_args"]["penalty"] == 0.01 < model.config["penalty"]
    FineTuning(**tuning["init_args"]).setup(
        Trainer(accelerator="cpu", logger=False, enable_checkpointing=False), model, "fit"
    )
    assert model.config["penalty"] == 0.01
    attention = torch.full((1, 10, 5), 0.2)  # of five words, the same for all hops
    assert model.penalty([attention]) < 0.3  # beside a loss of log(4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"frozen_until": {"encoder": 1}},
            "HAN has no part 'encoder' with parameters; its parts: embedding, word_encoder, .*classifier",
        ),
        ({"learning_rates": {"classifier.wait": 0.1}}, "HAN has no part 'classifier.wait' with parameters"),
        ({"frozen_until": {"": 2}}, "frozen_until leaves nothing to train in epoch 0; give one part the epoch 0"),
        (
            {"frozen_until": {"classifier": -1}},
            "frozen_until must give epochs from 0, or null for never; got -1 for 'classifier'",
        ),
        (
            {"learning_rates": {"classifier": 0.0}},
            r"learning_rates must be above 0 \(to freeze a part use frozen_until\); got 0.0",
        ),
        ({"shrink": {"encoder": 0.5}}, "HAN has no part 'encoder' with parameters"),
        ({"shrink": {"": 0.0}}, "shrink must give factors above 0 and up to 1; got 0.0 for ''"),
        ({"shrink": {"": 1.5}}, "shrink must give factors above 0 and up to 1; got 1.5 for ''"),
        ({"penalty": -0.1}, "penalty must be at least 0; got -0.1"),
    ],
)
def test_what_cannot_be_frozen(options, message):
    with pytest.raises(ValueError, match=message):
        FineTuning(**options).setup(
            Trainer(accelerator="cpu", logger=False, enable_checkpointing=False), _classifier(), "fit"
        )


def test_an_encoder_that_thaws(folder):
    model = _captioner(encoder_epoch=0)
    model.save_pretrained("weight")
    captions_fakes.invent(
        zoo.data.ImageCaptions,
        {"folder": "photos", "captions": "captions.tsv"},
        folder,
        captions_fakes.sample((16, 4, 4)),
    )
    freezing = {"class_path": "zoo.training.finetuning.FineTuning", "init_args": {"frozen_until": {"encoder": 1}}}
    options = {"folder": "photos", "captions": "captions.tsv", "batch_size": 8}
    _recipe("local-dir:weight", "ImageCaptions", options, [AVERAGING, freezing], {"max_steps": 4})
    assert _fit("--trainer.max_steps", "2") == 0  # an epoch
    first = _checkpoint()["state_dict"]
    assert all(torch.equal(t, first[f"encoder.{name}"]) for name, t in model.encoder.state_dict().items())
    assert _fit("--ckpt_path", "last") == 0
    second = _checkpoint()["state_dict"]
    changed = {name for name in second if name.startswith("encoder.") and not torch.equal(second[name], first[name])}
    assert changed


@pytest.mark.slow
def test_two_processes_thaw_together(folder):
    """What thaws must be averaged over the processes as well, else each would go its own way."""
    _classifier().save_pretrained("weight")
    _reviews(["bad", "good", "so so"])
    states = []
    for devices, strategy, size in ((1, "auto", 16), (2, "ddp_find_unused_parameters_true", 8)):
        options = {
            "train": "mine.tsv",
            "split_sentences": True,
            "extend_vocabulary": 3,
            "batch_size": size,
            "val_fraction": 0.2,
        }
        trainer = {"devices": devices, "strategy": strategy, "max_steps": -1, "max_epochs": 2}
        _recipe("local-dir:weight", "LabeledText", options, [FINE_TUNING], trainer, dropout=0.0)
        run = subprocess.run(
            [sys.executable, "-m", "zoo", "fit", "--config", "tiny.yaml"], capture_output=True, text=True, timeout=300
        )
        assert run.returncode == 0, run.stderr
        states.append(_checkpoint()["state_dict"])
        os.rename(RUN, f"of-{devices}")
    for name, tensor in states[0].items():
        torch.testing.assert_close(states[1][name], tensor, rtol=1e-4, atol=1e-4 * tensor.abs().max().item(), msg=name)
    run = subprocess.run(
        [sys.executable, "-m", "zoo", "fit", "--config", "tiny.yaml", "--trainer.strategy", "ddp"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (
        run.returncode == 2
        and "frozen_until on several processes needs --trainer.strategy ddp_find_unused_parameters_true" in run.stderr
    )
