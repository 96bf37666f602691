"""What was measured of weights, calibration and whether attention explains, ends when the weights change."""

import copy
import pickle

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

import zoo
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.text import Tokenizer
from zoo.verbs.confidence import Calibration

CALIBRATED = Calibration("the label is right", 0.0, {"score": 1.0}, 0.1, 0.1)
EXPLAINS = "may be read as an explanation: yes"


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = StructuredSelfAttention(**StructuredSelfAttention.tiny).eval()
    made.tokenizer = Tokenizer.train(["a good film . it is bad"], "word_punct", 12)
    made.label_names = ["negative", "neutral", "positive"]
    made.calibration, made.explains = CALIBRATED, EXPLAINS
    return made


def _step(model, optimizer):
    model.train()
    model.loss(model.example_batch(4))[0].backward()
    optimizer.step()
    optimizer.zero_grad()
    model.eval()


def _by_hand(model):
    model.loss(model.example_batch(4))[0].backward()
    for p in model.parameters():
        if p.grad is not None:
            p.data -= 0.1 * p.grad


def _halved(model):
    with torch.no_grad():
        model.classifier.weight.mul_(0.5)


def _one_value(model):
    with torch.no_grad():
        model.embedding.weight[5, 1] += 1


def _other(model):
    torch.manual_seed(1)
    return StructuredSelfAttention(**StructuredSelfAttention.tiny)


CHANGES = {
    "SGD": lambda model: _step(model, torch.optim.SGD(model.parameters(), 0.1)),
    "fused Adam": lambda model: _step(model, torch.optim.Adam(model.parameters(), 0.1, fused=True)),
    "gradient descent by hand": _by_hand,
    "load_state_dict": lambda model: model.load_state_dict(_other(model).state_dict()),
    "load_state_dict, assign": lambda model: model.load_state_dict(_other(model).state_dict(), assign=True),
    "halved": _halved,
    "one value": _one_value,
    "shuffled": lambda model: model.classifier.weight.data.copy_(model.classifier.weight.data.flip(0, 1)),
    "other labels": lambda model: model.replace_labels(["a", "b", "c"]),
    "bf16": lambda model: model.bfloat16().float(),
    "weight norm": lambda model: torch.nn.utils.parametrizations.weight_norm(model.classifier),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_lose_what_was_measured(model, change):
    assert model.classify("a good film").confidence is not None
    CHANGES[change](model)
    found = model.classify("a good film")
    assert found.confidence is None and found.explains is None
    assert model.calibration is None and model.explains is None


class Quantized(torch.nn.Module):
    """A linear layer whose weights are no parameters, as libraries of quantisation make it."""

    def __init__(self, linear):
        super().__init__()
        self.scale = linear.weight.detach().abs().max().item() / 127
        self.register_buffer("whole", (linear.weight.detach() / self.scale).round().to(torch.int8))

    def forward(self, x):
        return x @ (self.whole * self.scale).T


def test_quantised_copies_lose_it(model):
    quantized = copy.deepcopy(model)
    quantized.classifier = Quantized(model.classifier)
    assert quantized.classify("a good film").confidence is None
    assert model.classify("a good film").confidence is not None


def test_rounding_to_8_bits_loses_it(model, tmp_path):
    wide = StructuredSelfAttention(**{**StructuredSelfAttention.tiny, "embedding_size": 32})
    wide.tokenizer, wide.label_names, wide.calibration = model.tokenizer, model.label_names, CALIBRATED
    wide.save_pretrained(tmp_path / "once", int8=True)
    stored = zoo.load(f"local-dir:{tmp_path / 'once'}")
    assert stored.calibration is None
    stored.calibration = CALIBRATED
    stored.save_pretrained(tmp_path / "again", int8=True)  # nothing is left to round
    assert zoo.load(f"local-dir:{tmp_path / 'again'}").calibration == CALIBRATED


def _validated(model):
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False)
    trainer.validate(model, DataLoader([model.example_batch(4)], None), verbose=False)
    return model


def _one_value_and_back(model):
    state = copy.deepcopy(model.state_dict())
    _one_value(model)
    model.load_state_dict(state)
    return model


KEPT = {
    "nothing": lambda model: model,
    "double and back": lambda model: model.double().float(),
    "moved storage": lambda model: torch.nn.Sequential(model).share_memory()[0],
    "train and eval": lambda model: model.train().eval(),
    "its own state": lambda model: (model.load_state_dict(model.state_dict()), model)[1],
    "changed and restored": _one_value_and_back,
    "gradients alone": lambda model: (model.loss(model.example_batch(4))[0].backward(), model)[1],
    "validation": _validated,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "copy of a copy": lambda model: copy.deepcopy(pickle.loads(pickle.dumps(model))),
}  # fmt: skip


@pytest.mark.parametrize("way", KEPT)
def test_unchanged_weights_keep_it(model, way):
    kept = KEPT[way](model)
    found = kept.classify("a good film")
    assert found.confidence is not None and found.explains == EXPLAINS
    assert kept.calibration == CALIBRATED and kept.explains == EXPLAINS


def test_a_changed_copy_loses_it_alone(model):
    copied = copy.deepcopy(model)
    _halved(copied)
    assert copied.calibration is None and model.calibration == CALIBRATED


def test_a_new_measurement_does_not_bring_an_old_one_back(model):
    _halved(model)
    model.calibration = CALIBRATED
    assert model.calibration == CALIBRATED and model.explains is None
    _halved(model)
    assert model.calibration is None
