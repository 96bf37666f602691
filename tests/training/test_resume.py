"""Trainings that are killed at chosen moments and resumed end with the same bits as ones that nothing disturbs."""

import pytest
import torch
import yaml
from fakes import Cut, settings

from zoo.cli import main

pytestmark = pytest.mark.integration

LAST = "runs/tiny/checkpoints/last.ckpt"
PARTS = [
    "state_dict",
    "current_model_state",
    "averaging_state",
    "optimizer_states",
    "lr_schedulers",
    "zoo_random",
    "global_step",
]
BATCHES = 5  # of an epoch
AVERAGE = {
    "class_path": "zoo.training.averaging.EMAWeights",
    "init_args": {"decay": 0.9, "update_starting_at_step": 4},
}


def _saving(**options):
    saving = {"filename": "best", "save_last": True, "enable_version_counter": False, **options}
    return {"class_path": "zoo.training.checkpoints.ExactCheckpoints", "init_args": saving}


BEST = _saving(monitor="val/exact_match", mode="max")  # as in the recipes; hardly ever better than at first
EACH_STEP = _saving(every_n_train_steps=1)
STOPPING = {
    "class_path": "lightning.pytorch.callbacks.EarlyStopping",
    "init_args": {"monitor": "val/exact_match", "mode": "max", "patience": 2},
}
HALVING = {
    "class_path": "zoo.training.plateau.HalveThenStop",
    "init_args": {"monitor": "val/exact_match", "mode": "max", "patience": 1, "halvings": 6},
}
SETTINGS = {
    "recipes": {"max_epochs": 3, "callbacks": [BEST, AVERAGE]},
    "default": {"max_epochs": 3},
    "reloaded": {"max_epochs": 3, "callbacks": [BEST, AVERAGE], "reload_dataloaders_every_n_epochs": 1},
    "early stopping": {"max_epochs": 9, "callbacks": [BEST, STOPPING, AVERAGE]},
    "halving": {"max_epochs": 9, "callbacks": [BEST, HALVING, AVERAGE]},
    "each step, halving": {"max_epochs": 9, "val_check_interval": 2, "callbacks": [EACH_STEP, HALVING, AVERAGE]},
    "val_check_interval": {"max_epochs": 3, "val_check_interval": 0.4, "callbacks": [BEST, AVERAGE]},
    "every second epoch": {"max_epochs": 4, "check_val_every_n_epoch": 2, "callbacks": [BEST]},
    "each step": {"max_epochs": 3, "callbacks": [EACH_STEP, AVERAGE]},
    "each step, validated often": {"max_epochs": 3, "val_check_interval": 2, "callbacks": [EACH_STEP]},
    "steps": {"max_steps": 13, "callbacks": [EACH_STEP, AVERAGE]},
    "steps, each epoch": {"max_steps": 13, "callbacks": [BEST, AVERAGE]},
    "steps and epochs": {"max_steps": 100, "max_epochs": 3, "callbacks": [BEST]},
    "accumulated": {
        "max_epochs": 3,
        "accumulate_grad_batches": 2,
        "val_check_interval": 3,
        "callbacks": [EACH_STEP, BEST],
    },
}


def _write(trainer, **data):
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1}
    sizes = {"src_vocab_size": 80, "tgt_vocab_size": 20, "embedding_size": 8, "hidden_size": 8, "dropout": 0.3}
    data = {"train_size": 80, "val_size": 9, "test_size": 9, "batch_size": 16, **data}
    parts = {
        "trainer": {**quiet, **trainer},
        "model": {
            "class_path": "zoo.models.luong.LuongNMT",
            "init_args": sizes,
        },
        **settings(warmup_steps=3, total_steps=30),
        "data": {"class_path": "zoo.data.Dates", "init_args": data},
    }
    with open("tiny.yaml", "w") as file:
        yaml.safe_dump(parts, file)


def _begin(folder, trainer, monkeypatch, **data):
    folder.mkdir()
    monkeypatch.chdir(folder)
    _write(trainer, **data)


def _cut(place, count):
    return {"class_path": "fakes.CutAt", "init_args": {"place": place, "count": count}}


def _fit(*options):
    assert main(["fit", "--config", "tiny.yaml", *options]) == 0


def _different(a, b, name=""):
    if isinstance(a, dict) and isinstance(b, dict):
        return [d for key in a.keys() | b.keys() for d in _different(a.get(key), b.get(key), f"{name}/{key}")]
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return [d for i, pair in enumerate(zip(a, b)) for d in _different(*pair, f"{name}/{i}")]
    same = torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b
    return [] if same else [name]


def _last():
    found = torch.load(LAST, weights_only=True, map_location="cpu")
    return {part: found[part] for part in PARTS if part in found}


KILLS = [
    ("on_train_epoch_end", 1),
    ("on_train_epoch_start", 2),
    ("on_validation_start", 1),
    ("on_train_batch_start", 4),
]
OFTEN = ("recipes", "each step, halving")


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS]
)
def test_killed_again_and_again(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    trainer = SETTINGS[name]
    _begin(tmp_path / "whole", trainer, monkeypatch)
    _fit()
    whole = _last()
    _begin(tmp_path / "killed", trainer, monkeypatch)
    kills = 0
    for place, count in KILLS:
        _write({**trainer, "callbacks": [*trainer.get("callbacks", []), _cut(place, count)]})
        try:
            _fit("--ckpt_path", "last")
        except Cut:
            kills += 1
        else:
            break
    _write(trainer)
    _fit("--ckpt_path", "last")
    assert kills >= 2 and _different(_last(), whole) == []
