"""What `zoo fit` writes and reads: whole or named in one line, from local files, and one training a folder."""

import errno
import logging
import os
import random
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from filelock import FileLock
from lightning.pytorch import Trainer

import zoo
from zoo.cli import main
from zoo.data import Dates
from zoo.models.luong import LuongNMT
from zoo.training import checkpoints
from zoo.training import lightning_cli as training
from zoo.training.checkpoints import (
    AtomicCheckpointIO,
    NotWrittenError,
    StopAtNaN,
    local_file,
    model_of,
    read_checkpoint,
)
from zoo.utils.shell import command_line

LAST, BEST = (f"runs/tiny/checkpoints/{name}.ckpt" for name in ("last", "best"))
RECIPE = {
    "trainer": {
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_epochs": 1,
        "log_every_n_steps": 1,
    },
    "model": {
        "class_path": "zoo.models.luong.LuongNMT",
        "init_args": {
            "src_vocab_size": 80,
            "tgt_vocab_size": 20,
            "embedding_size": 8,
            "hidden_size": 8,
            "dropout": 0.3,
        },
    },
    "data": {
        "class_path": "zoo.data.Dates",
        "init_args": {"train_size": 48, "val_size": 9, "test_size": 9, "batch_size": 16},
    },
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with tiny.yaml and the checkpoints of a training of three steps."""
    folder = tmp_path_factory.mktemp("trained")
    here, cache = os.getcwd(), os.environ.get("ZOO_CACHE")
    os.chdir(folder)
    os.environ["ZOO_CACHE"] = str(folder / "cache")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(RECIPE))
    try:
        assert main(["fit", "--config", "tiny.yaml"]) == 0
    finally:
        os.chdir(here)
        os.environ.pop("ZOO_CACHE") if cache is None else os.environ.update(ZOO_CACHE=cache)
    return folder


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A copy of it, in which the test is."""
    monkeypatch.setenv("ZOO_CACHE", str(trained / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text((trained / "tiny.yaml").read_text())
    os.makedirs(os.path.dirname(LAST))
    for name in (LAST, BEST):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    return tmp_path


def fails(capsys, *args):
    """The one line of a command that fails."""
    capsys.readouterr()
    assert main(list(args)) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("zoo: ")]
    return line.removeprefix("zoo: error: ")


def fit(*options):
    return ["fit", "--config", "tiny.yaml", *options]


# ---- reading ----


@pytest.mark.parametrize(
    "url",
    ["http://h/x.ckpt", "https://h/x.ckpt", "memory://x", "hf://a/b", "s3://a/b", "simplecache::s3://a/b", "file:///x"],
)
def test_urls_are_refused(url, place, capsys):
    with pytest.raises(ValueError, match="checkpoints are read from local files only"):
        local_file(url)
    with pytest.raises(ValueError, match="checkpoints are read from local files only"):
        AtomicCheckpointIO().load_checkpoint(url)


@pytest.mark.parametrize("verb", ["fit", "validate", "test"])
def test_urls_on_the_command_line(verb, place, capsys):
    line = fails(capsys, verb, "--config", "tiny.yaml", "--ckpt_path", "http://127.0.0.1:1/x.ckpt")
    assert line.startswith("http://127.0.0.1:1/x.ckpt: checkpoints are read from local files only")


def test_a_folder_whose_name_looks_like_a_url(place):
    os.rename("runs", "http_runs")
    name = LAST.replace("runs", "http_runs")
    assert main(fit("--ckpt_path", name, "--trainer.default_root_dir", "http_runs", "--trainer.max_epochs", "2")) == 0


def test_flipped_bits_are_found_or_harmless(place):
    whole = read_checkpoint(LAST)["state_dict"]
    data, rng, found = (place / LAST).read_bytes(), random.Random(1), 0
    for _ in range(60):
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (place / "flipped.ckpt").write_bytes(flipped)
        try:
            state = read_checkpoint("flipped.ckpt")["state_dict"]
        except ValueError as error:
            found += "is damaged" in str(error)
        else:
            assert state.keys() == whole.keys() and all(
                torch.equal(tensor, whole[name]) for name, tensor in state.items()
            )
    assert found > 30


def test_a_damaged_checkpoint_names_a_whole_one(place, capsys):
    data = bytearray((place / LAST).read_bytes())
    at = data.index(read_checkpoint(LAST)["state_dict"]["embeddings.src_table.weight"].numpy().tobytes()[:64])
    data[at] ^= 1
    (place / LAST).write_bytes(data)
    for args in (
        fit("--ckpt_path", "last"),
        ["test", "--config", "tiny.yaml", "--ckpt_path", "last"],
        ["export", LAST, "weights"],
    ):
        assert (
            fails(capsys, *args)
            == f"{LAST} is not a checkpoint, or is damaged; {BEST} is intact: give --ckpt_path {BEST}"
        )


def test_a_path_with_a_blank_is_quoted(place, capsys):
    """In what is to be copied."""
    folder = Path("my runs")
    folder.mkdir()
    (folder / "last.ckpt").write_bytes(b"damaged")
    (folder / "best.ckpt").write_bytes((place / BEST).read_bytes())
    quoted = command_line([str(folder / "best.ckpt")])
    assert quoted != str(folder / "best.ckpt")
    assert fails(capsys, "export", "my runs/last.ckpt", "weights").endswith(f"is intact: give --ckpt_path {quoted}")
    line = fails(capsys, "predict", "my runs", "a")
    assert line.endswith(f"for the folder of that name: {command_line(['local-dir:my runs'])}")


class Code:
    def __reduce__(self):
        return os.mkdir, ("run",)


def changed(field, value):
    return lambda whole: {**whole, field: value}


CRAFTED = {
    "code": (changed("x", Code()), "or is damaged"),
    "list": (lambda whole: [1], "it is not a dictionary"),
    "nothing": (lambda whole: {}, "it has no state_dict"),
    "weights": (lambda whole: {"state_dict": whole["state_dict"]}, "it has no hyper_parameters"),
    "type": (changed("state_dict", 5), "its state_dict has a wrong type"),
    "no tensors": (changed("state_dict", {"a": 1}), "its state_dict holds values that are not tensors"),
    "no class": (changed("hyper_parameters", {}), "it does not name a model class"),
    "foreign class": (changed("hyper_parameters", {"_class_path": "os.system"}), "os.system"),
    "assets": (changed("zoo_assets", {"a": 1}), "its zoo_assets hold values that are not texts"),
    "other assets": (changed("zoo_assets", {"a": "{"}), "tokenizer.src.json"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_checkpoints(name, place, capsys):
    make, message = CRAFTED[name]
    torch.save(make(read_checkpoint(LAST)), "crafted.ckpt")
    for args in (
        ["export", "crafted.ckpt", "weights"],
        fit("--ckpt_path", "crafted.ckpt", "--trainer.max_epochs", "2"),
    ):
        assert message in fails(capsys, *args)
    assert not os.path.exists("run") and not os.path.exists("weights")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("loops", {}),
        ("loops", {"fit_loop": 5}),
        ("optimizer_states", []),
        ("lr_schedulers", [5]),
        ("callbacks", 3),
        ("zoo_training", [1]),
        ("zoo_training", {"optimizer": {}}),
        ("zoo_training", {"optimizer": {"class_path": 1}}),
        ("zoo_training", {"model": None}),
        ("zoo_training", {"model": {"class_path": "a", "init_args": [1]}}),
    ],
)
def test_crafted_states_of_a_training(field, value, place, capsys):
    torch.save({**read_checkpoint(LAST), field: value}, "crafted.ckpt")
    line = fails(
        capsys, *fit("--ckpt_path", "crafted.ckpt", "--trainer.max_epochs", "2", "--trainer.default_root_dir", "other")
    )
    assert "crafted.ckpt" in line
    assert model_of("crafted.ckpt").config["hidden_size"] == 8  # the model in it is whole


@pytest.mark.parametrize("what", ["empty", "truncated", "folder", "fifo", "missing"])
def test_files_that_are_no_checkpoints(what, place, capsys):
    path = place / "x.ckpt"
    if what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what != "missing":
        path.write_bytes((place / LAST).read_bytes()[: 0 if what == "empty" else 2000])
    message = {"folder": "is not a file", "fifo": "is not a file", "missing": "no such file"}.get(
        what, "is not a checkpoint, or is damaged"
    )
    for args in (fit("--ckpt_path", "x.ckpt"), ["export", "x.ckpt", "weights"]):
        assert message in fails(capsys, *args)


# ---- writing ----


def test_a_full_disk(place, capsys, monkeypatch):
    """The line names the checkpoint that is whole, and how to resume."""
    before = (place / LAST).read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.raises(NotWrittenError, match=r"^new.ckpt could not be written \(No space left on device\)$"):
        AtomicCheckpointIO().save_checkpoint({}, "new.ckpt")
    monkeypatch.setattr(training, "write_text", lambda *_: None)  # config.yaml, which is written before
    line = fails(capsys, *fit("--ckpt_path", "last", "--trainer.max_epochs", "3"))
    assert "could not be written (No space left on device); the earlier " in line
    assert line.endswith(
        "make room, then resume with: zoo fit --config tiny.yaml --trainer.max_epochs 3 --ckpt_path last"
    )
    assert (place / LAST).read_bytes() == before and sorted(os.listdir(place / "runs/tiny/checkpoints")) == [
        "best.ckpt",
        "last.ckpt",
    ]


def test_nan_ends_a_training(place, capsys):
    options = ("--optimizer.lr", "1e30", "--trainer.default_root_dir", "diverged")
    assert fails(capsys, *fit(*options)).startswith("the weights are NaN or infinite after ")
    assert not list(place.glob("diverged/**/*.ckpt"))


def test_a_run_that_was_moved_keeps_its_best(place):
    """The scores of the best checkpoint go with it: a worse model does not take its place."""
    found = read_checkpoint(LAST)
    (name,) = [name for name in found["callbacks"] if name.startswith("ExactCheckpoints")]
    state = found["callbacks"][name]
    state["best_model_score"] = state["kth_value"] = torch.tensor(-1.0)
    state["best_k_models"] = {path: torch.tensor(-1.0) for path in state["best_k_models"]}
    torch.save(found, LAST)
    best = (place / BEST).read_bytes()
    os.mkdir("elsewhere")
    os.rename("runs", "elsewhere/runs")
    assert (
        main(fit("--ckpt_path", "last", "--trainer.max_epochs", "2", "--trainer.default_root_dir", "elsewhere/runs"))
        == 0
    )
    assert (place / "elsewhere" / BEST).read_bytes() == best and read_checkpoint(f"elsewhere/{LAST}")[
        "global_step"
    ] == 6


@pytest.mark.parametrize(
    ("saving", "wrong"),
    [
        ({"monitor": "val/exact"}, "val/exact"),
        ({"monitor": "loss"}, "loss"),
        ({"monitor": "val/loss", "tie": "x"}, "x"),
    ],
)
def test_a_score_that_there_is_not_is_said_before_the_training_has_no_best(saving, wrong, place, capsys):
    saving = {"filename": "best", "save_last": True, **saving}
    callback = {"class_path": "zoo.training.checkpoints.ExactCheckpoints", "init_args": saving}
    recipe = {**RECIPE, "trainer": {**RECIPE["trainer"], "callbacks": [callback], "default_root_dir": "other"}}
    (place / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    line = fails(capsys, *fit())
    assert line.startswith(f"ExactCheckpoints: there is no score '{wrong}'; choose among epoch, step, train/loss, val/")


def test_early_stopping_by_a_score_that_there_is_not_ends_with_a_line(place, capsys):
    callback = {"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": {"monitor": "val/los"}}
    recipe = {**RECIPE, "trainer": {**RECIPE["trainer"], "callbacks": [callback], "default_root_dir": "other"}}
    (place / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    line = fails(capsys, *fit())
    assert (
        line.startswith("Early stopping conditioned on metric `val/los` which is not available. ")
        and "val/loss" in line
    )


@pytest.mark.parametrize("part", ["state_dict", "current_model_state"])
def test_neither_an_average_nor_the_weights_beside_it_are_saved_with_nan(part):
    weights = {name: {"w": torch.ones(2)} for name in ("state_dict", "current_model_state")}
    trainer, stop = SimpleNamespace(global_step=7), StopAtNaN()
    stop.on_save_checkpoint(trainer, None, {**weights})
    with pytest.raises(ValueError, match="the weights are NaN or infinite after 7 steps"):
        stop.on_save_checkpoint(trainer, None, {**weights, part: {"w": torch.tensor([1.0, torch.nan])}})


# ---- settings ----


@pytest.mark.parametrize(
    "option", ["--model.dropout=0.5", "--model.init_args.hidden_size=9", "--model=zoo.models.bahdanau.BahdanauNMT"]
)
@pytest.mark.parametrize("verb", ["fit", "validate"])
def test_the_model_of_a_checkpoint_cannot_be_changed(option, verb, place, capsys):
    line = fails(capsys, verb, "--config", "tiny.yaml", "--ckpt_path", "last", option)
    assert "last.ckpt" in line and ("cannot become" in line or "BahdanauNMT" in line)


def test_what_the_checkpoint_has_may_be_repeated(place):
    assert main(fit("--ckpt_path", "last", "--trainer.max_epochs", "2", "--model.dropout", "0.3")) == 0


def _with_optimizer(class_path, **arguments):
    with open("tiny.yaml", "w") as file:
        yaml.safe_dump({**RECIPE, "optimizer": {"class_path": class_path, "init_args": arguments}}, file)


def test_another_optimizer_in_the_recipe_of_a_resumed_training_is_told(place, caplog):
    caplog.set_level(logging.INFO)
    _with_optimizer("zoo.tasks.optimizer.AdamW", lr=0.5)
    assert main(fit("--ckpt_path", "last", "--trainer.max_epochs", "2")) == 0
    assert "resumed with the optimizer of " in caplog.text
    assert "AdamW (lr 0.001, betas (0.9, 0.98), weight_decay 0.0): that of the recipe, AdamW (lr 0.5, " in caplog.text
    assert read_checkpoint(LAST)["zoo_training"]["optimizer"]["init_args"]["lr"] == 0.001
    (config,) = place.glob("runs/tiny/version_*/config.yaml")
    assert yaml.safe_load(config.read_text())["optimizer"]["init_args"]["lr"] == 0.001


def test_another_model_in_the_recipe_of_a_resumed_training_is_told(place, caplog):
    caplog.set_level(logging.INFO)
    before = read_checkpoint(LAST)["hyper_parameters"]["dropout"]
    model = {**RECIPE["model"], "init_args": {**RECIPE["model"]["init_args"], "dropout": 0.45}}
    with open("tiny.yaml", "w") as file:
        yaml.safe_dump({**RECIPE, "model": model}, file)
    assert main(fit("--ckpt_path", "last", "--trainer.max_epochs", "2")) == 0
    assert f"{LAST}, dropout {before}: what the recipe says of it now has no" in caplog.text
    assert read_checkpoint(LAST)["hyper_parameters"]["dropout"] == before


def test_the_same_optimizer_is_not_told(place, caplog):
    caplog.set_level(logging.INFO)
    _with_optimizer("zoo.tasks.optimizer.AdamW", lr=0.001)
    assert main(fit("--ckpt_path", "last")) == 0
    assert "resumed with" not in caplog.text


def test_a_resumed_training_keeps_the_class_of_its_optimizer(place, capsys):
    _with_optimizer("torch.optim.SGD", lr=0.5)
    line = fails(capsys, *fit("--ckpt_path", "last", "--trainer.max_epochs", "2"))
    assert "last.ckpt was trained with AdamW (lr 0.001, " in line and ", which cannot become SGD (lr 0.5, " in line
    assert line.endswith("; restore it in the recipe, or begin a new training")


@pytest.mark.parametrize("verb", ["fit", "test"])
def test_the_model_of_weights_cannot_be_changed(verb, place, capsys):
    line = fails(capsys, verb, "--config", "tiny.yaml", "--weights", "luong_dot.dates", "--model.dropout", "0.5")
    assert line.startswith("--model.dropout has no effect with --weights luong_dot.dates")


def test_weights_take_the_place_of_those_of_the_recipe(place, capsys):
    """Which may not exist yet."""
    (place / "other.yaml").write_text("""
model:
  class_path: zoo.load
  init_args: {name: not.trained.yet, overrides: {dropout: 0.2}}
data:
  class_path: zoo.data.Dates
  init_args: {train_size: 8, val_size: 8, test_size: 8}
""")
    assert fails(capsys, "test", "--config", "other.yaml").startswith("unknown model 'not.trained.yet'")
    assert main(["test", "--config", "other.yaml", "--weights", "luong_dot.dates"]) == 0
    assert "test/exact_match 100.00" in capsys.readouterr().out
    quiet = ["--trainer.max_steps", "1", "--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]
    assert main(["fit", "--config", "other.yaml", "--weights", "luong_dot.dates", *quiet]) == 0
    config = Path("runs/other/version_1/config.yaml")  # the test has written the first one
    assert yaml.safe_load(config.read_text())["model"]["init_args"]["overrides"] == {"dropout": 0.2}


def test_options_that_a_pretrained_vocabulary_would_ignore(place, capsys):
    line = fails(capsys, "fit", "--config", "tiny.yaml", "--weights", "luong_dot.dates", "--data.lowercase", "true")
    assert line == "--data.lowercase has no effect, as a pretrained weight keeps its vocabulary; leave it out"


def test_two_trainings_cannot_share_a_folder(place, capsys, monkeypatch):
    monkeypatch.setattr(training, "WAIT", 0.1)
    with FileLock("runs/tiny/.lock"):
        assert fails(capsys, *fit("--ckpt_path", "last")).startswith("another training is writing to runs/tiny: ")


def test_without_a_logger(place):
    for epochs in ("2", "3"):
        assert main(fit("--ckpt_path", "last", "--trainer.max_epochs", epochs, "--trainer.logger", "false")) == 0
    assert os.path.isfile("runs/tiny/config.yaml") and not os.path.exists("config.yaml")


@pytest.mark.parametrize(
    "setting",
    ["precision=16-true", "precision=bf16-true", "precision=64-true", "accumulate_grad_batches=0", "devices=-1", "devices=0",
     "log_every_n_steps=-1", "strategy=nothing", "accelerator=nothing", "val_check_interval=-3", "val_check_interval=0", "check_val_every_n_epoch=0", "num_nodes=0", "devices=99999"],
)  # fmt: skip
def test_settings_of_the_trainer(setting, place, capsys):
    assert setting.split("=")[0] in fails(capsys, *fit(f"--trainer.{setting}", "--trainer.default_root_dir", "other"))


# ---- the end ----


@pytest.mark.integration
@pytest.mark.parametrize(
    ("hook", "name"),
    [
        ("on_train_batch_start", "SIGTERM"),
        ("on_train_batch_start", "SIGINT"),
        ("on_train_batch_start", "SIGHUP"),
        ("on_validation_end", "SIGTERM"),
        pytest.param("on_validation_end", "SIGINT", marks=pytest.mark.slow),
        pytest.param("on_validation_end", "SIGHUP", marks=pytest.mark.slow),
    ],
)
def test_signals(name, hook, place, capsys, heeded):
    recipe = {**RECIPE, "trainer": {**RECIPE["trainer"], "max_epochs": 3}}
    cut = {"class_path": "fakes.CutAt", "init_args": {"place": hook, "count": 2, "by": name}}
    (place / "tiny.yaml").write_text(yaml.safe_dump({**recipe, "trainer": {**recipe["trainer"], "callbacks": [cut]}}))
    before = signal.getsignal(signal.Signals[name])
    with pytest.raises(SystemExit) as ended:
        main(fit("--ckpt_path", "last"))
    assert ended.value.code == 128 + signal.Signals[name] and signal.getsignal(signal.Signals[name]) is before
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f"zoo: stopped by {name}; resume with: zoo fit --config tiny.yaml --ckpt_path last"
    (place / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    assert main(fit("--ckpt_path", "last")) == 0 and read_checkpoint(LAST)["global_step"] == 9


def test_a_signal_before_the_first_checkpoint(place, capsys):
    cut = {"class_path": "fakes.CutAt", "init_args": {"place": "on_train_start", "count": 1, "by": "SIGTERM"}}
    (place / "new.yaml").write_text(yaml.safe_dump({**RECIPE, "trainer": {**RECIPE["trainer"], "callbacks": [cut]}}))
    with pytest.raises(SystemExit):
        main(["fit", "--config", "new.yaml"])
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == "zoo: stopped by SIGTERM; no checkpoint was written yet, so the same command begins again"
    )


def test_no_prediction_is_nan():
    model = zoo.load("structured_self_attention.trec6")
    with torch.no_grad():
        list(model.parameters())[-1].fill_(float("nan"))
    with pytest.raises(ValueError, match="the model computes NaN or infinite scores"):
        model.classify("Who was it ?")


# ---- which one is the best ----


def _saving(**options):
    init_args = {"filename": "best", "monitor": "val/loss", "save_last": True, "every_n_train_steps": 3, **options}
    callback = {"class_path": "zoo.training.checkpoints.ExactCheckpoints", "init_args": init_args}
    return {**RECIPE, "trainer": {**RECIPE["trainer"], "callbacks": [callback], "max_epochs": 3}}


@pytest.mark.parametrize("steps", [2, 3, 5])
@pytest.mark.parametrize(
    "check", [{}, {"val_check_interval": 2}, {"accumulate_grad_batches": 2, "val_check_interval": 2}]
)
def test_the_best_checkpoint_is_the_one_that_was_scored(steps, check, place, capsys, caplog):
    """Lightning gives the weights of a due step the score of the validation before it."""
    caplog.set_level(logging.INFO)
    recipe = _saving(every_n_train_steps=steps)
    recipe["trainer"] |= check
    (place / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    os.remove(LAST)
    os.remove(BEST)
    assert main(fit("--optimizer.lr", "0.02")) == 0
    (saved,) = (state for name, state in read_checkpoint(LAST)["callbacks"].items() if "ExactCheckpoints" in name)
    block = capsys.readouterr().out
    assert main(["validate", "--config", "tiny.yaml", "--ckpt_path", "best"]) == 0
    loss = float(re.search(r"val/loss +([\d.]+)", capsys.readouterr().out)[1])
    assert loss == pytest.approx(saved["best_model_score"].item(), abs=1e-4)
    assert f"{'val/loss':<17} {loss:.4f}" in block


class Steps(LuongNMT):
    """Logs a score in training, under a name of its own."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("mine", -float(self.global_step))
        return loss


@pytest.mark.parametrize(
    ("saving", "expected"),
    [
        ({"monitor": "mine", "every_n_train_steps": 2, "save_top_k": -1}, [2, 4, 6, 8]),
        ({"monitor": "val/loss", "every_n_train_steps": 2, "save_top_k": -1}, [4, 6, 8]),  # as soon as there is one
        ({"monitor": None, "every_n_train_steps": 2, "save_top_k": -1}, [2, 4, 6, 8]),
        ({"monitor": "val/loss", "every_n_epochs": 0, "save_top_k": -1}, []),
        ({"monitor": "val/loss", "save_on_train_epoch_end": False, "save_top_k": -1}, [3, 6, 9]),
    ],
)
def test_other_checkpoints_are_saved_when_lightning_would(saving, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    callback = checkpoints.ExactCheckpoints(dirpath=tmp_path / "saved", filename="{step}", save_last=True, **saving)
    trainer = Trainer(
        default_root_dir=tmp_path, accelerator="cpu", logger=False, enable_progress_bar=False, max_epochs=3,
        enable_model_summary=False, callbacks=[callback],
    )  # fmt: skip
    data = Dates(train_size=48, val_size=9, test_size=9, batch_size=16)
    trainer.fit(Steps(src_vocab_size=80, tgt_vocab_size=20, embedding_size=8, hidden_size=8), datamodule=data)
    found = sorted(int(file.stem.removeprefix("step=")) for file in (tmp_path / "saved").glob("step=*.ckpt"))
    assert found == expected


def test_without_a_validation_the_last_one_is_named(place, capsys):
    os.remove(BEST)
    line = fails(capsys, "validate", "--config", "tiny.yaml", "--ckpt_path", "best")
    assert line == f"{BEST} does not exist: no validation has chosen a best one yet; give --ckpt_path last"


# ---- resumed with other settings ----


def test_another_schedule_in_the_recipe_of_a_resumed_training_is_told(place, caplog):
    caplog.set_level(logging.INFO)
    kind = {"class_path": "zoo.tasks.optimizer.WarmupCosine"}
    (place / "tiny.yaml").write_text(
        yaml.safe_dump({**RECIPE, "lr_scheduler": {**kind, "init_args": {"warmup_steps": 2, "total_steps": 200}}})
    )
    assert main(fit("--ckpt_path", "last", "--trainer.max_epochs", "2")) == 0
    assert (
        "resumed with the lr_scheduler of " in caplog.text
        and "total_steps 200, cycles 1), has no effect" in caplog.text
    )
    began = read_checkpoint(LAST)["zoo_training"]["lr_scheduler"]["init_args"]
    assert (began["warmup_steps"], began["total_steps"]) == (100, None)


def test_a_resumed_training_that_outlasts_its_schedule_is_not_told_to_change_it(place, caplog):
    schedule = {"class_path": "zoo.tasks.optimizer.WarmupCosine", "init_args": {"warmup_steps": 1, "total_steps": 3}}
    (place / "tiny.yaml").write_text(yaml.safe_dump({**RECIPE, "lr_scheduler": schedule}))
    os.remove(LAST)
    os.remove(BEST)
    assert main(fit()) == 0
    assert main(fit("--ckpt_path", "last", "--trainer.max_epochs", "3")) == 0
    assert "this training has 9: a resumed training keeps its schedule, and stays at its last rate" in caplog.text


def test_a_training_that_had_stopped_early_says_so(place, caplog):
    caplog.set_level(logging.INFO)
    callback = {
        "class_path": "lightning.pytorch.callbacks.EarlyStopping",
        "init_args": {"monitor": "val/loss", "patience": 1, "min_delta": 100},
    }
    recipe = {**RECIPE, "trainer": {**RECIPE["trainer"], "callbacks": [callback], "max_epochs": 9}}
    (place / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    os.remove(LAST)
    os.remove(BEST)
    assert main(fit()) == 0
    assert read_checkpoint(LAST)["global_step"] == 6
    assert main(fit("--ckpt_path", "last")) == 0
    assert "had stopped early, as val/loss had no better value 1 times: nothing is left to do" in caplog.text


def test_options_are_not_abbreviated(place, capsys):
    line = fails(capsys, "validate", "--config", "tiny.yaml", "--ckpt_path", "last", "--trainer.limit_val_batch", "1")
    assert "--trainer.limit_val_batch" in line


def test_a_section_that_stands_twice(place, capsys):
    (place / "tiny.yaml").write_text(yaml.safe_dump(RECIPE) + "trainer: {max_epochs: 7}\n")
    line = fails(capsys, *fit())
    assert "'trainer' stands there a second time; join the two" in line and "line " in line
