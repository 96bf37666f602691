"""SIGKILL at random moments of trainings and of saving: what has its final name is whole, and everything goes on."""

import os
import random

import pytest
import torch
import yaml
from fakes import settings
from forks import Fork, command, killed, moments, resave
from lightning.pytorch import Trainer

import zoo
from zoo.bundles.files import CONFIG, GOLDEN, WEIGHTS, local_dir
from zoo.bundles.publish import check_golden
from zoo.data import Dates
from zoo.models.luong import LuongNMT

pytestmark = pytest.mark.integration

STEPS, EPOCHS = 18, 3  # an epoch has 5 steps
LAST = "runs/tiny/checkpoints/last.ckpt"
STATES = ["state_dict", "current_model_state", "averaging_state", "optimizer_states", "lr_schedulers", "zoo_random"]
FEW_AND_MANY = [3, pytest.param(50, marks=pytest.mark.slow)]


def _recipe(path, by_epochs):
    """A training with dropout and averaged weights, which saves after each step, or as the recipes do when the best is
    long past.
    """
    when = (
        {"filename": "best", "monitor": "val/loss", "mode": "max"}
        if by_epochs
        else {"filename": "newest", "every_n_train_steps": 1}
    )
    length = {"max_epochs": EPOCHS} if by_epochs else {"max_steps": STEPS, "max_epochs": -1}
    saving = {**when, "save_last": True, "enable_version_counter": False}
    callbacks = [
        {"class_path": "zoo.training.averaging.EMAWeights", "init_args": {"decay": 0.9}},
        {"class_path": "zoo.training.checkpoints.ExactCheckpoints", "init_args": saving},
    ]
    quiet = {
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1,
    }
    sizes = {"src_vocab_size": 80, "tgt_vocab_size": 20, "embedding_size": 8, "hidden_size": 8, "dropout": 0.3}
    data = {"train_size": 80, "val_size": 9, "test_size": 9, "batch_size": 16}
    parts = {
        "trainer": {**quiet, **length, "callbacks": callbacks},
        "model": {
            "class_path": "zoo.models.luong.LuongNMT",
            "init_args": sizes,
        },
        **settings(warmup_steps=3, total_steps=STEPS),
        "data": {"class_path": "zoo.data.Dates", "init_args": data},
    }
    path.write_text(yaml.safe_dump(parts))


TRAIN = (command, "fit", "--config", "tiny.yaml", "--ckpt_path", "last")


def _check_checkpoints():
    """Those that have their names load; returns the last one, if there is one."""
    for name in sorted(os.listdir(os.path.dirname(LAST))) if os.path.isfile(LAST) else ():
        if name.endswith(".ckpt"):
            found = torch.load(os.path.join(os.path.dirname(LAST), name), weights_only=True, map_location="cpu")
            assert found["state_dict"] and found["global_step"] > 0
    return torch.load(LAST, weights_only=True, map_location="cpu") if os.path.isfile(LAST) else None


def _same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize("count", FEW_AND_MANY)
@pytest.mark.parametrize(
    ("by", "by_epochs"),
    [("moment", True), *(pytest.param("time", each, marks=pytest.mark.slow) for each in (False, True))],
)
def test_killed_trainings(by, by_epochs, count, tmp_path, monkeypatch):
    """One training after the other, each killed again and again; all end with the same bits."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    rng, kills, trainings, unfinished, started = random.Random(f"{by} {count}"), 0, 0, 0, 0

    def begin(name):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        _recipe(tmp_path / name / "tiny.yaml", by_epochs)

    begin("whole")
    total, seconds = moments(*TRAIN)
    whole = _check_checkpoints()
    steps = EPOCHS * 5 if by_epochs else STEPS
    assert whole["global_step"] == steps
    parts = 1 if by_epochs else 3  # each process gets some steps, or epochs, further
    most = (total / parts, seconds / parts)
    while kills < count:
        begin(f"killed{trainings}")
        trainings += 1
        step, done = 0, False
        while not done and kills < count:
            done = not killed(rng, by, most, *TRAIN)
            kills += not done
            found = _check_checkpoints()
            assert found is None or found["global_step"] >= step
            step = found["global_step"] if found else 0
            unfinished += any(name.startswith(".") for name in os.listdir("runs/tiny/checkpoints")) if found else 0
            started += step > 0
        end = Fork(*TRAIN).wait()
        assert end.code == 0, end.output
        found = _check_checkpoints()
        different = [name for name in STATES if not _same(found[name], whole[name])]
        assert found["global_step"] == steps and different == []
    print(
        {
            "by": by,
            "kills": kills,
            "with a checkpoint": started,
            "with half ones beside": unfinished,
            "trainings": trainings,
        }
    )
    assert started > 0


def _translator(seed):
    torch.manual_seed(seed)
    data = Dates(train_size=200, val_size=9, test_size=9)
    data.prepare_data()
    data.setup("fit")
    sizes = {
        "src_vocab_size": len(data.src_tokenizer),
        "tgt_vocab_size": len(data.tgt_tokenizer),
        "embedding_size": 8,
        "hidden_size": 8,
    }
    model = LuongNMT(**sizes).eval()
    model.src_tokenizer, model.tgt_tokenizer = data.src_tokenizer, data.tgt_tokenizer
    return model


FILES = {CONFIG, WEIGHTS, GOLDEN, "tokenizer.src.json", "tokenizer.tgt.json"}


@pytest.mark.parametrize("count", FEW_AND_MANY)
@pytest.mark.parametrize("what", ["save_pretrained", "export"])
def test_killed_saving(what, count, tmp_path, monkeypatch):
    """Two models are saved in turn under one name; a kill leaves the one or the other, whole, or nothing where nothing
    was.
    """
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for n in range(2):
        model = _translator(n)
        trainer = Trainer(
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.strategy.connect(model)
        model.trainer = trainer
        trainer.save_checkpoint(f"{n}.ckpt")

    saves = [
        (command, "export", f"{n}.ckpt", "weights") if what == "export" else (resave, f"{n}.ckpt", "weights")
        for n in range(2)
    ]
    states = []
    for save in saves:
        most = moments(*save)
        states.append(dict(zoo.load("local-dir:weights").state_dict()))
    rng, found = random.Random(f"{what} {count}"), {"kills": 0, "new": 0, "old": 0, "none": 0}
    there, tries = 1, 0
    while found["kills"] < count:
        new = 1 - (there or 0)
        found["kills"] += (was_killed := killed(rng, ("moment", "time")[tries % 2], most, *saves[new]))
        tries += 1
        if there is None and not os.path.exists("weights"):
            found["none"] += was_killed
        else:
            model = zoo.load("local-dir:weights")
            (now,) = [n for n in (0, 1) if _same(dict(model.state_dict()), states[n])]
            assert set(os.listdir("weights")) == FILES
            check_golden(model, local_dir("weights"))
            assert now == new or was_killed
            found["new" if now == new else "old"] += was_killed
            there = now
        if rng.random() < 0.2 and os.path.exists("weights"):
            os.rename("weights", f"away{tries}")
            there = None
    print({"what": what, **found, "hidden folders left": len([name for name in os.listdir() if name.startswith(".")])})
    assert Fork(*saves[0]).wait().code == 0 and found["old"] + found["none"] > 0
    assert _same(dict(zoo.load("local-dir:weights").state_dict()), states[0])
