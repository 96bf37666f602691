"""Trainings of a tiny captioner whose encoder is frozen in the first epoch: interrupted at the change, and by two
processes.
"""

import os
import sys

import captions_fakes
import pytest
import torch
import yaml
from fakes import settings
from forks import command, torchrun

from zoo.cli import main

pytestmark = pytest.mark.integration

LAST = "runs/tiny/checkpoints/last.ckpt"


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes tiny.yaml into a folder and goes there."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    captions_fakes.flickr8k_archives(tmp_path / "data", {}, captions_fakes.sample((24, 6, 6)))

    def write(folder, trainer, model=None, data=None, **others):
        quiet = {
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "reload_dataloaders_every_n_epochs": 1,
        }
        sizes = {
            "vocab_size": 40,
            "layer": "blocks.2",
            "image_size": 32,
            "feature_size": 8,
            "embedding_size": 8,
            "hidden_size": 8,
        }
        options = {
            "attention_size": 4,
            "encoder_epoch": 1,
            "beam_size": 2,
        }
        parts = {
            "seed_everything": 3,
            "trainer": {**quiet, "max_epochs": 2, **trainer},
            **settings(warmup_steps=2),
            **others,
            "model": {
                "class_path": "zoo.models.show_attend_tell.ShowAttendTell",
                "init_args": {**sizes, **options, **(model or {})},
            },
            "data": {
                "class_path": "zoo.data.Flickr8k",
                "init_args": {"min_frequency": 1, "batch_size": 8, "flip": 0.5, **(data or {})},
            },
        }
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tiny.yaml").write_text(yaml.safe_dump(parts))
        monkeypatch.chdir(tmp_path / folder)

    return write


def weights(path):
    return torch.load(path, weights_only=True, map_location="cpu")["state_dict"]


@pytest.mark.parametrize("attention", [pytest.param("soft", marks=pytest.mark.slow), "hard"])
def test_a_training_goes_on_exactly_where_the_encoder_is_freed(recipe, attention, tmp_path):
    recipe("whole", {}, {"attention": attention})
    assert main(["fit", "--config", "tiny.yaml"]) == 0
    recipe("parts", {}, {"attention": attention})
    assert (
        main(
            [
                "fit",
                "--config",
                "tiny.yaml",
                "--trainer.max_epochs",
                "1",
                "--trainer.reload_dataloaders_every_n_epochs",
                "1",
            ]
        )
        == 0
    )
    first = weights(LAST)
    assert main(["fit", "--config", "tiny.yaml", "--ckpt_path", "last"]) == 0
    again, whole = weights(LAST), weights(tmp_path / "whole" / LAST)
    assert all(torch.equal(again[name], whole[name]) for name in whole)
    changed = {name for name in whole if not torch.equal(whole[name], first[name])}
    assert any(name.startswith("encoder.") for name in changed)  # in the second epoch it learns


def test_two_processes_compute_what_one_computes(recipe, tmp_path):
    # not Adam, which enlarges the rounding of gradients near 0; with this rate most weights change by 1e-4 to 1
    plain = {"optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 1.0}}}
    exact = {"dropout": 0.0}
    recipe("one", {}, exact, **plain)
    assert main(["fit", "--config", "tiny.yaml"]) == 0
    recipe("two", {"devices": 2, "strategy": "ddp_find_unused_parameters_true"}, exact, {"batch_size": 4}, **plain)
    torchrun(2, command, "fit", "--config", "tiny.yaml")
    one, two = (weights(tmp_path / folder / LAST) for folder in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-6 * tensor.abs().max().item(), msg=name)
