"""`model.precision`: verbs in bf16 where the device has it, and elsewhere in fp32 with one warning."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from zoo.cli import main
from zoo.models.luong import LuongNMT
from zoo.serving.worker import of_torch
from zoo.tasks import precision
from zoo.text import Tokenizer

TEXT = "a dog runs"


@pytest.fixture
def translator() -> LuongNMT:
    torch.manual_seed(0)
    tokenizer = Tokenizer.train([TEXT], "word", 40)
    sizes: dict[str, Any] = {"src_vocab_size": len(tokenizer), "tgt_vocab_size": len(tokenizer)}
    model = LuongNMT(**{**LuongNMT.tiny, **sizes})
    model.src_tokenizer = model.tgt_tokenizer = tokenizer
    model.eval()
    return model


def _score(model):
    return model.translate(TEXT).score


def test_verbs_compute_in_it(translator, monkeypatch):
    monkeypatch.setattr(precision, "lacks_bf16", lambda device: None)
    in_fp32 = _score(translator)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = _score(translator)
    translator.precision = "bf16"
    assert _score(translator) == wanted != in_fp32 and wanted == pytest.approx(in_fp32, rel=0.05)
    assert not torch.is_autocast_enabled("cpu")
    translator.precision = "fp32"
    assert _score(translator) == in_fp32


def test_one_warning_where_it_would_be_slower(translator, monkeypatch, caplog):
    in_fp32 = _score(translator)
    monkeypatch.setattr(precision, "lacks_bf16", lambda device: f"no {device} of this test has it")
    translator.precision = "bf16"
    assert _score(translator) == in_fp32 == _score(translator)
    assert caplog.messages == ["zoo: fp32 instead of bf16: no cpu of this test has it"]


def test_no_other_one(translator):
    with pytest.raises(ValueError, match="^precision must be one of fp32, bf16; got 'int8'$"):
        translator.precision = "int8"


def test_a_worker_has_it(translator, tmp_path):
    translator.save_pretrained(tmp_path / "model")
    model, _ = of_torch(f"local-dir:{tmp_path / 'model'}", "cpu", 1, "bf16")
    assert model.precision == "bf16"


def test_scores_are_computed_in_it_and_not_in_that_of_the_training(translator, monkeypatch):
    monkeypatch.setattr(precision, "lacks_bf16", lambda device: None)
    seen = []
    monkeypatch.setattr(type(translator), "score", lambda *rest, **options: seen.append(_autocast()))
    translator._scores = {"val": None, "test": None}
    translator._trainer = SimpleNamespace(datamodule=SimpleNamespace(test_names=["test"]))
    monkeypatch.setattr(type(translator), "data_module", SimpleNamespace(test_names=["test"]))
    for translator.precision in ("fp32", "bf16"):
        with torch.autocast("cpu", torch.bfloat16):  # of a training in bf16-mixed
            translator.validation_step("batch", 0)
            translator.test_step("batch", 0)
    assert seen == [None, None, torch.bfloat16, torch.bfloat16]


def _autocast() -> torch.dtype | None:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def test_of_zoo_test(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(precision, "lacks_bf16", lambda device: None)
    monkeypatch.chdir(tmp_path)
    command = ["test", "--config", "luong_dot.dates", "--weights", "luong_dot.dates", "--trainer.accelerator", "cpu"]
    command += ["--data.train_size", "20", "--data.val_size", "4", "--data.test_size", "4"]
    command += ["--trainer.logger", "false"]
    for given, shown in (([], "fp32"), (["--precision", "bf16"], "bf16")):
        assert main([*command, *given]) == 0
        assert f", {shown}, 4 sentence pairs\n" in capsys.readouterr().out
    assert main([*command, "--precision", "bf17"]) == 2
    assert "zoo: error: precision must be one of fp32, bf16; got 'bf17'\n" in capsys.readouterr().err
    calibrate = ["calibrate", "--config", "luong_dot.dates", "--weights", "local-dir:x", "--precision", "bf16"]
    assert main(calibrate) == 2
    assert "zoo calibrate measures in fp32: leave out --precision" in capsys.readouterr().err
