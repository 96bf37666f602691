"""What only a machine with a GPU can show: run with `-m gpu`."""

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything
from model_cases import build

from zoo.data import Dates
from zoo.models.luong import LuongNMT
from zoo.models.structured_self_attention import StructuredSelfAttention

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_five_steps_in_low_precision(precision, tmp_path):
    seed_everything(0)
    model = LuongNMT(80, 20, embedding_size=32, hidden_size=32, warmup_steps=1)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    data = Dates(train_size=200, val_size=9, test_size=9, batch_size=16, cache_dir=str(tmp_path / "cache"))
    # fp16 leaves out some steps until it has found a scale
    trainer = Trainer(
        accelerator="gpu", devices=1, precision=precision, max_steps=5 if precision == "bf16-mixed" else 30, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(model, datamodule=data)
    after = dict(model.named_parameters())
    assert all(weight.dtype == torch.float32 and weight.isfinite().all() for weight in after.values())
    assert any(not torch.equal(weight.cpu(), before[name]) for name, weight in after.items())
    loss = trainer.validate(model, datamodule=data, verbose=False)[0]["val/loss"]
    assert 0 < loss < 4  # log 20 is 3
    translations = model.to("cuda").translate(["3 May 1995", "tuesday july 8 2008"], beam_size=3)
    assert all(isinstance(found.text, str) and found.attention.isfinite().all() for found in translations)


def test_a_gpu_computes_what_the_cpu_computes():
    for cls in (LuongNMT, StructuredSelfAttention):
        torch.manual_seed(0)
        model = build(cls).eval()
        batch = model.example_batch(5)
        arguments = (batch.src, batch.src_lengths, batch.tgt[:, :-1]) if cls is LuongNMT else (batch,)
        with torch.no_grad():
            logits, _ = model(*arguments)
            found, _ = model.to("cuda")(*(_on_gpu(x) for x in arguments))
        torch.testing.assert_close(found.cpu(), logits, rtol=1e-2, atol=1e-3)  # cuDNN may multiply with 10 bits (TF32)


def _on_gpu(value):
    if isinstance(value, torch.Tensor):
        return value.to("cuda")
    return type(value)(*map(_on_gpu, value)) if isinstance(value, tuple) else value
