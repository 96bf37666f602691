"""Fine-tuning on little data: a few steps per epoch must change the weights, and the end of the training says by how
much.
"""

import copy
import math
import ntpath
import random
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import labeled_fakes
import pytest
import torch
import yaml
from fakes import schedule, settings
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from safetensors.torch import load_file
from torch import nn

from zoo.cli import main
from zoo.data import PlainText
from zoo.models.han import HAN
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.text import Tokenizer
from zoo.training.averaging import EMAWeights
from zoo.training.checkpoints import ExactCheckpoints
from zoo.training.endings import calibration_of
from zoo.training.report import Report, _is_better, _of_words, _shown
from zoo.training.stopping import StopInTime

RUN = Path("runs/tiny/checkpoints")
RECIPES = Path(__file__).parents[2] / "recipes"
TEXTS = 54  # of which some are held out: 3 steps of 16 per epoch
QUIET = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, with a weight and texts of two other labels."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ZOO_DATA", "")
    monkeypatch.chdir(tmp_path)
    texts = [labeled_fakes.sentence(random.Random(n), n % 2) for n in range(TEXTS)]
    model = HAN(**{**HAN.tiny, "vocab_size": 30, "num_classes": 2}).eval()
    model.tokenizer, model.label_names = Tokenizer.train(texts, "word_punct", 30, lowercase=True), ["bad", "good"]
    model.save_pretrained("weight")
    labeled_fakes.table(
        Path("mine.tsv"), ("label", "text"), [("no yes".split()[n % 2], t) for n, t in enumerate(texts)]
    )
    return tmp_path


def _fit(*args, averaging, stopping, lr=0.02):
    saving = {"filename": "best", "monitor": "val/loss", "save_last": True, "enable_version_counter": False}
    callbacks = [
        {"class_path": "zoo.training.checkpoints.ExactCheckpoints", "init_args": saving},
        {"class_path": "zoo.training.stopping.StopInTime", "init_args": {"monitor": "val/loss", **stopping}},
        {"class_path": "zoo.training.averaging.EMAWeights", "init_args": averaging},
    ]
    data = {"train": "mine.tsv", "split_sentences": True, "batch_size": 16}
    recipe = {
        "seed_everything": 1,
        "trainer": {**QUIET, "max_epochs": -1, "log_every_n_steps": 1, "callbacks": callbacks},
        "model": {"class_path": "zoo.load", "init_args": {"name": "local-dir:weight"}},
        **settings(lr=lr, warmup_steps=1),
        "data": {"class_path": "zoo.data.LabeledText", "init_args": data},
    }
    Path("tiny.yaml").write_text(yaml.safe_dump(recipe))
    return main(["fit", "--config", "tiny.yaml", *args])


def _block(capsys):
    """The lines at the end of a training."""
    return capsys.readouterr().out.strip().splitlines()


def _without_curves(capsys):
    block = _block(capsys)
    kept = [line for line in block if not line.startswith("  learning curves ")]
    assert len(kept) == len(block) - 1
    return kept


# ---- the average ----


def _share_of_the_way(averaging):
    """How far the averaged word vectors came, as a share of the way of the trained ones."""
    assert _fit(averaging=averaging, stopping={"epochs": 4}) == 0
    found = torch.load(RUN / "last.ckpt", weights_only=True)
    assert found["global_step"] == 12
    start = load_file("weight/model.safetensors")["embedding.weight"].float()
    ways = [(found[part]["embedding.weight"] - start).norm() for part in ("state_dict", "current_model_state")]
    return (ways[0] / ways[1]).item()


def test_the_average_of_a_short_training_is_of_its_last_steps():
    assert _share_of_the_way({"decay": 0.99, "warmup": True}) > 0.7


def test_without_a_warm_up_it_stays_at_the_beginning():
    assert _share_of_the_way({"decay": 0.99}) < 0.3


def test_an_average_may_begin_in_a_later_epoch():
    assert _fit(averaging={"decay": 0.9, "update_starting_at_epoch": 3}, stopping={"epochs": 4}) == 0
    last = torch.load(RUN / "last.ckpt", weights_only=True)
    assert last["global_step"] == 12 and last["averaging_state"]["n_averaged"] == 3


def test_an_average_that_has_not_begun_is_the_current_weights():
    assert _fit(averaging={"decay": 0.9, "update_starting_at_epoch": 9}, stopping={"epochs": 2}) == 0
    last = torch.load(RUN / "last.ckpt", weights_only=True)
    assert last["averaging_state"]["n_averaged"] == 0
    assert all(torch.equal(last["state_dict"][name], w) for name, w in last["current_model_state"].items())


def test_checkpoints_of_weights_alone_would_be_without_the_average():
    trainer = SimpleNamespace(checkpoint_callbacks=[ModelCheckpoint(), ModelCheckpoint(save_weights_only=True)])
    with pytest.raises(ValueError, match="EMAWeights: a checkpoint with save_weights_only is without the average"):
        EMAWeights().setup(trainer, LightningModule(), "fit")
    EMAWeights().setup(trainer, LightningModule(), "test")


def test_an_average_is_updated_each_so_many_steps():
    with pytest.raises(ValueError, match="update_every_n_steps must be at least 1; got 0"):
        EMAWeights(update_every_n_steps=0)


def test_a_warm_up_ends_where_the_decay_is_reached():
    warm, usual = (EMAWeights(decay=0.5, warmup=warmup)._kwargs["avg_fn"] for warmup in (True, False))
    average, new = torch.tensor([1.0]), torch.tensor([2.0])
    means = [warm(average, new, torch.tensor(n)).item() for n in (1, 5, 8, 1000)]
    assert means == pytest.approx([2 - 2 / 11, 2 - 6 / 15, 1.5, 1.5])
    assert usual(average, new, torch.tensor(1)).item() == 1.5


@pytest.mark.parametrize(
    "kept", [torch.randn(1000), torch.tensor([math.inf, -math.inf]).repeat(500), torch.arange(1000)]
)
def test_an_update_takes_its_share_of_the_new_weights(kept):
    """Equal numbers stay as they are, to the bit, also infinite ones and integers."""
    model = LightningModule()
    model.moved = nn.Parameter(torch.randn(7))
    model.register_buffer("kept", kept)
    averaging = EMAWeights(decay=0.9)
    averaging.setup(Trainer(logger=False, enable_checkpointing=False, accelerator="cpu"), model, "fit")
    average, before = averaging._average_model, model.moved.detach().clone()
    average.update_parameters(model)
    model.moved.detach().add_(1)
    average.update_parameters(model)
    torch.testing.assert_close(average.module.moved.detach(), before + 0.1)
    assert torch.equal(average.module.kept, model.kept)


@pytest.mark.parametrize("task", ["captioning", "classification", "language_modelling", "translation"])
def test_fine_tuning_recipes_follow_the_number_of_steps(task):
    recipe = yaml.safe_load((RECIPES / f"finetune_{task}.yaml").read_text(encoding="utf-8"))
    callbacks = {part["class_path"].rpartition(".")[2]: part["init_args"] for part in recipe["trainer"]["callbacks"]}
    stopping = callbacks["StopInTime"]
    assert callbacks["EMAWeights"]["warmup"] and recipe["trainer"]["max_epochs"] == -1
    assert stopping["steps"] > stopping["patience_steps"] > recipe["lr_scheduler"]["init_args"]["warmup_steps"]
    assert stopping["monitor"] == callbacks["ExactCheckpoints"]["monitor"]


# ---- the end ----


class Scored(LightningModule):
    """One weight, and given scores of the validations."""

    def __init__(self, scores):
        super().__init__()
        self.weight, self.scores = torch.nn.Parameter(torch.zeros(1)), iter(scores)

    def training_step(self, batch, batch_idx):
        return (self.weight * batch).sum()

    def validation_step(self, batch, batch_idx):
        self.log("score", next(self.scores))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize(
    ("scores", "limits", "steps"),
    [
        ([5, *[1] * 9], {"patience": 2}, 9),
        ([5, *[1] * 9], {"patience": 2, "patience_steps": 12}, 15),
        ([1, 2, *[1] * 9], {"patience": 2, "patience_steps": 12}, 18),
        ([5, 1, 1, 6, *[1] * 9], {"patience": 2, "patience_steps": 9, "epochs": 99}, 21),
        (range(99), {"epochs": 2, "steps": 10}, 12),
        (range(99), {"epochs": 6, "steps": 10}, 18),
        ([5, 1, float("nan"), 9], {"patience": 3, "patience_steps": 99}, 9),
    ],
)
def test_a_training_ends_by_steps_and_epochs(scores, limits, steps):
    stopping = StopInTime("score", "max", **limits)
    quiet = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "num_sanity_val_steps": 0}
    shown = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(max_epochs=-1, callbacks=[stopping], **quiet, **shown)
    trainer.fit(Scored(map(float, scores)), torch.ones(3, 1), torch.ones(1, 1))
    assert trainer.global_step == steps


class Tied(Scored):
    """Scores that stay the same, with losses."""

    def validation_step(self, batch, batch_idx):
        for name, value in next(self.scores).items():
            self.log(name, value)


def _of_tied(scores, losses, folder, **limits):
    """The steps at which the training ended, and of its best checkpoint."""
    stopping = StopInTime("score", "max", patience=2, tie="loss", **limits)
    saving = ExactCheckpoints(dirpath=folder, filename="best", monitor="score", mode="max", tie="loss")
    trainer = Trainer(max_epochs=-1, callbacks=[stopping, saving], num_sanity_val_steps=0, logger=False, **QUIET)
    found = [{"score": float(score), "loss": float(loss)} for score, loss in zip(scores, losses, strict=True)]
    trainer.fit(Tied(found), torch.ones(3, 1), torch.ones(1, 1))
    return trainer.global_step, torch.load(saving.best_model_path, weights_only=True)["global_step"]


@pytest.mark.parametrize(
    ("scores", "losses", "limits", "steps"),
    [
        ([0, 0, 0, 0, 0, 0], [5, 4, 3, 3, 3, 3], {}, (15, 9)),  # the score of one photo
        ([0, 0, 1, 1, 1, 1], [5, 4, 9, 9, 8, 8], {"epochs": 5}, (15, 15)),  # a higher score counts more
        ([1, 0, 0, 0, 0, 0], [5, 4, 3, 3, 3, 3], {}, (9, 3)),
        (
            [9, 99.99999, 99.99999, 99.99999, 99.99999, 99.99999],
            [9, 5, 4, 3, 2, 1],
            {"perfect": {"score": 100}, "patience_steps": 99},
            (12, 12),
        ),
        ([9, 9, 8, 8, 8, 8], [9, 5, 4, 3, 2, 1], {"perfect": {"loss": 5}, "patience_steps": 99}, (9, 6)),
    ],
)
def test_a_loss_decides_between_equal_scores(folder, scores, losses, limits, steps):
    assert _of_tied(scores, losses, folder, **limits) == steps


def test_a_tie_outlives_an_interruption(folder):
    stopping, saving = StopInTime("score", "max", tie="loss"), ExactCheckpoints(monitor="score", mode="max", tie="loss")
    for callback, parts in ((stopping, {"_tie_score": 3.0, "_is_perfect": True}), (saving, {"_tie_score": 2.0})):
        vars(callback).update(parts)
        if callback is saving:
            callback.dirpath = str(folder)
        again = copy.deepcopy(callback)
        for name in parts:
            setattr(again, name, None)
        again.load_state_dict(callback.state_dict())
        assert {name: getattr(again, name) for name in parts} == parts


@pytest.mark.parametrize(("task", "perfect"), [("captioning", "val/rouge_l"), ("translation", "val/bleu")])
def test_recipes_whose_score_may_stay_the_same(task, perfect):
    recipe = yaml.safe_load((RECIPES / f"finetune_{task}.yaml").read_text(encoding="utf-8"))
    callbacks = {part["class_path"].rpartition(".")[2]: part["init_args"] for part in recipe["trainer"]["callbacks"]}
    assert callbacks["ExactCheckpoints"]["tie"] == callbacks["StopInTime"]["tie"] == "val/loss"
    assert callbacks["StopInTime"]["perfect"] == {perfect: 100.0}


def test_limits_that_are_none():
    for name, value in (("patience", 0), ("patience_steps", -1), ("epochs", 0), ("steps", -1)):
        with pytest.raises(ValueError, match=f"{name} must be at least .*; got {value}"):
            StopInTime("val/loss", **{name: value})


@pytest.mark.integration
def test_an_interrupted_training_ends_at_the_same_step(capsys):
    options = {"averaging": {"warmup": True}, "stopping": {"epochs": 3, "steps": 11, "patience": 99}}
    assert _fit("--trainer.max_steps", "5", **options) == 0
    first = _block(capsys)
    assert _fit("--ckpt_path", "last", **options) == 0
    block = _block(capsys)
    assert block[0] == "Fine-tuning of local-dir:weight: 4 epochs, 12 steps"
    # another line may say that the loss did not improve
    scores = [line.split(" -> ") for line in (*first, *block) if line.startswith("  val/loss")]
    (before,) = {score[0] for score in scores if len(score) == 2}
    assert float(before.split()[-1]) > 0  # the score of the weight itself, also in the resumed training
    assert _fit("--ckpt_path", "last", **options) == 0  # it is over
    assert _block(capsys)[0] == block[0]


# ---- what came of it ----


def test_the_block_at_the_end(capsys):
    assert _fit(averaging={"warmup": True}, stopping={"steps": 40, "epochs": 1, "patience_steps": 99}, lr=0.05) == 0
    block = [line for line in _without_curves(capsys) if "not clearly above" not in line]
    title, weights, *scores, judged, best, export, predict, calibrate, about = block
    assert title == "Fine-tuning of local-dir:weight: 14 epochs, 42 steps"
    assert re.fullmatch("  judged on         [1-9] held-out inputs?, so few that small differences are chance", judged)
    assert 5 < float(weights.removeprefix("  weights           changed by ").split("%")[0]) < 500
    before, after = (float(number) for number in scores[0].removeprefix("  val/loss").split(" -> "))
    assert after < before and [line.split()[0] for line in scores] == ["val/loss", "val/accuracy", "val/macro_f1"]
    assert best == f"  best checkpoint   {RUN}/best.ckpt"
    found = torch.load(RUN / "best.ckpt", weights_only=True)["callbacks"]
    saved = next(state for name, state in found.items() if name.startswith("ExactCheckpoints"))
    assert saved["best_model_score"].item() == pytest.approx(after, abs=1e-4)
    others = [line.split("\t", 1) for line in Path("mine.tsv").read_text().splitlines()[1:]]
    mixed = [("no" if n % 3 else label, text) for n, (label, text) in enumerate(others)]  # right and wrong answers
    labeled_fakes.table(Path("others.tsv"), ("label", "text"), mixed)
    for line in (export, predict, calibrate):
        program, *args = shlex.split(line.partition("zoo ")[2])
        more = ["--data.val", "others.tsv"] if line == calibrate else []
        assert main([program, *args, *more]) == 0
        if line == predict:
            assert capsys.readouterr().out.splitlines()[-1].split()[0] in ("no", "yes")
    assert f"rough: {TEXTS} validation inputs are few; give some hundred" in capsys.readouterr().out
    assert calibrate.startswith("  for a confidence  zoo calibrate --config tiny.yaml --weights local-dir:my_weights")
    assert "until then it is null" in about and Path("my_weights/calibration.json").is_file()


def test_it_says_when_the_weights_did_not_move(capsys):
    assert _fit(averaging={"warmup": True}, stopping={"epochs": 1}, lr=1e-9) == 0
    (advice,) = (line for line in _block(capsys) if "hardly" in line)
    assert advice == (
        "  The weights hardly changed, so the model answers as before: train longer, or with a higher --optimizer.lr, "
        "or on more data."
    )


def test_it_says_when_the_score_did_not_improve():
    (advice,) = _advice({"val/loss": 1.0}, {"val/loss": 1.1}, new_labels=True)
    assert advice == (
        "val/loss did not improve: the new last layer has learnt nothing yet; train longer, or with a higher "
        "--optimizer.lr, or on more data."
    )
    (advice,) = _advice({"val/loss": 1.0}, {"val/loss": 1.1})
    assert advice == (
        "val/loss did not improve: the weights as they were score at least as well on the validation data. Keep weight, "
        "or train longer, or with a higher --optimizer.lr, or on more data."
    )


def test_it_asks_for_a_lower_rate_when_the_loss_rose_far(capsys):
    assert _fit(averaging={"decay": 0.0}, stopping={"epochs": 2}, lr=1e5) == 0
    wanted = "val/loss did not improve. The loss rose far above that of the start: try a lower --optimizer.lr."
    assert [line.strip() for line in _block(capsys) if "improve" in line] == [wanted]
    before = {"val/bleu": 36.9, "val/loss": 1.48}
    for loss in (17.4, math.nan):
        (advice,) = _advice(before, {"val/bleu": 0.3, "val/loss": loss}, "val/bleu", "max")
        assert advice == wanted.replace("val/loss", "val/bleu")
    (advice,) = _advice(before, {"val/bleu": 36.5, "val/loss": 1.6}, "val/bleu", "max")
    assert "Keep weight, or train longer" in advice


def test_a_training_may_end_before_its_first_validation_or_have_none(capsys):
    for name, options in {
        "first": ["--trainer.max_steps", "2"],
        "second": ["--trainer.limit_val_batches", "0", "--trainer.max_epochs", "2"],
    }.items():
        place = ["--trainer.default_root_dir", name]
        assert _fit(*options, *place, averaging={"warmup": True}, stopping={}) == 0
        steps = torch.load(f"{name}/tiny/checkpoints/last.ckpt", weights_only=True)["global_step"]
        assert steps == (2 if name == "first" else 6)
    capsys.readouterr()
    assert main(["fit", "--config", "tiny.yaml", "--ckpt_path", "last", "--trainer.default_root_dir", "first"]) == 0
    assert "val/loss" in capsys.readouterr().out


def test_a_wrong_name_of_a_score_is_still_said(capsys):
    assert _fit("--trainer.max_epochs", "1", averaging={"warmup": True}, stopping={"monitor": "val/los"}) == 2
    wanted = (
        "zoo: error: StopInTime: there is no score 'val/los'; choose among train/loss, val/accuracy, val/loss, val/m"
    )
    assert wanted in capsys.readouterr().err


def _advice(before, best, monitor="val/loss", mode="min", change=0.1, last_change=0.2, **judged):
    report = Report("weight")
    report.before, report.best = before, best
    report.held_out, report.most_frequent = judged.get("held_out"), judged.get("most_frequent")
    measures, report.new_labels = judged.get("measures", ("overlap",)), judged.get("new_labels", False)
    return report._advice(ModelCheckpoint(monitor=monitor, mode=mode), change, last_change, measures)


def test_it_says_when_only_the_loss_improved():
    before = {"val/loss": 1.14, "val/accuracy": 25.0, "val/macro_f1": 22.2}
    (advice,) = _advice(before, before | {"val/loss": 1.13})
    assert advice.startswith("Only val/loss improved, and no answer on the validation data.")
    assert _advice(before, before | {"val/loss": 1.13, "val/accuracy": 50.0}) == []
    # a perplexity falls with the loss, and is no answer
    assert _advice({"val/loss": 2.0, "val/perplexity": 7.4}, {"val/loss": 1.0, "val/perplexity": 2.7}) == []


def test_it_says_which_scores_got_worse():
    before = {"val/loss": 1.39, "val/accuracy": 32.14, "val/macro_f1": 24.41, "val/overlap": 0.44}
    (advice,) = _advice(before, {"val/loss": 1.35, "val/accuracy": 41.07, "val/macro_f1": 22.4, "val/overlap": 0.18})
    assert advice.startswith("Got worse: val/macro_f1. Look at the learning curves; ")  # an overlap is not good or bad
    (advice,) = _advice({"val/loss": 1.0, "val/bleu": 5.0}, {"val/loss": 1.1, "val/bleu": 6.0}, "val/bleu", "max")
    assert advice.startswith("Got worse: val/loss. ")


def test_what_should_fall_and_fell_did_not_get_worse():
    before = {"val/loss": 4.0, "val/perplexity_with_cache": 50.0, "val/mean_distance": 2.0, "val/share_1": 0.5}
    after = {"val/loss": 3.9, "val/perplexity_with_cache": 45.0, "val/mean_distance": 1.9, "val/share_1": 0.45}
    assert _advice(before, after, measures=KeyValuePredictLM.measures) == []
    (advice,) = _advice(after, {**before, "val/loss": 3.8}, measures=KeyValuePredictLM.measures)
    assert advice.startswith("Got worse: val/perplexity_with_cache. ")
    before = {"val/loss": 1.0, "val/accuracy": 80.0, "val/relatedness_mse": 0.5}
    assert _advice(before, {"val/loss": 0.9, "val/accuracy": 81.0, "val/relatedness_mse": 0.4}) == []


@pytest.mark.parametrize(
    ("accuracy", "held_out", "warns"),
    [(26.8, 56, True), (37.5, 56, True), (41.1, 56, False), (37.5, 560, False), (20.0, 560, True)],
)
def test_it_says_when_the_answers_are_those_of_chance(accuracy, held_out, warns):
    before = {"val/loss": 1.4, "val/accuracy": 10.0}
    advice = _advice(before, {"val/loss": 1.3, "val/accuracy": accuracy}, held_out=held_out, most_frequent=26.786)
    assert [line[:41] for line in advice] == ["val/accuracy is not clearly above 26.79, "] * warns


def test_the_most_frequent_label_of_the_validation_data(capsys):
    labels = ["yes"] * 8 + ["no"] * 2
    texts = [labeled_fakes.sentence(random.Random(n), 1) for n in range(10)]
    labeled_fakes.table(Path("val.tsv"), ("label", "text"), list(zip(labels, texts, strict=True)))
    assert _fit("--data.val", "val.tsv", averaging={"warmup": True}, stopping={"epochs": 1}) == 0
    block = "\n".join(_block(capsys))
    assert "10 held-out inputs" in block and "not clearly above 80.00, that of always answering" in block


def test_a_validation_of_one_label():
    before = {"val/loss": 1.4, "val/accuracy": 90.0}
    (advice,) = _advice(before, {"val/loss": 1.3, "val/accuracy": 95.0}, held_out=56, most_frequent=100.0)
    assert advice.startswith("All held-out texts have one label, ")


def test_rows_without_a_word_are_no_change():
    model = HAN(**{**HAN.tiny, "vocab_size": 30, "num_classes": 2})
    model.tokenizer = Tokenizer.train(["a b c"], "word")
    found = _of_words(model)
    assert len(model.embedding.weight) == 30 and len(found["embedding.weight"]) == len(model.tokenizer) < 30
    assert found.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(found[name], rows[: len(found[name])]) for name, rows in model.named_parameters())


def test_it_says_when_few_inputs_chose_the_first_checkpoint():
    same = {"val/loss": 5.0, "val/cider_d": 0.0}
    options = {"monitor": "val/cider_d", "mode": "max", "change": 0.0001}
    (advice,) = _advice(same, same, **options, last_change=0.12, held_out=1)
    assert advice == (
        "The weights hardly changed, so the model answers as before. Training went on to 12.00%, but val/cider_d on 1 "
        "held-out input found nothing better: give more data for validation, or judge last.ckpt yourself."
    )
    (advice,) = _advice(same | {"val/cider_d": 112.5}, same | {"val/cider_d": 99.3}, **options, last_change=0.0001)
    assert advice.startswith("val/cider_d did not improve"), "the answers are others"
    (advice,) = _advice(same, same, **options, last_change=0.0001)
    assert advice.endswith("train longer, or with a higher --optimizer.lr, or on more data.")


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        (["fit", "--config", "a.yaml", "--data.train", "t.csv"], "--config a.yaml --data.train t.csv"),
        (
            ["fit", "--model.name", "x", "--config=a.yaml", "--model.overrides.dropout=0.1", "--ckpt_path", "last"],
            "--config=a.yaml",
        ),
        (["fit", "--optimizer.lr", "0.1", "--data.val", "v w.csv", "--config", "a"], "--data.val 'v w.csv' --config a"),
    ],
)
def test_the_command_that_calibrates(typed, command):
    assert calibration_of("new", typed) == f"zoo calibrate {command} --weights local-dir:new"


def test_a_training_from_scratch_has_no_score_before(capsys):
    recipe = ["--model", "zoo.models.han.HAN", *(f"--model.{name}={value}" for name, value in HAN.tiny.items())]
    sizes = ["--model.vocab_size=60", "--model.num_classes=2"]
    assert _fit(*recipe, *sizes, averaging={"warmup": True}, stopping={"epochs": 1}) == 0
    title, *scores, judged, best, _, _ = _without_curves(capsys)
    assert title == "Training: 1 epoch, 3 steps" and str(RUN) in best and "held-out" in judged
    assert len(scores) == 3 and not any("->" in line for line in scores)


def test_a_score_after_one_that_is_no_number_is_better():
    saving = SimpleNamespace(monitor="val/loss", mode="min")
    assert _is_better(saving, {"val/loss": 9.0}, {"val/loss": float("nan")})
    assert not _is_better(saving, {"val/loss": float("nan")}, {"val/loss": 9.0})
    assert not _is_better(saving, {"val/loss": float("nan")}, {"val/loss": float("nan")})


def test_a_run_on_another_drive_is_shown_whole(monkeypatch):
    """As on Windows, where no relative path leads from one drive to another."""
    monkeypatch.setattr("os.path.relpath", ntpath.relpath)
    assert _shown("D:/runs/best.ckpt") == "D:/runs/best.ckpt"


class OwnModel(KeyValuePredictLM):
    """A class outside the package."""


@pytest.mark.parametrize("cls, option", [(KeyValuePredictLM, ""), (OwnModel, f" --import {__name__}")])
def test_the_commands_for_a_language_model(cls, option, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("a b c a b c d\n" * 9)
    data = PlainText(*[str(tmp_path / "text.txt")] * 3, tokenizer="word", min_frequency=1, cache_dir=str(tmp_path))
    model = schedule(cls(**cls.tiny), warmup_steps=1)
    report, saving = Report("weight"), ModelCheckpoint(tmp_path, "best", monitor="val/loss")
    trainer = Trainer(
        max_steps=2, accelerator="cpu", callbacks=[report, saving], logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(model, datamodule=data)
    report.show(trainer, model, ["fit", "--config", "tiny.yaml"])
    block = capsys.readouterr().out
    assert f"export it         zoo export{option} " in block
    assert f"and predict       zoo predict{option} local-dir:my_weights " in block
    assert "zoo calibrate" not in block  # a text to continue has no right answer
