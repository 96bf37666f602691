"""Adversarial training: the shift by hand, what it does to the loss, and trainings with it."""

import csv

import labeled_fakes
import pytest
import torch
import yaml
from model_cases import build

from zoo.batches.classification import collate_documents, collate_texts
from zoo.cli import main
from zoo.data import TREC6
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.han import HAN
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.tasks.adversarial import adversarial_loss, worst_shift

LABELS = torch.tensor([0, 2, 1])
TEXTS = collate_texts([[4, 5, 6, 4], [], [8, 9]], LABELS)
PAIRS = collate_texts([[4, 5, 6, 4], [7], [8, 9]], LABELS, [[7, 8], [4, 4, 5], []])
DOCUMENTS = collate_documents([[[4, 5], [6, 4]], [], [[8, 9, 4]]], LABELS)
CASES = [
    (AttentionClassifier, {}, TEXTS),
    (StructuredSelfAttention, {}, TEXTS),
    (StructuredSelfAttention, {"pair": True, "relatedness": 0.5}, PAIRS),
    (HAN, {}, DOCUMENTS),
]
SIZE = 0.05


def _model(cls, options):
    torch.manual_seed(1)
    return build(cls, **options).double().train()


def _shifted_by(model, batch, shifts):
    """The loss with given shifts of the word vectors of each text that is read, and these vectors."""
    embed, vectors, shifts = model.embed_words, [], iter(shifts)

    def read(tokens):
        found, rows = embed(tokens)
        vectors.append((found[rows] + next(shifts)).detach().requires_grad_())
        return vectors[-1], torch.arange(len(tokens))

    model.embed_words = read
    try:
        return model.loss(batch)[0], vectors
    finally:
        del model.embed_words


@pytest.mark.parametrize("cls, options, batch", CASES)
def test_by_hand(cls, options, batch):
    model = _model(cls, options)
    counts = [count.tolist() for count in batch.word_counts()]
    loss, vectors = _shifted_by(model, batch, [0] * len(counts))
    loss.backward()
    shifts = []
    for found, count in zip(vectors, counts, strict=True):
        parts = []
        for words, slope in zip(found.detach().split(count), found.grad.split(count), strict=True):
            parts.append(SIZE * words.norm() * slope / slope.norm() if len(words) else words)
        shifts.append(torch.cat(parts))
        assert shifts[-1].norm() > 0
    worse, _ = _shifted_by(model, batch, shifts)
    both, texts = adversarial_loss(model, batch, SIZE)
    assert texts == 3
    torch.testing.assert_close(both, (loss + worse) / 2, rtol=1e-12, atol=1e-12)
    assert worse > loss
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):  # no other direction of the same length is worse
        others = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in shifts]
        others = [
            torch.cat([o * s.norm() / o.norm() if len(o) else o for o, s in zip(a.split(c), b.split(c), strict=True)])
            for a, b, c in zip(others, shifts, counts, strict=True)
        ]
        assert _shifted_by(model, batch, others)[0] < worse


@pytest.mark.parametrize("cls, options, batch", CASES)
def test_gradients_pass_through_both_readings(cls, options, batch):
    model = _model(cls, options)
    adversarial_loss(model, batch, 1e-9)[0].backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    model.loss(batch)[0].backward()
    wanted = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert found.keys() == wanted.keys() and wanted["embedding.weight"].abs().sum() > 0
    for name, slope in wanted.items():  # of two equal losses: a shift by almost nothing changes none
        torch.testing.assert_close(found[name], slope, rtol=1e-5, atol=1e-7)


def test_words_that_are_dropped_are_the_same_in_both_readings():
    model = _model(HAN, {"word_dropout": 0.5})
    torch.manual_seed(3)
    both = adversarial_loss(model, DOCUMENTS, 1e-12)[0]
    torch.manual_seed(3)
    torch.testing.assert_close(both, model.loss(DOCUMENTS)[0], rtol=1e-9, atol=1e-9)


def test_a_text_without_a_gradient_is_not_shifted():
    vectors, gradients = torch.ones(3, 2), torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
    shift = worst_shift(vectors, gradients, torch.tensor([1, 0, 2]), 0.5)
    torch.testing.assert_close(shift, torch.tensor([[0.0, 0.0], [0.6, 0.0], [0.0, 0.8]]))
    assert worst_shift(vectors[:0], gradients[:0], torch.tensor([0, 0]), 0.5).shape == (0, 2)


def test_only_empty_texts():
    model = _model(StructuredSelfAttention, {})
    batch = collate_texts([[], []], LABELS[:2])
    torch.testing.assert_close(adversarial_loss(model, batch, SIZE)[0], model.loss(batch)[0])


@pytest.mark.parametrize("cls", [AttentionClassifier, HAN, StructuredSelfAttention])
def test_what_the_argument_must_be(cls):
    for wrong in (-0.1, 1.0):
        with pytest.raises(ValueError, match=rf"adversarial must be in \[0, 1\); got {wrong}"):
            build(cls, adversarial=wrong)


@pytest.mark.integration
def test_a_training_in_bf16(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    labeled_fakes.invent(TREC6, {}, tmp_path / "data")
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
    model = {
        "class_path": "zoo.models.structured_self_attention.StructuredSelfAttention",
        "init_args": StructuredSelfAttention.tiny | {"vocab_size": 60, "num_classes": 6, "adversarial": 0.1},
    }
    parts = {
        "trainer": {**quiet, "precision": "bf16-mixed", "log_every_n_steps": 1, "max_epochs": 20},
        "model": model,
        "optimizer": {"class_path": "zoo.tasks.optimizer.AdamW", "init_args": {"lr": 0.03}},
        "data": {"class_path": "zoo.data.TREC6", "init_args": {"batch_size": 16, "vocab_size": 60}},
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(parts))
    assert main(["fit", "--config", "tiny.yaml"]) == 0
    rows = list(csv.DictReader((tmp_path / "runs/tiny/metrics.csv").open()))
    losses = [float(row["train/loss"]) for row in rows if row.get("train/loss")]
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
