"""What a training leaves for its user: one table of all starts, a picture, short lines in a log file, other loggers."""

import math
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from fakes import settings
from forks import Fork, command
from lightning.pytorch.loggers import CSVLogger, Logger

from zoo.cli import main
from zoo.training import lightning_cli, loggers, logs
from zoo.training.logs import RunTable, draw, joined
from zoo.utils.extras import LOGGERS

RUN = Path("runs/toy")
CUT = {"class_path": "fakes.CutAt", "init_args": {"place": "on_train_batch_start", "count": 4, "by": "SIGTERM"}}


@pytest.fixture
def fit(tmp_path, monkeypatch):
    """Trains toy.yaml, of two steps an epoch, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def train(*args, epochs=3, run=lambda *arguments: main([*arguments]), **trainer):
        parts = {"max_epochs": epochs, "accelerator": "cpu", "enable_model_summary": False, "log_every_n_steps": 1}
        model, data = {"class_path": "fakes.Toy", "init_args": {"dropout": 0.0}}, {"class_path": "fakes.ToyData"}
        recipe = {"trainer": parts | trainer, "model": model, "data": data, **settings()}
        Path("toy.yaml").write_text(yaml.safe_dump(recipe))
        return run("fit", "--config", "toy.yaml", *args)

    return train


def stopped(*arguments):
    """The last line of a command that SIGTERM ends. In a process of its own: one that does not heed it would end others'."""
    end = Fork(command, *arguments).wait()
    assert end.code == 128 + signal.SIGTERM, end.output
    return end.output.splitlines()[-1]


# ---- one table ----


def _start(folder, number, *rows, config=""):
    place = folder / f"version_{number}"
    place.mkdir()
    (place / "config.yaml").write_text(f"seed_everything: 0\n{config}")
    (place / "metrics.csv").write_text("\n".join(["epoch,step,train/loss,val/loss", *rows, ""]))
    return place


def _joined(folder):
    return [(int(row["step"]), row["train/loss"] or row["val/loss"]) for row in joined(folder)]


def test_later_starts_take_the_place_of_the_steps_that_they_repeat(tmp_path):
    assert joined(tmp_path) == []
    _start(tmp_path, 0, "0,1,a,", "0,3,b,", "0,3,,c", "1,5,d,", "1,7,e,")
    _start(tmp_path, 2, "1,5,f,", "1,7,,g", "2,9,h,")  # resumed after step 3
    (tmp_path / "version_1").mkdir()  # ended before it logged anything
    assert _joined(tmp_path) == [(1, "a"), (3, "b"), (3, "c"), (5, "f"), (7, "g"), (9, "h")]
    _start(tmp_path, 10, "3,11,i,", "3,1")  # by number, not by name; a process was killed in the last line
    assert _joined(tmp_path)[-3:] == [(7, "g"), (9, "h"), (11, "i")]
    _start(tmp_path, 11, "0,0,,x", config="verbose: true\n")  # `zoo validate`
    assert _joined(tmp_path)[-1] == (11, "i") and len(_joined(tmp_path)) == 7


def test_a_resumed_training_has_the_table_of_a_whole_one(fit, capsys):
    assert fit(enable_progress_bar=False) == 0
    whole = (RUN / "metrics.csv").read_text()
    steps = [line.split(",")[1] for line in whole.splitlines()[1:]]
    assert steps == ["1", "3", "5"] and whole.startswith("epoch,step,val/loss\n")
    os.rename("runs", "whole")
    # in the middle of an epoch: its first step is done twice
    assert fit(run=stopped, enable_progress_bar=False, callbacks=[CUT]).startswith("zoo: stopped by SIGTERM; ")
    assert 1 < len((RUN / "metrics.csv").read_text().splitlines()) < 4
    assert main(["validate", "--config", "toy.yaml", "--ckpt_path", "last"]) == 0  # its scores are not in the table
    assert fit("--ckpt_path", "last", enable_progress_bar=False) == 0
    assert (RUN / "metrics.csv").read_text() == whole and len(list(RUN.glob("version_*"))) == 3


@pytest.mark.parametrize(
    "wanted, batches, accumulated, logs",
    [
        (50, 2, 1, 2),
        (50, 700, 1, 50),
        (50, math.inf, 1, 50),
        (7, 2, 1, 7),
        (50, 0, 1, 1),
        (50, 6, 4, 1),
        (50, 80, 4, 20),
    ],
)
def test_a_short_epoch_logs_its_training_loss(wanted, batches, accumulated, logs):
    """The Trainer's default would log none in an epoch of fewer than 50 steps."""
    trainer = SimpleNamespace(
        log_every_n_steps=wanted, num_training_batches=batches, accumulate_grad_batches=accumulated
    )
    RunTable().on_train_start(trainer, None)
    assert trainer.log_every_n_steps == logs


# ---- the picture ----


def test_learning_curves(fit, capsys, monkeypatch):
    """Of two validations at least, and with matplotlib."""
    assert fit(epochs=2) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "learning curves" in line)
    assert line.split() == ["learning", "curves", "runs/toy/learning_curves.png"]
    assert (RUN / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert draw(SimpleNamespace(loggers=[CSVLogger("runs", "toy")]), None) is None


def test_what_is_drawn(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(logs, "learning_curves", lambda *arguments: drawn.append(arguments[1:]))
    trainer = SimpleNamespace(loggers=[CSVLogger(tmp_path, "")])
    draw(trainer, None)
    _start(tmp_path, 0, "0,1,4,", "0,3,,3")
    draw(trainer, None)
    assert drawn == []  # a point is no curve
    (_start(tmp_path, 1) / "metrics.csv").write_text(
        "epoch,step,train/loss,val/accuracy,val/loss\n1,5,2,,\n1,7,,50,1\n2,9,nan,,\n2,11,,60,2\n"
    )
    losses = {"train/loss": [(2, 4.0), (6, 2.0)], "val/loss": [(4, 3.0), (8, 1.0), (12, 2.0)]}
    accuracy = {"val/accuracy": [(8, 50.0), (12, 60.0)]}
    for monitor, mode in (("val/loss", "min"), ("val/accuracy", "max"), ("val/nothing", "max")):
        draw(trainer, SimpleNamespace(monitor=monitor, mode=mode))
    name = tmp_path.name
    assert drawn == [(losses, accuracy, 8, name), (losses, accuracy, 12, name), (losses, {}, None, name)]


def test_half_a_line_is_not_read(tmp_path):
    """A process that was killed while it wrote; the last number may be cut, too."""
    start = _start(tmp_path, 0, "0,1,4,2", "0,3,3,1.2")
    (start / "metrics.csv").write_text((start / "metrics.csv").read_text().rstrip("\n")[:-1] + "e-")
    assert [row["step"] for row in logs._rows(start)] == ["1"]


# ---- lines ----


def test_a_log_file_gets_a_line_for_each_validation(fit, capsys, monkeypatch):
    assert fit(epochs=2) == 0
    shown = capsys.readouterr().out
    lines = [line for line in shown.splitlines() if line.startswith("epoch ")]
    assert [line.split(",")[:2] for line in lines] == [[f"epoch {n}", f" step {2 * n}"] for n in (1, 2)]
    assert all(line.count("val/loss ") == 1 and line.endswith(" s") for line in lines)
    assert "it/s" not in shown and len(shown) < 1000

    for n, (args, terminal) in enumerate([(("--trainer.enable_progress_bar", "true"), False), ((), True)]):
        monkeypatch.setattr(lightning_cli, "is_terminal", lambda terminal=terminal: terminal)
        assert fit("--trainer.default_root_dir", str(n), *args, epochs=1) == 0
        shown = capsys.readouterr().out
        assert "it/s" in shown and not [line for line in shown.splitlines() if line.startswith("epoch ")]

    monkeypatch.setattr(lightning_cli, "is_terminal", lambda: False)
    assert fit("--trainer.default_root_dir", "quiet", epochs=1, enable_progress_bar=False) == 0
    shown = capsys.readouterr().out
    assert "it/s" not in shown and "val/loss" not in shown.partition("Training:")[0]


# ---- other loggers ----


class Recorder(Logger):
    """Keeps what it is given."""

    made: list["Recorder"] = []
    name, version = "recorder", 0

    def __init__(self, *args, **options):
        super().__init__()
        self.arguments, self.rows = (args, options), []
        self.made.append(self)

    def log_metrics(self, metrics, step=None):
        self.rows.append((step, metrics))

    def log_hyperparams(self, *_):
        pass


class SignInError(Exception):
    """As that of wandb."""

    __module__ = "wandb.errors"


@pytest.fixture
def recorders(monkeypatch):
    """Takes the place of both loggers, whose packages seem to be there."""
    Recorder.made = []
    for name in ("TensorBoardLogger", "WandbLogger"):
        monkeypatch.setattr(loggers, name, Recorder)
    monkeypatch.setattr(loggers, "require", lambda *_: None)
    return Recorder.made


def test_log(fit, recorders, monkeypatch, capsys):
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    assert fit("--log", "tensorboard,wandb", epochs=1) == 0
    tensorboard, wandb = recorders
    assert tensorboard.arguments == ((RUN, None, "tensorboard"), {"default_hp_metric": False})
    assert wandb.arguments == ((), {"name": "toy", "save_dir": RUN, "project": "attention-zoo"})
    for recorder in recorders:
        assert [step for step, row in recorder.rows if "val/loss" in row] == [1]
    assert len((RUN / "metrics.csv").read_text().splitlines()) == 2  # next to the table
    assert (RUN / "version_0/config.yaml").is_file()

    assert fit("--log", "tensorboard", "--ckpt_path", "last", epochs=2) == 0
    assert recorders[-1].arguments[1]["purge_step"] == 2

    def refused(*_, **__):
        raise SignInError("No API key configured")

    monkeypatch.setattr(Recorder, "log_metrics", refused)
    capsys.readouterr()
    assert fit("--log", "wandb", "--trainer.default_root_dir", "other") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        "zoo: error: --log wandb: SignInError: No API key configured; log in with `wandb login`, or set "
        "WANDB_MODE=offline"
    )


@pytest.mark.parametrize("name", LOGGERS)
def test_a_missing_logger_is_said_before_anything_is_written(name, fit, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    assert fit("--log", name) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f'zoo: error: --log {name} needs {name}; install with: pip install "{LOGGERS[name][0]}"'
    assert not RUN.exists()


def test_an_unknown_logger(fit, capsys):
    assert fit("--log", "csv") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == "zoo: error: --log must be one of tensorboard, wandb, or several joined by commas; got 'csv'"


def test_loggers_of_a_recipe_stay(fit, recorders):
    own = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "mine", "name": "logs"}}
    assert fit("--log", "wandb", epochs=1, logger=own) == 0
    assert Path("mine/logs/metrics.csv").is_file() and recorders[0].rows
    assert fit("--trainer.default_root_dir", "none", epochs=1, logger=False) == 0
    assert not list(Path("none").rglob("metrics.csv"))


@pytest.mark.slow
def test_tensorboard_itself(fit):
    """A resumed training is one curve."""
    found = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard")
    assert fit("--log", "tensorboard", epochs=2) == fit("--log", "tensorboard", "--ckpt_path", "last") == 0
    events = found.EventAccumulator(str(RUN / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("val/loss")] == [1, 3, 5]


# ---- resuming ----


def test_the_command_that_resumes_has_every_option(fit):
    """As it was typed, with --import, and with --ckpt_path once."""
    Path("mechanisms.py").write_text("")
    options = ["--import", "mechanisms", "--trainer.default_root_dir", "my runs", "--optimizer.lr=0.01"]
    assert fit(*options, "--ckpt_path=last", run=stopped, callbacks=[CUT]) == (
        "zoo: stopped by SIGTERM; resume with: zoo fit --config toy.yaml --trainer.default_root_dir 'my runs' "
        "--optimizer.lr=0.01 --import mechanisms --ckpt_path last"
    )
