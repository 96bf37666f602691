"""Language models: the equations against loops, memory across segments, perplexity, resuming, completing, mistakes."""

import io
import json
import math
import os
import subprocess
import sys

import lightning.pytorch as pl
import pytest
import torch
import yaml
from fakes import schedule
from torch import nn

from zoo import registry
from zoo.batches.language_modelling import LMBatch, SoftLabels
from zoo.cli import main
from zoo.data import PlainText
from zoo.models.key_value_predict_lm import READERS, KeyValuePredictLM
from zoo.text import EOS, PAD, UNK, Tokenizer

exactly = pytest.mark.usefixtures("float64")

ATTENTIONS = [*READERS]
LINES = ["the cat sat on the mat", "a dog sat on a cat", "the dog ran", "a cat ran on and on and on"] * 6
QUIET = dict(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)


def build(attention="key_value_predict", seed=0, **options):
    torch.manual_seed(seed)
    model = KeyValuePredictLM(
        **{**KeyValuePredictLM.tiny, "vocab_size": 14, "attention": attention, "window": 3, **options}
    ).eval()
    for p in model.parameters():  # large weights, so that a difference shows
        p.data.mul_(2)
    return model


def ids(*shape, seed=0):
    return torch.randint(EOS, 12, shape, generator=torch.Generator().manual_seed(seed))


def with_words(model):
    model.tokenizer = Tokenizer.train(LINES, "word", model.config["vocab_size"])
    return model


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A data module of a small text; the size of batches is up to the test."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "text.txt"
    file.write_text("".join(f"{line}\n" for line in LINES))
    return lambda **options: PlainText(
        str(file), str(file), str(file), **{"tokenizer": "word", "batch_size": 3, "segment": 5, **options}
    )


# ---- the equations ----


def reference(model, inputs):
    """Readouts and weights of one text (T,), by the paper, a word at a time."""
    c, layers, outputs = model.config, [], []
    size, window = c["hidden_size"], c["window"]
    for cell in model.cells:
        twin = nn.LSTM(cell.input_size, cell.hidden_size)
        state = {"weight_ih_l0": cell.weight_input, "weight_hh_l0": cell.weight_hidden, "bias_ih_l0": cell.bias}
        twin.load_state_dict({**state, "bias_hh_l0": torch.zeros_like(cell.bias)})
        layers.append(twin)
    x = (model.words.table(inputs) * c["embedding_size"] ** 0.5).unsqueeze(1)
    for layer in layers:
        x, _ = layer(x)
    outputs = x.squeeze(1)  # (T, O)
    r, readouts, weights = model.reader, [], []
    for t, h in enumerate(outputs):
        if c["attention"] == "none":
            readouts.append(h)
        elif c["attention"] == "ngram":
            slices = [
                outputs[t - n][n * size : (n + 1) * size] if t >= n else torch.zeros(size)
                for n in range(c["ngram"] - 1)
            ]
            readouts.append(torch.tanh(r.w_n.weight @ torch.cat(slices)))
        else:
            parts = {"attention": (h, h, h), "key_value": (*h.split(size), h[size:])}.get(c["attention"]) or h.split(
                size
            )
            keys, values = outputs[:, :size], outputs[:, size : 2 * size] if c["attention"] != "attention" else outputs
            past = range(t - 1, max(t - window, 0) - 1, -1)  # the nearest first
            context, row = torch.zeros(size), torch.zeros(window)
            if t:
                scores = torch.stack([r.w @ torch.tanh(r.w_y.weight @ keys[i] + r.w_h.weight @ parts[0]) for i in past])
                row[: len(scores)] = scores.softmax(0)
                context = sum(a * values[i] for a, i in zip(row, past))
            readouts.append(torch.tanh(r.w_r.weight @ context + r.w_x.weight @ parts[2]))
            weights.append(row)
    return torch.stack(readouts), torch.stack(weights) if weights else None


@exactly
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_equations(attention):
    model, inputs = build(attention, num_layers=2, inner_size=5), ids(2, 8)
    with torch.no_grad():
        readouts, weights, _ = model.read(inputs, model.start(2))
        for b in range(2):
            want, want_weights = reference(model, inputs[b])
            torch.testing.assert_close(readouts[b], want, rtol=1e-9, atol=1e-9)
            assert (weights is None) == (want_weights is None)
            if weights is not None:
                torch.testing.assert_close(weights[b], want_weights, rtol=1e-9, atol=1e-9)


def test_sampled_words_are_for_the_training_only():
    whole, model = build(dropout=0.0), build(dropout=0.0, sampled_words=4)
    batch = LMBatch(ids(2, 6), ids(2, 6, seed=1), first=True)
    assert torch.equal(model.loss(batch)[0], whole.loss(batch)[0])  # while it is scored
    torch.manual_seed(0)
    losses = {round(model.train().loss(batch)[0].item(), 4) for _ in range(5)}
    assert len(losses) > 1  # each draws anew
    with pytest.raises(ValueError, match="sampled_words must be at least 2, or null for the whole vocabulary; got 1"):
        build(sampled_words=1)


@exactly
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_soft_targets_are_learnt_in_place_of_the_labels(attention):
    model = build(attention, dropout=0.0, sampled_words=4).train()
    batch = LMBatch(ids(2, 6), ids(2, 6, seed=1), first=True)
    batch.labels[1, 4:] = PAD
    certain = SoftLabels(batch.labels.unsqueeze(-1), torch.ones(2, 6, 1))
    want = build(attention, dropout=0.0).train().loss(batch)
    got = model.loss(batch._replace(soft=certain))
    torch.testing.assert_close(got, want)
    others = SoftLabels(torch.stack([batch.labels, (batch.labels + 1) % 12], -1), torch.full((2, 6, 2), 0.5))
    loss, count = model.loss(batch._replace(soft=others))
    log_probs = model(batch.inputs)[0].log_softmax(-1)[batch.labels != PAD]
    wanted = log_probs.gather(-1, others.words[batch.labels != PAD]).mean(-1).sum()
    assert count == 10
    torch.testing.assert_close(loss, -wanted)


@exactly
@pytest.mark.parametrize("tie_output", [True, False])
def test_evaluation_temperature_softens_all_that_is_not_trained(tie_output):
    one, model = (build(dropout=0.0, tie_output=tie_output, evaluation_temperature=t) for t in (1.0, 2.0))
    model.load_state_dict(one.state_dict())
    batch = LMBatch(ids(2, 6), ids(2, 6, seed=1), first=True)
    with torch.no_grad():
        bias = one.words.output.bias.normal_()
        model.words.output.bias.copy_(bias)
        logits, _ = model(batch.inputs)
        torch.testing.assert_close(logits, bias + (one(batch.inputs)[0] - bias) / 2)
        want = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum")
        torch.testing.assert_close(model.loss(batch)[0], want)
        model._measure(batch)
        assert model._sums()[0] == pytest.approx(want.item())
    assert torch.equal(model.train().loss(batch)[0], one.train().loss(batch)[0])
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"evaluation_temperature must be above 0 and finite; got {bad}"):
            build(evaluation_temperature=bad)


@pytest.mark.parametrize("attention", ["attention", "key_value", "key_value_predict"])
def test_weights_sum_to_one_where_something_was_read(attention):
    model = build(attention, window=6)  # longer than the text
    _, weights = model(ids(2, 4))
    assert (weights >= 0).all() and weights.shape == (2, 4, 6)
    assert weights[:, 0].abs().max() == 0  # nothing was read before: the context is 0
    torch.testing.assert_close(weights[:, 1:].sum(-1), torch.ones(2, 3))
    for t in range(4):
        assert (weights[:, t, t:] == 0).all()


@exactly
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("pieces", [[1] * 11, [4, 7], [2, 3, 1, 5]])
def test_segments_of_any_length_are_one_text(attention, pieces):
    model, inputs = build(attention, num_layers=2), ids(3, 11)
    with torch.no_grad():
        whole, whole_weights, end = model.read(inputs, model.start(3))
        state, found = model.start(3), []
        for piece in inputs.split(pieces, dim=1):
            readouts, weights, state = model.read(piece, state)
            found.append((readouts, weights))
    torch.testing.assert_close(torch.cat([readouts for readouts, _ in found], dim=1), whole)
    if whole_weights is not None:
        torch.testing.assert_close(torch.cat([weights for _, weights in found], dim=1), whole_weights)
    for a, b in zip(state, end, strict=True):
        torch.testing.assert_close(a, b)


@exactly
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_texts_of_different_length_side_by_side(attention):
    """Readouts, weights and the state behind each text are those of the text alone; also where a text has ended
    before.
    """
    model, lengths = build(attention), [7, 0, 2, 4]
    inputs = ids(4, 7)
    for row, length in zip(inputs, lengths):
        row[length:] = PAD
    with torch.no_grad():
        state, found = model.start(4), []
        for first in (0, 3):
            piece = inputs[:, first : first + 4 if first else 3]
            counts = (torch.tensor(lengths) - first).clamp(0, piece.size(1))
            readouts, _, state = model.read(piece, state, counts)
            found.append(readouts)
        for b, length in enumerate(lengths):
            if length:
                alone, _, end = model.read(inputs[b : b + 1, :length], model.start(1))
            else:
                alone, end = torch.zeros(1, 0, 8), model.start(1)
            torch.testing.assert_close(torch.cat(found, dim=1)[b, :length], alone[0])
            for a, z in zip(state, end, strict=True):
                torch.testing.assert_close(a[b], z[0])


@exactly
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_stream_does_not_depend_on_its_batch(attention):
    model, inputs = build(attention), ids(5, 6)
    whole, _ = model(inputs)
    for b in range(5):
        alone, _ = model(inputs[b : b + 1])
        torch.testing.assert_close(alone[0], whole[b], rtol=1e-9, atol=1e-9)


def test_sizes():
    sizes = {attention: build(attention).output_size for attention in ATTENTIONS}
    assert sizes == {"none": 8, "attention": 8, "key_value": 16, "key_value_predict": 24, "ngram": 24}
    assert [cell.hidden_size for cell in build(num_layers=3, inner_size=7).cells] == [7, 7, 24]
    tied = build(tie_output=True)
    assert tied.words.output.weight is tied.words.table.weight and isinstance(tied.words.bridge, nn.Linear)
    assert isinstance(build(hidden_size=6).words.bridge, nn.Identity)  # of the embedding size already


def test_locked_dropout_is_the_same_at_all_steps():
    found = {}
    for locked in (True, False):
        model = build("none", dropout=0.5, locked_dropout=locked).train()
        readouts = model.dropout(torch.ones(6, 2, 8))
        found[locked] = (readouts == readouts[:1]).all().item()
    assert found == {True: True, False: False}


@pytest.mark.parametrize("name", ["input_dropout", "word_dropout", "weight_dropout", "inner_dropout", "dropout"])
def test_each_dropout_acts_in_training_only(name):
    model, batch = build(**{name: 0.4}), LMBatch(ids(4, 9), ids(4, 9, seed=1), True)
    plain = build().loss(batch)[0]
    torch.testing.assert_close(model.loss(batch)[0], plain)
    losses = {model.train().loss(batch)[0].item() for _ in range(3)}
    assert len(losses) == 3 and plain.item() not in losses


# ---- memory from batch to batch ----


def halves(inputs, labels):
    middle = inputs.size(1) // 2
    return LMBatch(inputs[:, :middle], labels[:, :middle], True), LMBatch(inputs[:, middle:], labels[:, middle:], False)


@exactly
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_batch_goes_on_where_the_one_before_ended(attention):
    model, inputs, labels = build(attention), ids(3, 10), ids(3, 10, seed=1)
    whole, count = model.loss(LMBatch(inputs, labels, True))
    first, second = halves(inputs, labels)
    parts = [model.loss(first), model.loss(second)]
    torch.testing.assert_close(sum(loss for loss, _ in parts), whole)
    assert [words for _, words in parts] == [15, 15] and count == 30
    forgetful = model.loss(second._replace(first=True))[0]
    assert abs(forgetful.item() - parts[1][0].item()) > 1e-3


def test_the_memory_is_cut_off_from_its_gradient():
    model = build().train()
    first, second = halves(ids(3, 10), ids(3, 10, seed=1))
    model.loss(first)[0].backward()
    assert not any(x.requires_grad for x in model._carried[True])
    model.zero_grad()
    model.loss(second)[0].backward()  # would fail if it reached back into the first graph
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_a_validation_leaves_the_training_memory_alone():
    model = build().train()
    first, second = halves(ids(3, 10), ids(3, 10, seed=1))
    model.loss(first)
    want = model.loss(second)[0]
    model.loss(first)
    model.eval().loss(LMBatch(ids(7, 4), ids(7, 4), True))
    assert torch.equal(model.train().loss(second)[0], want)


@exactly
def test_labels_that_are_pads_do_not_count():
    model, batch = build(), LMBatch(ids(3, 6), ids(3, 6, seed=1), True)
    labels = batch.labels.clone()
    labels[0, 2:] = PAD
    loss, count = model.loss(batch._replace(labels=labels))
    assert count == 14
    short, _ = model.loss(LMBatch(batch.inputs[:1, :2], batch.labels[:1, :2], True))
    others, _ = model.loss(LMBatch(batch.inputs[1:], batch.labels[1:], True))
    torch.testing.assert_close(loss, short + others)
    nothing, count = model.loss(batch._replace(labels=torch.zeros_like(labels)))  # another process may have words left
    nothing.backward()
    assert count == 0 and nothing == 0 and all((p.grad == 0).all() for p in model.parameters())


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_low_precision_is_near(attention):
    model, batch = build(attention, num_layers=2).train(), LMBatch(ids(4, 9), ids(4, 9, seed=1), True)
    exact, _ = model.loss(batch)
    with torch.autocast("cpu", torch.bfloat16):
        near, _ = model.loss(batch)
    near.backward()
    assert abs(near.item() / exact.item() - 1) < 0.02 and all(p.grad.isfinite().all() for p in model.parameters())
    assert all(x.dtype in (torch.float32, torch.int64) for x in model._carried[True])


def fit(model, data, tmp_path=None, ckpt=None, **options):
    callbacks = []
    if tmp_path:
        callbacks = [pl.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)]
    trainer = pl.Trainer(**QUIET, enable_checkpointing=bool(tmp_path), callbacks=callbacks, **options)
    trainer.fit(model, datamodule=data, ckpt_path=ckpt)
    return trainer


@pytest.mark.parametrize("attention", ["key_value_predict", "ngram", "none"])
def test_a_training_goes_on_exactly_in_the_middle_of_an_epoch(corpus, tmp_path, attention):
    options = dict(dropout=0.3, word_dropout=0.1, weight_dropout=0.2)
    whole = schedule(build(attention, **options), warmup_steps=3)
    pl.seed_everything(5)
    trainer = fit(whole, corpus(), tmp_path / "whole", max_epochs=2)
    steps = trainer.global_step // 2
    assert steps > 5
    for stop in (2, steps):  # also at the end of the first epoch
        again = schedule(build(attention, seed=1, **options), warmup_steps=3)
        fit(again, corpus(), None, tmp_path / "whole" / f"step={stop}.ckpt", max_epochs=2)
        for (name, a), b in zip(whole.state_dict().items(), again.state_dict().values()):
            assert torch.equal(a, b), (stop, name)
    checkpoint = torch.load(tmp_path / "whole" / "step=2.ckpt", weights_only=True)
    checkpoint["zoo_carried"] = [torch.zeros_like(x) for x in checkpoint["zoo_carried"]]
    torch.save(checkpoint, tmp_path / "forgot.ckpt")
    again = build(attention, **options)
    fit(again, corpus(), None, tmp_path / "forgot.ckpt", max_epochs=2)
    assert not all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), again.state_dict().values()))


def test_each_process_takes_its_own_streams_from_a_checkpoint():
    model, found = build(), {}
    checkpoint = {"zoo_carried": [torch.arange(6), torch.arange(12).view(6, 2)], "state_dict": {}}
    for rank in range(3):
        model._trainer = type("Trainer", (), {"global_rank": rank, "world_size": 3})()
        model.on_load_checkpoint(dict(checkpoint))
        found[rank] = [x.tolist() for x in model._carried[True]]
    assert found[1] == [[2, 3], [[4, 5], [6, 7]]] and [found[r][0] for r in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_batches_that_do_not_follow_each_other():
    model = build()
    model.loss(LMBatch(ids(3, 4), ids(3, 4), True))
    with pytest.raises(
        ValueError, match="a batch of 2 streams cannot continue one of 3; give equal batches, or .*first=True"
    ):
        model.loss(LMBatch(ids(2, 4), ids(2, 4), False))


# ---- perplexity ----


def naive_perplexity(model, text):
    """By `forward` over the whole text."""
    labels = [i for line in text.split("\n") for i in [*model.tokenizer.encode(line), EOS]]
    logits, _ = model(torch.tensor([[EOS, *labels[:-1]]]))
    return nn.functional.cross_entropy(logits[0], torch.tensor(labels)).exp().item()


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_perplexity(attention, monkeypatch):
    monkeypatch.setattr("zoo.tasks.language_modelling.STEPS_AT_ONCE", 4)
    model = with_words(build(attention))
    texts = ["the cat sat", "a dog ran on\nthe mat", "", "cat", "a zebra ran", " \n"]
    texts.append("the cat sat on the mat and the dog ran on a mat\n\nthe cat")
    found = model.perplexity(texts, batch_size=3)
    for text, value in zip(texts, found):
        if text.strip():
            assert value == pytest.approx(naive_perplexity(model, text), rel=1e-4)
            assert model.perplexity(text) == pytest.approx(value, rel=1e-5)
        else:
            assert math.isnan(value)
    assert model.perplexity("the cat sat\n") == pytest.approx(found[0])  # the end of a file is no empty line
    assert model.perplexity("zebra") == pytest.approx(model.perplexity("okapi"))
    assert model.perplexity([]) == []


def test_validation_and_test_give_the_perplexity_of_the_text(corpus):
    """Whatever the batches are; the test is one stream, so it is exactly that of `perplexity`."""
    model, found = build(), []
    for batch_size, segment in ((3, 5), (1, 7), (4, 500)):
        data = corpus(batch_size=batch_size, segment=segment, val_streams=2)
        trainer = pl.Trainer(**QUIET)
        (test,), (val,) = (
            trainer.test(model, datamodule=data, verbose=False),
            trainer.validate(model, datamodule=data, verbose=False),
        )
        found.append(
            (test["test/perplexity"], val["val/perplexity"], math.log(val["val/perplexity"]) - val["val/loss"])
        )
    for test, val, zero in found:
        assert (
            test == pytest.approx(found[0][0], rel=1e-5)
            and val == pytest.approx(found[0][1], rel=1e-5)
            and abs(zero) < 1e-6
        )
        assert test == pytest.approx(model.perplexity("\n".join(LINES)), rel=1e-5)
        assert val != pytest.approx(test, rel=1e-6)  # two streams: the second one begins without a memory


def test_how_far_back_the_model_looked(corpus):
    model = build(window=3)
    nn.init.zeros_(model.reader.w)  # even attention
    (found,) = pl.Trainer(**QUIET).test(model, datamodule=corpus(), verbose=False)
    words = sum(len(line.split()) + 1 for line in LINES)
    # the second word sees one step, the third one two, all others three
    share = [(1 + 1 / 2 + (words - 3) / 3), (1 / 2 + (words - 3) / 3), (words - 3) / 3]
    for d, value in enumerate(share, start=1):
        assert found[f"test/share_{d}"] == pytest.approx(value / (words - 1), rel=1e-5)
    assert found["test/mean_distance"] == pytest.approx(
        sum(d * value for d, value in enumerate(share, start=1)) / (words - 1), rel=1e-5
    )
    (plain,) = pl.Trainer(**QUIET).test(build("none"), datamodule=corpus(), verbose=False)
    assert plain.keys() == {"test/loss", "test/perplexity"}


def test_a_training_learns_a_text(corpus):
    model = schedule(build(dropout=0.0, hidden_size=16), lr=0.02, warmup_steps=5)
    data = corpus(segment=8)
    before = pl.Trainer(**QUIET).validate(model, datamodule=data, verbose=False)[0]["val/perplexity"]
    trainer = fit(model, data, max_epochs=25, check_val_every_n_epoch=25)
    assert model.tokenizer is not None and before > 9
    assert trainer.callback_metrics["val/perplexity"] < 2


def test_a_new_model_begins_with_how_often_each_word_occurs(corpus):
    model, data = build(vocab_size=16), corpus()
    fit(model, data, max_steps=0)
    words = [word for line in LINES for word in [*data.tokenizer.encode(line), EOS]]
    counts = torch.tensor([float(max(1, words.count(n))) for n in range(16)])  # 4 rows are of no word
    silent = model.words.logits(torch.zeros(8))
    torch.testing.assert_close(silent.softmax(-1), counts / counts.sum())


def test_a_trained_model_keeps_its_bias(corpus):
    model = with_words(build())
    before = model.words.output.bias.detach().clone()
    fit(model, corpus(), max_steps=0)
    assert torch.equal(model.words.output.bias, before)


def test_a_vocabulary_larger_than_the_model(corpus):
    with pytest.raises(
        ValueError, match="a vocabulary of 13 words, the model one of 5; set the model's vocab_size to at least 13"
    ):
        fit(KeyValuePredictLM(**{**KeyValuePredictLM.tiny, "vocab_size": 5}), corpus(), max_steps=1)


def test_a_training_on_other_text_adds_its_words(corpus, tmp_path):
    model = with_words(build())
    old, known = model.words.table.weight.detach().clone(), len(model.tokenizer)
    file = tmp_path / "other.txt"
    file.write_text("a zebra ran\nthe zebra sat on a gnu\n" * 9)
    data = PlainText(str(file), str(file), tokenizer="word", batch_size=2, segment=4, extend_vocabulary=2)
    fit(model, data, max_steps=1)
    assert model.tokenizer.encode("zebra gnu") == [known, known + 1]
    assert model.config["vocab_size"] == max(14, known + 2) and model.words.output.weight is model.words.table.weight
    fresh = with_words(build())
    fresh.extend_vocabulary(["zebra"])
    assert torch.equal(fresh.words.table.weight[:known], old[:known]) and fresh.tokenizer.encode("zebra") == [known]


@pytest.mark.parametrize("run", ["validate", "test"])
def test_a_measurement_adds_no_words(run, tmp_path):
    model = with_words(build())
    known = len(model.tokenizer)
    file = tmp_path / "other.txt"
    file.write_text("a zebra ran\nthe zebra sat on a gnu\n" * 9)
    data = PlainText(str(file), str(file), str(file), tokenizer="word", extend_vocabulary=200, val_streams=1)
    scores = getattr(pl.Trainer(**QUIET), run)(model, datamodule=data, verbose=False)
    assert len(model.tokenizer) == len(data.tokenizer) == known and scores[0]


# ---- completing ----


def test_completion_is_the_most_probable_word_again_and_again():
    model = with_words(build()).double()
    found = model.complete("the cat", max_words=6, beam_size=1, allow_unk=True)
    row = [EOS, *model.tokenizer.encode("the cat")]
    for n in range(6):
        logits, weights = model(torch.tensor([row]))
        if n == 0:
            logits[..., EOS] = -torch.inf  # min_words
        logits[..., [PAD, 2, *range(len(model.tokenizer), 14)]] = -torch.inf
        row.append(int(logits[0, -1].argmax()))
        if row[-1] == EOS:
            break
    assert found.tokens == model.tokenizer.tokens(row[1:]) and found.given == 2
    torch.testing.assert_close(found.attention, weights[0], rtol=1e-9, atol=1e-9)  # of each word when it was predicted
    assert found.text == f"the cat {found.continuation}".strip()


@pytest.mark.parametrize("kind", ["word", "char"])
def test_an_unknown_word_that_is_allowed_is_in_the_text(kind):
    model = build()
    model.tokenizer = Tokenizer.train(["ab cd ab cd"], kind, model.config["vocab_size"])
    model.words.output.bias.data[UNK] = 1e3
    found = model.complete("ab", max_words=2, min_words=2, beam_size=1, allow_unk=True)
    assert found.tokens[-2:] == ["<unk>", "<unk>"] and found.continuation.count("<unk>") == 2
    assert found.text.count("<unk>") == 2 and found.n_best == [(found.text, found.score)]


@pytest.mark.parametrize(("text", "added", "whole"), [("ab ☃", " cd", "ab ☃ cd"), ("ab ☃", "cd", "ab ☃cd")])
def test_a_completion_of_an_unknown_character_keeps_its_spaces(text, added, whole):
    model = build()
    model.tokenizer = Tokenizer.train(["ab cd ab cd"], "char", model.config["vocab_size"])
    ids = model.tokenizer.encode(f"a{added}")[1:]
    assert model._joined(text, model._encode(text)[:-1], ids) == whole


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_completions_do_not_depend_on_their_neighbours(attention, monkeypatch):
    monkeypatch.setattr("zoo.tasks.language_modelling.STEPS_AT_ONCE", 3)
    model = with_words(build(attention))
    texts = ["the cat sat on the mat and", "", "a zebra", "the dog ran\na", "cat"]
    together = model.complete(texts, n_best=2, beam_size=3, max_words=5, batch_size=2)
    for text, found in zip(texts, together):
        alone = model.complete(text, n_best=2, beam_size=3, max_words=5)
        assert alone.n_best[0][0] == found.n_best[0][0] == found.text and alone.tokens == found.tokens
        assert [s for _, s in alone.n_best] == pytest.approx([s for _, s in found.n_best], rel=1e-4)
        assert found.text.startswith(text) and found.score == found.n_best[0][1] and len(found.n_best) == 2
        assert len(found.tokens) - found.given <= 5
        if attention in ("none", "ngram"):
            assert found.attention is None
        else:
            assert found.attention.shape == (len(found.tokens), 3)
    assert together[2].tokens[:2] == ["a", "<unk>"] and together[3].tokens[3:5] == ["</s>", "a"]


def test_unknown_words_are_read_as_known_ones_where_that_is_possible():
    model = with_words(build())
    model.tokenizer = Tokenizer.train(["the cat N mr. it", "said"], "word", 12)

    def read(text):
        return model.tokenizer.tokens(model._encode(text)[:-1])

    assert read('The CAT, (said) 5.2 1,000 Mr. "it" . 3rd') == ["the", "cat", "said", "N", "N", "mr.", "it", "<unk>"]
    assert read("<unk> N") == ["<unk>", "N"]
    raw = Tokenizer.train(["the cat."], "word_punct", 12)
    model.tokenizer = raw
    assert read("The cat, .") == ["<unk>", "cat", "<unk>", "."]


def test_what_is_written():
    model = with_words(build())
    with torch.no_grad():
        model.words.output.bias[EOS] += 50  # ends whenever it may
    for options in ({"beam_size": 1}, {}, {"temperature": 1.0}):
        for least, most in ((4, 4), (1, 1), (2, 5), (0, 3)):
            found = model.complete("the", min_words=least, max_words=most, **options)
            assert len(found.tokens) - found.given - (found.tokens[-1] == "</s>") == least, (options, least, most)
    with torch.no_grad():
        model.words.output.bias[EOS] -= 50
    assert UNK not in [
        i for n in range(5) for i in model.tokenizer.encode(model.complete(f"{'a ' * n}", max_words=8).continuation)
    ]
    torch.manual_seed(0)
    drawn = {model.complete("the", temperature=1.0, max_words=8).text for _ in range(5)}
    assert len(drawn) > 1
    words = model.complete("the", max_words=12, no_repeat_ngram=1).continuation.split()
    assert len(words) == len(set(words))
    for kind, text in (("char", "teh c"), ("char", "c Xt\nhe"), ("bpe", "the c"), ("word", "the\n")):
        model.tokenizer = Tokenizer.train(["the c", "the c"], kind, 14)
        found = next(f for _ in range(20) if (f := model.complete(text, max_words=3, temperature=1.0)).continuation)
        assert found.text in (text + found.continuation, f"{text} {found.continuation}"), (kind, text)


def test_completing_leaves_dropout_as_it_was():
    model = with_words(build(dropout=0.5)).train()
    assert model.complete("a").text == model.complete("a").text and model.perplexity("a cat") == model.perplexity(
        "a cat"
    )
    assert model.training


def test_json_and_picture(tmp_path):
    model = with_words(build())
    found = model.complete("the cat", max_words=3, n_best=2)
    values = json.loads(json.dumps(found.to_dict()))
    assert values["tokens"] == found.tokens and values["given"] == 2 and len(values["n_best"]) == 2
    assert torch.tensor(values["attention"]).shape == found.attention.shape
    assert "n_best" not in model.complete("the").to_dict()
    assert found.plot(tmp_path / "a.png").stat().st_size > 5000
    with pytest.raises(ValueError, match="this model has no attention to plot"):
        with_words(build("none")).complete("the").plot(tmp_path / "b.png")


def test_what_cannot_go_on_has_no_score():
    """There are fewer words than may not be repeated."""
    found = with_words(build()).complete("the cat", min_words=50, max_words=60, no_repeat_ngram=1, n_best=2)
    assert found.score == -math.inf
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["score"] is None and values["n_best"] == []


def test_the_command_line(monkeypatch, capsys, tmp_path):
    model = with_words(build())
    monkeypatch.setattr(registry, "load", lambda name: model)
    assert main(["predict", "lm", "the cat", "a", "--plot", str(tmp_path / "a.png")]) == 0
    assert capsys.readouterr().out.splitlines() == [found.text for found in model.complete(["the cat", "a"])]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a-2.png", "a.png"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("the cat\na\n"))
    assert main(["predict", "lm", "--json", "--n-best", "2", "--beam-size", "3"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [f["source"] for f in found] == ["the cat", "a"] and all(len(f["n_best"]) == 2 for f in found)
    assert main(["predict", "lm", "a", "--html", str(tmp_path / "a.html")]) == 0
    assert "lm · a</p>" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_a_model_that_has_diverged_has_infinite_perplexity():
    model = with_words(build())
    with torch.no_grad():
        model.words.output.bias[:] = torch.linspace(-3000, 3000, len(model.words.output.bias))
    assert model.perplexity("the cat") == math.inf
    model.on_validation_epoch_start()
    model.validation_step(model.example_batch(2), 0)
    values = model._values()
    assert values["perplexity"] == math.inf > values["loss"]


def test_mistakes():
    model = build()
    with pytest.raises(ValueError, match="this model has no tokenizer yet; load a pretrained one with zoo.load"):
        model.complete("a")
    with_words(model)
    with pytest.raises(
        TypeError, match=r"cache must be a zoo.ContinuousCache, such as zoo.ContinuousCache\(\); got True"
    ):
        model.perplexity("a", cache=True)
    with pytest.raises(TypeError, match="max_words must be an integer; got 2.5"):
        model.complete("a", max_words=2.5)
    with pytest.raises(TypeError, match="complete takes a string or a list of strings; got int in the list"):
        model.complete(["a", 1])
    with pytest.raises(TypeError, match="complete takes a string or a list of strings; got NoneType$"):
        model.complete(None)
    with pytest.raises(TypeError, match="perplexity takes a string or a list of strings; got NoneType in the list"):
        model.perplexity([None])
    with pytest.raises(
        ValueError, match="max_words must be at least 1, and min_words from 0 to max_words; got 0 and 1"
    ):
        model.complete("a", max_words=0)
    with pytest.raises(ValueError, match="n_best must be between 1 and beam_size = 2; got 3"):
        model.complete("a", n_best=3, beam_size=2)
    for options, message in (
        ({"beam_size": 101}, "beam_size must be from 1 to 100; got 101"),
        ({"length_penalty": 1e9}, "length_penalty must be from -10 to 10; got 1000000000.0"),
        ({"length_penalty": math.nan}, "length_penalty must be from -10 to 10; got nan"),
        ({"temperature": math.inf}, "temperature must be greater than 0 and finite; got inf"),
    ):
        with pytest.raises(ValueError, match=message):
            model.complete("a", **options)
    for method in (model.complete, model.perplexity):
        with pytest.raises(ValueError, match="batch_size must be at least 1; got 0"):
            method(["a"], batch_size=0)
    with pytest.raises(ValueError, match="attention must be one of 'none', 'ngram', .*; got 'dot'"):
        build("dot")
    for options, message in (
        ({"window": 0}, "window must be at least 1; got 0"),
        ({"attention": "ngram", "ngram": 1}, "ngram must be at least 2; got 1"),
        ({"num_layers": 0}, "num_layers must be at least 1; got 0"),
        ({"embedding_size": 0}, "embedding_size must be at least 1; got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\); got 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            build(**options)


# ---- two processes ----


@pytest.mark.slow
def test_two_processes_compute_what_one_computes(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    text, losses, weights = str(tmp_path / "text.txt"), {}, {}
    for name, devices, batch_size in (("one", 1, 4), ("two", 2, 2)):
        quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
        sizes = {**KeyValuePredictLM.tiny, "vocab_size": 13}
        parts = {
            "seed_everything": 3,
            "trainer": {**quiet, "max_epochs": 2, "devices": devices},
            "model": {"class_path": "zoo.models.key_value_predict_lm.KeyValuePredictLM", "init_args": sizes},
            "data": {
                "class_path": "zoo.data.PlainText",
                "init_args": {
                    "train": text,
                    "val": text,
                    "test": text,
                    "tokenizer": "word",
                    "batch_size": batch_size,
                    "segment": 5,
                },
            },
        }
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tiny.yaml").write_text(yaml.safe_dump(parts))
        for verb in ("fit", "test"):
            more = ["--ckpt_path", "last"] if verb == "test" else []
            command = [sys.executable, "-m", "zoo", verb, "--config", "tiny.yaml", *more]
            run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
            assert run.returncode == 0, run.stderr
        losses[name] = float(
            next(line.split()[1] for line in run.stdout.splitlines() if line.startswith("  test/perplexity"))
        )
        weights[name] = torch.load(folder / "runs/tiny/checkpoints/last.ckpt", weights_only=True)
    for key, tensor in weights["one"]["state_dict"].items():
        torch.testing.assert_close(weights["two"]["state_dict"][key], tensor, rtol=0, atol=1e-4, msg=key)
    assert losses["one"] == pytest.approx(losses["two"], rel=1e-4)
    assert [x.shape for x in weights["one"]["zoo_carried"]] == [x.shape for x in weights["two"]["zoo_carried"]]
    for a, b in zip(weights["one"]["zoo_carried"], weights["two"]["zoo_carried"], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-3)
