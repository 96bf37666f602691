"""What only a machine with a GPU can show: run with `-m gpu`."""

import pytest
import torch
from fakes import schedule
from lightning.pytorch import Trainer, seed_everything
from model_cases import MAIN
from modes import Found, drawn, gradients, make, reference, same
from torch.utils._pytree import tree_map_only

import zoo
from zoo.data import Dates
from zoo.models import transformer
from zoo.models.luong import LuongNMT
from zoo.tasks.translation import TranslationModule
from zoo.vision.images import ImageTransform

pytestmark = pytest.mark.gpu
TRANSLATORS = [case for case in MAIN if issubclass(case.values[0], TranslationModule)]


def on_gpu(value):
    return tree_map_only(torch.Tensor, lambda x: x.to("cuda"), value)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_five_steps_in_low_precision(precision, tmp_path):
    seed_everything(0)
    model = schedule(LuongNMT(80, 20, embedding_size=32, hidden_size=32), warmup_steps=1)
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


@pytest.fixture
def cpu_constants(monkeypatch):
    """What is in fp32 even in a float64 model, as a CPU rounds it: sines of positions, and pixels."""
    positions, normalize = transformer.positions, ImageTransform.normalize

    def placed(count, size, first=0, device=None):
        first = first.cpu() if isinstance(first, torch.Tensor) else first
        return positions(count, size, first).to(device)

    monkeypatch.setattr(transformer, "positions", placed)
    monkeypatch.setattr(
        ImageTransform, "normalize", lambda self, pixels: normalize(self, pixels.cpu()).to(pixels.device)
    )


@pytest.mark.parametrize("cls, options", MAIN)
def test_loss_and_gradients_are_those_of_the_cpu(cls, options, cpu_constants):
    """In float64, through cuDNN and torch's fused attention."""
    with drawn():
        expected = reference(cls, options)
        module, batch = make(cls, options)
        module.to("cuda")
        loss = module(on_gpu(batch))
        loss.backward()
    found = {name: gradient.cpu() for name, gradient in gradients(module).items()}
    same(Found(loss.detach().cpu(), found), expected)


@pytest.mark.parametrize("cls, options", TRANSLATORS)
def test_no_step_of_a_decoder_waits_for_the_gpu(cls, options):
    module, batch = make(cls, options, torch.float32)
    model, batch = module.model.to("cuda"), on_gpu(batch)
    encoded = model.encode(batch.src, batch.src_lengths)
    # leaves: the encoder may wait, for the number of real words
    memory, state = tree_map_only(torch.Tensor, lambda x: x.detach().requires_grad_(x.is_floating_point()), encoded)
    model.decode(batch.tgt[:, :-1], memory, state)  # the first call sets cuDNN up
    torch.cuda.set_sync_debug_mode("error")
    try:
        model.decode(batch.tgt[:, :-1], memory, state)[0].sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", zoo.list_models())
def test_weights_compute_what_they_compute_on_the_cpu(name):
    model = zoo.load(name)
    expected = model.golden()
    found = model.to("cuda").golden()
    for key, value in expected.items():
        if value.is_floating_point():
            torch.testing.assert_close(
                found[key].cpu(), value, rtol=1e-2, atol=1e-2
            )  # cuDNN may multiply with 10 bits (TF32)


def test_the_evidence_for_translations():
    """Batches of texts without references are made on the CPU."""
    model = zoo.load("luong_dot.dates")
    texts = ["3 May 1995", "tuesday july 8 2008"]
    expected = model.evidence(texts)
    for found, wanted in zip(model.to("cuda").evidence(texts), expected, strict=True):
        assert found.answer == wanted.answer and found.values == pytest.approx(wanted.values, abs=1e-4)
    with pytest.raises(ValueError, match="is explained on the CPU; this one is on cuda:0: call model.cpu"):
        zoo.faithfulness(model, texts)
