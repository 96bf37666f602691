"""What runs in a process of its own, see test_accelerator.py."""

import emulated_device
import numpy as np
import pytest
import torch
import yaml
from model_cases import MAIN
from modes import drawn, gradients, make
from PIL import Image
from test_recipes import FIRST, short_training
from torch.utils._pytree import tree_map_only

import zoo
from zoo.cli import main
from zoo.tasks.base import ZooModule

emulated_device.register()
THE_DEVICE = torch.device(emulated_device.NAME, 0)


def on_device(value):
    return tree_map_only(torch.Tensor, lambda x: x.to(THE_DEVICE), value)


def close(found, expected, rtol=1e-4, atol=1e-5):
    assert found.device == THE_DEVICE
    torch.testing.assert_close(found.cpu(), expected, rtol=rtol, atol=atol)


def test_the_device_is_one():
    x = torch.ones(2, 2, device=THE_DEVICE)
    with pytest.raises(RuntimeError, match="same device"):
        x @ torch.ones(2, 2)
    with pytest.raises(TypeError, match="float64"):
        x.double()


@pytest.mark.parametrize("cls, options", MAIN)
def test_loss_and_gradients_are_those_of_the_cpu(cls, options):
    with drawn():
        module, batch = make(cls, options, torch.float32)
        loss = module(batch)
        loss.backward()
    with drawn():
        moved, batch = make(cls, options, torch.float32)
        moved.to(THE_DEVICE)
        found = moved(on_device(batch))
        found.backward()
    close(found, loss)
    on_cpu = gradients(module)
    for name, gradient in gradients(moved).items():
        close(gradient, on_cpu[name], rtol=1e-3, atol=1e-4)


def _one_of_each_model():
    found = {}
    for path in sorted(FIRST):
        found.setdefault(yaml.safe_load(path.read_text(encoding="utf-8"))["model"]["class_path"], path)
    return found.values()


def _fit(command, **settings):
    """`zoo fit` on the device."""
    settings = {"accelerator": emulated_device.NAME, "strategy": emulated_device.NAME, **settings}
    return main([*command, *(word for key, value in settings.items() for word in (f"--trainer.{key}", str(value)))])


@pytest.mark.parametrize("path", _one_of_each_model(), ids=lambda path: path.stem)
def test_a_recipe_trains_and_validates(path, tmp_path, monkeypatch):
    _, command = short_training(path, tmp_path, monkeypatch)
    seen = []
    monkeypatch.setattr(ZooModule, "on_train_start", lambda self: seen.append(self.device), raising=False)
    assert _fit(command, fast_dev_run=True) == 0
    assert seen == [THE_DEVICE]


@pytest.mark.parametrize("name", ["luong_dot.dates", "key_value_predict.ptb"])
def test_a_training_is_stored_and_goes_on(name, tmp_path, monkeypatch):
    path = next(path for path in FIRST if path.stem == name)
    _, command = short_training(path, tmp_path, monkeypatch)
    run = {"limit_train_batches": 2, "limit_val_batches": 1, "max_steps": -1, "default_root_dir": tmp_path / "run"}
    assert _fit(command, max_epochs=1, **run) == 0
    (last,) = tmp_path.rglob("last.ckpt")
    assert _fit([*command, "--ckpt_path", str(last)], max_epochs=2, **run) == 0
    assert {torch.load(file, "cpu", weights_only=True)["epoch"] for file in tmp_path.rglob("last*.ckpt")} >= {1}


PHOTO = Image.fromarray(np.random.RandomState(0).randint(0, 256, (60, 80, 3), dtype=np.uint8))
SENTENCES = ["A man walks his dog.", "Two people sit on a bench."]
STORY = "The dog ate the bone . The cat slept . The dog barked ."
USES = {
    "luong_dot.dates": lambda model: model.translate(["3 May 1995", "tuesday july 8 2008"], beam_size=3),
    "luong_local_p_no_feed.multi30k_en_de": lambda model: model.translate(SENTENCES, n_best=2),
    "transformer_tiny.multi30k_en_de": lambda model: model.translate(SENTENCES),
    "han.imdb": lambda model: model.classify(["A good film. I liked it.", "Bad."]),
    "structured_self_attention.sick": lambda model: model.classify([tuple(SENTENCES)]),
    "attention_over_attention.cbtlike_cn": lambda model: model.answer(STORY, "The XXXXX slept ."),
    "key_value_predict.ptb": lambda model: model.complete("the company said"),
    "show_attend_tell_soft.flickr8k": lambda model: model.caption(PHOTO),
    "show_attend_tell_hard.flickr8k": lambda model: model.caption(PHOTO),
}


@pytest.mark.parametrize("name", USES)
def test_a_weight_answers_as_on_the_cpu(name):
    model = zoo.load(name)
    expected, golden = USES[name](model), model.golden()
    model.to(THE_DEVICE)
    found = USES[name](model)
    both = zip(found, expected, strict=True) if isinstance(found, list) else [(found, expected)]
    assert all(one.to_dict().keys() == other.to_dict().keys() and str(one) == str(other) for one, other in both)
    for key, value in model.golden().items():
        close(value, golden[key])


def test_perplexity():
    model, texts = zoo.load("key_value_predict.ptb"), ["the company said it", "stocks fell"]
    expected = model.perplexity(texts)
    assert model.to(THE_DEVICE).perplexity(texts) == pytest.approx(expected, rel=1e-5)


def test_the_evidence_for_translations():
    model, texts = zoo.load("luong_dot.dates"), ["3 May 1995", "tuesday july 8 2008"]
    expected = model.evidence(texts)
    for found, wanted in zip(model.to(THE_DEVICE).evidence(texts), expected, strict=True):
        assert found.answer == wanted.answer and found.values == pytest.approx(wanted.values, abs=1e-4)
