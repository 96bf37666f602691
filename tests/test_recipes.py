"""Each recipe is read, and trained for one step on invented text in the place and form of the real one."""

import random
from importlib import import_module
from pathlib import Path

import captions_fakes
import cloze_fakes
import labeled_fakes
import pytest
import torch
import yaml
from fakes import Cut
from safetensors.torch import save_file

import zoo.data
from zoo import registry
from zoo.cli import main
from zoo.data.captioning.base import CaptionData
from zoo.data.classification.base import LabeledData
from zoo.data.language_modelling.plain_text import RunningText
from zoo.data.reading.cloze import ClozeData
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.text import Tokenizer
from zoo.vision.backbones import make_backbone

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("*.yaml"))
_downloaded = []
WORDS = "der die ein große Hund läuft springt über kleine Straße im Schnee und mit roten Bällen schön".split()


def test_a_recipe_for_every_weight():
    others = ("finetune_", "reference_")  # the latter: for larger models and data than those of the bundled weights
    assert {path.stem for path in RECIPES if not path.stem.startswith(others)} == set(registry.list_models())


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_form(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#") and f"zoo fit --config recipes/{path.name}" in text, "say what it is and how to run it"
    recipe = yaml.safe_load(text)
    parts = {"trainer", "model", "optimizer", "lr_scheduler", "data"}
    assert parts <= recipe.keys() <= {"seed_everything", *parts}
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
        (root / own).write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines), encoding="utf-8")
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


def _small(path, folder, monkeypatch):
    """Invented data for a recipe in a folder, and the options that make its training short; the real models have the
    real size here, but for a ResNet.
    """
    recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    monkeypatch.setenv("ZOO_DATA", str(folder / "data"))
    monkeypatch.setenv("ZOO_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)
    module, _, name = recipe["data"]["class_path"].rpartition(".")
    data_class = getattr(import_module(module), name)
    _downloaded.clear()
    _invent(data_class, recipe["data"].get("init_args", {}), folder / "data")
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
    return recipe, ["fit", "--config", str(path), *options, *small]


def _first_of_each_kind():
    """A recipe for each pair of model and data; the others differ from them in numbers."""
    seen = {}
    for path in RECIPES:
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
        seen.setdefault((recipe["model"]["class_path"], recipe["data"]["class_path"]), path)
    return set(seen.values())


@pytest.mark.parametrize(
    "path",
    [path if path in _first_of_each_kind() else pytest.param(path, marks=pytest.mark.slow) for path in RECIPES],
    ids=lambda path: path.stem,
)
def test_one_step(path, tmp_path, monkeypatch):
    recipe, command = _small(path, tmp_path, monkeypatch)
    assert main([*command, "--trainer.fast_dev_run", "true"]) == 0
    weights = str(recipe["model"]["init_args"].get("backbone_weights", ".safetensors"))
    if not weights.endswith(".safetensors"):
        assert _downloaded == [weights]


# the others when there is time
QUICK = ("luong_dot.dates",)


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
        _, command = _small(path, folder, monkeypatch)
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
