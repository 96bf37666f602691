"""`--trainer.strategy fsdp` in two CPU processes learns, saves and resumes as ddp does; what is missing is said."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
import yaml
from forks import Fork, command

from zoo.cli import main
from zoo.training.sharding import FullyShardedStrategy, strategy


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes tiny.yaml, a training of some seconds, and goes there."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    options = {"accelerator": "cpu", "devices": 2, "max_epochs": 2, "gradient_clip_val": 0.5}
    sizes = {"src_vocab_size": 80, "tgt_vocab_size": 20, "embedding_size": 8, "hidden_size": 8, "dropout": 0.3}
    parts = {
        "trainer": {**options, "enable_progress_bar": False, "enable_model_summary": False},
        "model": {"class_path": "zoo.models.luong.LuongNMT", "init_args": sizes},
        "data": {
            "class_path": "zoo.data.Dates",
            "init_args": {"train_size": 100, "val_size": 5, "test_size": 5, "batch_size": 4},
        },
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(parts))
    return tmp_path


def _fit(folder, strategy, *options):
    command = [sys.executable, "-m", "zoo", "fit", "--config", "tiny.yaml", "--trainer.strategy", strategy]
    run = subprocess.run(
        [*command, "--trainer.default_root_dir", folder, *options], capture_output=True, text=True, timeout=400
    )
    assert run.returncode == 0, run.stderr
    return torch.load(f"{folder}/tiny/checkpoints/last.ckpt", weights_only=True)


@pytest.mark.slow
def test_fsdp_trains_saves_resumes_and_exports(recipe, capsys):
    ddp, fsdp = _fit("ddp", "ddp"), _fit("fsdp", "fsdp")
    assert fsdp["hyper_parameters"] == ddp["hyper_parameters"] and fsdp["global_step"] == ddp["global_step"] == 26
    for name, tensor in ddp["state_dict"].items():
        torch.testing.assert_close(fsdp["state_dict"][name], tensor, rtol=1e-4, atol=1e-6)
    moments = [
        {name: state["exp_avg"] for name, state in found["optimizer_states"][0]["state"].items()}
        for found in (ddp, fsdp)
    ]
    torch.testing.assert_close(moments[1], moments[0], rtol=1e-3, atol=1e-6)

    _fit("resumed", "fsdp", "--trainer.max_epochs", "1")
    resumed = _fit("resumed", "fsdp", "--ckpt_path", "last")
    assert all(torch.equal(tensor, resumed["state_dict"][name]) for name, tensor in fsdp["state_dict"].items())

    _fit("changed", "ddp", "--trainer.max_epochs", "1")
    changed = _fit("changed", "fsdp", "--ckpt_path", "last")
    for name, tensor in ddp["state_dict"].items():
        torch.testing.assert_close(changed["state_dict"][name], tensor, rtol=1e-4, atol=1e-6)

    assert main(["export", "fsdp/tiny/checkpoints/last.ckpt", "weights"]) == 0
    assert main(["predict", "local-dir:weights", "tuesday july 8 2008"]) == 0


@pytest.mark.parametrize("strategy", ["ddp_notebook", "ddp_fork", "ddp_spawn"])
def test_processes_that_are_copies(strategy, recipe, capsys):
    """The report of the training and its checkpoints would be theirs."""
    assert main(["fit", "--config", "tiny.yaml", "--trainer.strategy", strategy]) == 2
    assert capsys.readouterr().err.endswith(
        "zoo: error: trainer: in several processes that are copies of this one, the checkpoints and scores are lost; "
        "take --trainer.strategy ddp (in a notebook with !zoo), or --trainer.devices 1\n"
    )


def test_deepspeed_that_is_missing(recipe, capsys, monkeypatch):
    find = importlib.util.find_spec
    hidden = ("deepspeed",)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name in hidden else find(name, *more))
    assert main(["fit", "--config", "tiny.yaml", "--trainer.strategy", "deepspeed_stage_2"]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith(
            "trainer.strategy deepspeed_stage_2 needs a GPU and the package deepspeed; install with: pip install "
            "deepspeed, or take fsdp, which needs neither"
        )
    )


def test_averages_of_shards_are_refused(recipe):
    average = ["--trainer.callbacks+", "zoo.training.averaging.EMAWeights"]
    options = ["--config", "tiny.yaml", "--trainer.strategy", "fsdp", "--trainer.devices", "1", *average]
    refused = Fork(command, "fit", *options).wait()  # the strategy makes its process the first of a group
    assert refused.code == 2
    assert (
        "trainer.strategy fsdp cannot be combined with EMAWeights; leave it out of the recipe's callbacks, or use "
        "trainer.strategy ddp"
    ) in refused.output


def test_other_strategies_are_lightnings():
    assert isinstance(strategy("fsdp"), FullyShardedStrategy)
    assert strategy("ddp") == "ddp" and strategy(None) is None
