"""A place for small comparisons, whose jobs run within the process of the tests."""

import contextlib
import io
import random
from pathlib import Path

import pytest
import yaml
from comparison_fakes import play_evaluation, play_training

from zoo.cli import main
from zoo.comparison import evaluation, measures, pictures, runner
from zoo.data.common.cache import replace_file

RECIPES = Path(__file__).parents[2] / "recipes" / "comparison"
WORDS = "ein Hund läuft über die kleine Straße im Schnee mit roten Bällen und springt".split()
SPACE = """\
epochs: 1
settings:
  optimizer.lr: [0.002, 0.02]
  model.dropout: [0.1, 0.3]
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Small data, and small recipes made of the real ones; the processes of a job run within this one."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measures, "WARM_UP", 5)  # of 20 steps
    monkeypatch.setattr(pictures, "DPI", 20)  # small pictures take less time
    rng = random.Random(0)
    folder = tmp_path / "data" / "multi30k"
    folder.mkdir(parents=True)
    for part, count in {"train": 36, "val": 8, "test_2016_flickr": 12, "test_2017_flickr": 2}.items():
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(count)]
        (folder / f"{part}.en").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (folder / f"{part}.de").write_text("".join(f"{line.upper()}\n" for line in lines), encoding="utf-8")
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    base = yaml.safe_load((RECIPES / "base.yaml").read_text(encoding="utf-8"))
    sizes = dict(src_vocab_size=120, tgt_vocab_size=120, embedding_size=12, hidden_size=12)
    base["model"]["init_args"] |= sizes
    base["lr_scheduler"]["init_args"] |= dict(warmup_steps=4)
    base["data"]["init_args"] |= dict(vocab_size=120, batch_size=3)
    base["trainer"] |= dict(max_epochs=2, precision="32-true", accelerator="cpu", num_sanity_val_steps=0)
    (recipes / "base.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    (recipes / "search.yaml").write_text(SPACE, encoding="utf-8")
    own = {
        "dot": "# Dot score.\nmodel: {class_path: zoo.models.luong.LuongNMT, init_args: {score: dot}}\n",
        "none": "# Nothing.\nmodel: {class_path: zoo.models.seq2seq.Seq2SeqNMT, init_args: {hidden_size: 12}}\n",
    }
    for name, text in own.items():
        (recipes / f"{name}.yaml").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def within(monkeypatch):
    """Runs the processes of jobs in this one, which takes no time to start; returns the list of what was run."""
    commands = []

    def run(self, job, command, slot, lock):
        commands.append([job.name, command[0]])
        if command[0] == "zoo":
            with contextlib.redirect_stderr(io.StringIO()):
                failed = main(command[1:])
            if failed:
                raise runner._FailedError("it is broken")
        else:
            evaluation.evaluate(command[1])

    monkeypatch.setattr(runner.Runner, "_process", run)
    return commands


@pytest.fixture
def played(monkeypatch):
    """Like `within`, but nothing is trained, evaluated or drawn: the files of a job are made up."""
    commands = []

    def run(self, job, command, slot, lock):
        commands.append([job.name, command[0]])
        if command[0] == "zoo":
            play_training(job.folder, dict(zip(command[6::2], command[7::2])))
        else:
            play_evaluation(job)

    monkeypatch.setattr(runner.Runner, "_process", run)
    monkeypatch.setattr(pictures, "save", lambda figure, path, **options: replace_file(path, b"\x89PNG"))
    return commands


@pytest.fixture(params=["played", pytest.param("within", marks=pytest.mark.slow)])
def jobs(request):
    """The list of what was run, of jobs that are made up, and slowly of real ones."""
    return request.getfixturevalue(request.param)
