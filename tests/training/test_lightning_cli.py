"""Trainings of real (tiny) recipes in processes of their own: interrupted ones, and ones of two processes."""

import csv
import os
import signal
import sys
from pathlib import Path

import pytest
import torch
import yaml
from fakes import settings
from forks import Fork, command, torchrun
from lightning.pytorch.utilities import rank_zero_warn
from safetensors.torch import load_file

from zoo.cli import main
from zoo.data import Dates
from zoo.training.quiet import quiet

pytestmark = pytest.mark.integration

STEPS, SAVE_EVERY, KILLED_AT = 8, 2, 7  # an epoch has 5 steps: all in the middle of the second one
AVERAGING = {"class_path": "zoo.training.averaging.EMAWeights", "init_args": {"decay": 0.9}}
SAVING = {
    "class_path": "zoo.training.checkpoints.ExactCheckpoints",
    "init_args": {"filename": "newest", "every_n_train_steps": SAVE_EVERY, "save_last": True},
}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes tiny.yaml into a folder and goes there."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for fakes

    def write(folder, trainer, model=None, data=None, **steps):
        quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
        sizes = {"src_vocab_size": 80, "tgt_vocab_size": 20, "embedding_size": 8, "hidden_size": 8}
        parts = {
            "trainer": {**quiet, "log_every_n_steps": 1, **trainer},
            **settings(warmup_steps=3, **steps),
            "model": {"class_path": "zoo.models.luong.LuongNMT", "init_args": {**sizes, **(model or {})}},
            "data": {
                "class_path": "zoo.data.Dates",
                "init_args": {"train_size": 80, "val_size": 9, "test_size": 9, "batch_size": 16, **(data or {})},
            },
        }
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tiny.yaml").write_text(yaml.safe_dump(parts))
        monkeypatch.chdir(tmp_path / folder)

    return write


def _checkpoint(path):
    return torch.load(path, weights_only=True, map_location="cpu")


def _differences(a, b, name=""):
    """Names of what differs, to the bit, between two checkpoints."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = a.keys() | b.keys()
        return [d for key in keys for d in _differences(a.get(key), b.get(key), f"{name}/{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for i, pair in enumerate(zip(a, b)) for d in _differences(*pair, f"{name}/{i}")]
    same = torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b
    return [] if same else [name]


def test_a_checkpoint_brings_its_vocabulary(recipe, capsys):
    recipe("run", {"max_steps": 5, "callbacks": [SAVING]})
    assert main(["fit", "--config", "tiny.yaml"]) == 0
    losses = []
    for size in (80, 2):  # from two examples another vocabulary would be learnt
        capsys.readouterr()
        assert (
            main(["validate", "--config", "tiny.yaml", "--ckpt_path", "last", "--data.init_args.train_size", str(size)])
            == 0
        )
        losses += [line.split()[-2] for line in capsys.readouterr().out.splitlines() if "val/loss" in line]
    assert len(losses) == 2 and losses[0] == losses[1]
    other = ["--trainer.max_steps", "7", "--data.init_args.train_size", "70"]
    vocabulary = _checkpoint("runs/tiny/checkpoints/last.ckpt")["zoo_assets"]
    assert main(["fit", "--config", "tiny.yaml", "--ckpt_path", "last", *other]) in (
        0,
        2,
    )  # 2: another number of batches
    assert _checkpoint("runs/tiny/checkpoints/last.ckpt")["zoo_assets"] == vocabulary


def test_a_training_that_ends_before_the_average_begins_keeps_what_it_learnt(recipe, tmp_path):
    averaging = {**AVERAGING, "init_args": {"decay": 0.9, "update_starting_at_step": 100}}
    for folder, callbacks in (("plain", [SAVING]), ("averaged", [averaging, SAVING])):
        recipe(folder, {"max_steps": 5, "callbacks": callbacks})
        assert main(["fit", "--config", "tiny.yaml"]) == 0
    one, two = (_checkpoint(tmp_path / folder / "runs/tiny/checkpoints/last.ckpt") for folder in ("plain", "averaged"))
    assert _differences(one["state_dict"], two["state_dict"]) == []


@pytest.mark.parametrize(
    "callbacks", [pytest.param([SAVING], marks=pytest.mark.slow), [AVERAGING, SAVING]], ids=["plain", "averaged"]
)
def test_a_killed_training_goes_on_as_if_nothing_had_happened(recipe, callbacks, tmp_path):
    trainer = {"max_steps": STEPS, "max_epochs": -1, "callbacks": callbacks}
    model, steps = {"dropout": 0.3}, {"total_steps": STEPS}
    last = "runs/tiny/checkpoints/last.ckpt"

    recipe("whole", trainer, model, **steps)
    assert Fork(command, "fit", "--config", "tiny.yaml").wait().code == 0

    cut = {"class_path": "fakes.PowerCut", "init_args": {"step": KILLED_AT}}
    recipe("killed", {**trainer, "callbacks": [*callbacks, cut]}, model, **steps)
    assert Fork(command, "fit", "--config", "tiny.yaml").wait().code == -signal.SIGKILL
    assert _checkpoint(last)["global_step"] == KILLED_AT - KILLED_AT % SAVE_EVERY

    without_cut = ["--config", "../whole/tiny.yaml"]
    resumed = Fork(command, "fit", *without_cut, "--ckpt_path", "last").wait()
    assert resumed.code == 0, resumed.output
    whole, again = _checkpoint(tmp_path / "whole" / last), _checkpoint(last)
    assert whole["global_step"] == STEPS
    parts = ["state_dict", "current_model_state", "averaging_state", "optimizer_states", "lr_schedulers", "zoo_random"]
    assert _differences(*({p: c[p] for p in parts if p in c} for c in (whole, again))) == []

    assert main(["export", last, "weights"]) == 0
    exported = load_file("weights/model.safetensors")
    for name, tensor in exported.items():
        assert torch.equal(tensor, whole["state_dict"][name].half()), name
    averaged = "current_model_state" in whole
    assert averaged == (len(callbacks) == 2)
    if averaged:
        assert _differences(whole["state_dict"], whole["current_model_state"])


def test_half_a_checkpoint_is_one_line(recipe, capsys):
    recipe(
        "run", {"max_steps": 1, "callbacks": [SAVING | {"init_args": {"save_last": True, "every_n_train_steps": 1}}]}
    )
    assert main(["fit", "--config", "tiny.yaml"]) == 0
    last = Path("runs/tiny/checkpoints/last.ckpt")
    whole = last.read_bytes()
    last.write_bytes(whole[: len(whole) // 2])
    capsys.readouterr()
    for ckpt_path in ("last", str(last)):
        assert main(["fit", "--config", "tiny.yaml", "--ckpt_path", ckpt_path]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("zoo: error: ") and "last.ckpt is not a checkpoint, or is damaged; " in error


def test_dates_are_scored_by_exact_match_alone(recipe, capsys):
    recipe("run", {"max_epochs": 1})
    for verb in ("fit", "validate", "test"):
        assert main([verb, "--config", "tiny.yaml", *(["--ckpt_path", "last"] if verb != "fit" else [])]) == 0
        out = capsys.readouterr().out
        assert "bleu" not in out.lower() and "chrf" not in out
        assert verb == "fit" or "exact_match" in out
    columns = Path("runs/tiny/version_0/metrics.csv").read_text().splitlines()[0].split(",")
    assert sorted(name for name in columns if name.startswith("val/")) == ["val/exact_match", "val/loss"]


def test_each_score_has_one_name_and_one_column(recipe, capsys):
    recipe("run", {"max_epochs": 1}, {"tgt_vocab_size": 22}, data={"forms": "many"})  # with two test sets
    assert main(["fit", "--config", "tiny.yaml"]) == 0
    capsys.readouterr()
    assert main(["test", "--config", "tiny.yaml", "--ckpt_path", "last"]) == 0
    out = capsys.readouterr().out
    assert "DataLoader" not in out  # Lightning's table, which says the same
    names = ["test/exact_match", "test/no_dates/exact_match"]
    assert sorted(line.split()[0] for line in out.splitlines() if "test/" in line) == names
    (log,) = (file for file in Path("runs").rglob("metrics.csv") if "test/" in file.read_text())
    assert log.read_text().splitlines()[0].split(",")[2:] == names


def test_only_what_concerns_the_user_is_said(recipe):
    """No tips, tables and notices of Lightning; what the precision does to the training stays."""
    recipe("run", {"max_epochs": 1, "precision": "bf16-mixed", "log_every_n_steps": 50, "callbacks": [AVERAGING]})
    said = {}
    for verb in ("fit", "test"):
        more = [] if verb == "fit" else ["--ckpt_path", "last"]
        settings = ["--trainer.enable_model_summary", "null", "--trainer.precision", "bf16-mixed"]
        process = Fork(command, verb, "--config", "tiny.yaml", *settings, *more).wait()
        assert process.code == 0 and "bfloat16 Automatic Mixed Precision" in process.output, process.output
        starts = [line.split()[0] for line in process.output.splitlines() if line]
        said[verb] = sorted(word for word in starts if word not in ("Using", "trainer.precision"))
    report = ["Training:", "val/loss", "val/exact_match", "judged", "best", "export", "and"]
    assert said["fit"] == sorted(["Seed", "LuongNMT", "`Trainer.fit`", *report])
    assert said["test"] == sorted(["Seed", "Loaded", "test,", "test/exact_match"])


def test_one_batch_is_one_batch(recipe, capsys):
    """Also where Lightning's parser reads 1.0, which is all of them; and there is no checkpoint at the first start."""
    recipe("run", {"max_epochs": 1, "limit_val_batches": 1, "limit_train_batches": 0.9})
    once = ["--trainer.limit_train_batches", "1", "--ckpt_path", "last"]
    assert main(["fit", "--config", "tiny.yaml", *once]) == 0
    output = capsys.readouterr()
    assert "1 epoch, 1 step" in output.out and "HINT" not in output.err + output.out
    assert "100% of the batches" not in output.err + output.out
    assert _checkpoint("runs/tiny/checkpoints/last.ckpt")["global_step"] == 1
    assert main(["fit", "--config", "tiny.yaml", "--trainer.limit_train_batches", "0"]) == 2
    assert "trainer.limit_train_batches must be above 0, else nothing is trained" in capsys.readouterr().err


def test_a_class_may_be_named_by_a_package_that_offers_it(recipe, tmp_path, monkeypatch, capsys):
    recipe("run", {"max_epochs": 1})
    Path("offers.py").write_text("from zoo.models.luong import LuongNMT\n")
    monkeypatch.syspath_prepend(os.getcwd())
    settings = yaml.safe_load(Path("tiny.yaml").read_text())
    settings["model"]["class_path"] = "offers.LuongNMT"
    Path("tiny.yaml").write_text(yaml.safe_dump(settings))
    assert main(["fit", "--config", "tiny.yaml"]) == 0
    assert main(["test", "--config", "tiny.yaml", "--ckpt_path", "last"]) == 0
    assert main(["fit", "--config", "tiny.yaml", "--ckpt_path", "last", "--trainer.max_epochs", "2"]) == 0
    settings["model"]["class_path"] = "zoo.models.bahdanau.BahdanauNMT"
    Path("tiny.yaml").write_text(yaml.safe_dump(settings))
    capsys.readouterr()
    assert main(["test", "--config", "tiny.yaml", "--ckpt_path", "last"]) == 2
    assert "holds a zoo.models.luong.LuongNMT, and the model of the recipe" in capsys.readouterr().err


def test_a_warning_that_may_matter_is_shown():
    with pytest.warns(UserWarning) as found, quiet():
        rank_zero_warn("The 'val_dataloader' does not have many workers which may be a bottleneck.")
        rank_zero_warn("You called `self.log('val/loss')` but have no logger configured.")
    assert [str(warning.message)[:15] for warning in found] == ["You called `sel"]


def test_evaluation_says_once_how_it_scores(recipe, capsys, monkeypatch):
    monkeypatch.setattr(Dates, "exact_only", False)
    recipe("run", {"max_epochs": 1})
    for verb, beam_size in [("fit", None), ("test", 5), ("validate", 1)]:
        assert main([verb, "--config", "tiny.yaml", *(["--ckpt_path", "last"] if verb != "fit" else [])]) == 0
        out = capsys.readouterr().out
        found = [line.split() for line in out.splitlines() if "nrefs:" in line]  # score, value, signature
        names = [f"{'val' if verb == 'validate' else verb}/{name}" for name in ("bleu", "sacrebleu", "chrf")]
        assert [parts[0] for parts in found] == ([] if verb == "fit" else names)
        assert all(0 <= float(parts[1]) <= 100 for parts in found)
        assert out.count(f", beam {beam_size}, length penalty 1.0, fp32") == (verb != "fit")
        if found:
            assert found[0][2].startswith("moses:lc.norm.tok-en|") and found[1][2].startswith("nrefs:1|case:mixed|")


def _val_losses(folder):
    with open(folder / "runs/tiny/version_0/metrics.csv", newline="") as file:
        return [float(row["val/loss"]) for row in csv.DictReader(file) if row.get("val/loss")]


def test_two_processes_compute_what_one_computes(recipe, tmp_path):
    trainer, model = {"max_epochs": 2}, {"dropout": 0.0}
    recipe("one", trainer, model, {"batch_size": 16})
    assert main(["fit", "--config", "tiny.yaml"]) == 0
    recipe("two", {**trainer, "devices": 2, "strategy": "ddp"}, model, {"batch_size": 8})
    torchrun(2, command, "fit", "--config", "tiny.yaml")

    files = sorted(
        str(f.relative_to(tmp_path / "two"))
        for f in (tmp_path / "two" / "runs").rglob("*")
        if f.is_file() and f.name != ".lock"
    )
    logs, checkpoints = ["config.yaml", "metrics.csv"], ["best.ckpt", "last.ckpt"]
    expected = [*(f"checkpoints/{name}" for name in checkpoints), "learning_curves.png", "metrics.csv"]
    expected += [f"version_0/{name}" for name in logs]
    assert files == [f"runs/tiny/{name}" for name in expected]

    one, two = (_val_losses(tmp_path / folder) for folder in ("one", "two"))
    assert len(one) == 2 and two == pytest.approx(one, rel=1e-5)
    one, two = (_checkpoint(tmp_path / f / "runs/tiny/checkpoints/last.ckpt")["state_dict"] for f in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-5, atol=1e-5 * tensor.abs().max().item(), msg=name)
