"""`model.precision`: verbs in bf16 where the device has it, and elsewhere in fp32 with one warning."""

from typing import Any

import pytest
import torch

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
