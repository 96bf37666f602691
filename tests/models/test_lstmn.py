"""LSTMN: the equations against a loop, the tape across segments and beside other texts, the gradient, mistakes."""

import pytest
import torch

from zoo.batches.language_modelling import LMBatch
from zoo.models.lstmn import LSTMNLM
from zoo.text import EOS, PAD, Tokenizer

LINES = ["the cat sat on the mat", "a dog sat on a cat"] * 3


def build(**options):
    torch.manual_seed(0)
    model = LSTMNLM(**{**LSTMNLM.tiny, "vocab_size": 14, "window": 3, **options}).eval().double()
    for p in model.parameters():  # large weights, so that a difference shows
        p.data.mul_(2)
    return model


def ids(*shape):
    return torch.randint(EOS, 12, shape, generator=torch.Generator().manual_seed(0))


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def layer_by_the_paper(layer, inputs, window):
    """Outputs (T, H) and weights (T, L) of one text, inputs (T, I), a step and a number at a time."""
    size, cell = layer.cell.hidden_size, layer.cell
    hidden, cells, summary, shown = [], [], inputs.new_zeros(size), []
    for x in inputs:
        past = list(range(len(hidden)))[::-1][:window]  # the nearest first
        scores = [
            layer.v @ torch.tanh(layer.w_h.weight @ hidden[i] + layer.w_x.weight @ x + layer.w_summary.weight @ summary)
            for i in past
        ]
        total = sum(score.exp() for score in scores)
        weights = [score.exp() / total for score in scores]
        summary, memory = (
            sum((w * tape[i] for w, i in zip(weights, past)), inputs.new_zeros(size)) for tape in (hidden, cells)
        )
        w = torch.cat([cell.weight_hidden, cell.weight_input], dim=1)
        i, f, g, o = (w @ torch.cat([summary, x]) + cell.bias).split(size)  # of [h~_t; x_t]
        c = sigmoid(f) * memory + sigmoid(i) * torch.tanh(g)
        cells.append(c)
        hidden.append(sigmoid(o) * torch.tanh(c))
        shown.append(torch.stack([*weights, *[inputs.new_zeros(())] * (window - len(weights))]))
    return torch.stack(hidden), torch.stack(shown)


@pytest.mark.parametrize("options", [{}, {"window": 1}, {"window": 20}, {"num_layers": 2, "attention_size": 5}])
@torch.no_grad()
def test_equations(options):
    model, inputs = build(**options), ids(2, 8)
    readouts, weights, _ = model.read(inputs, model.start(2))
    for b in range(2):
        x = model.words.table.weight[inputs[b]] * 6**0.5
        for layer in model.layers:
            x, shown = layer_by_the_paper(layer, x, model.config["window"])
        torch.testing.assert_close(readouts[b], x)
        torch.testing.assert_close(weights[b], shown)


def test_gradient_is_the_slope():
    model = build(num_layers=2, dropout=0.0)
    batch = LMBatch(ids(2, 6), ids(2, 6), first=True)
    model.loss(batch)[0].backward()
    for name, p in model.named_parameters():
        step, losses = torch.randn_like(p), []
        for by in (1e-5, -1e-5):
            with torch.no_grad():
                p.add_(step, alpha=by)
                losses.append(model.loss(batch)[0].item())
                p.sub_(step, alpha=by)
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx((step * p.grad).sum().item(), rel=1e-6, abs=1e-6), name


@pytest.mark.parametrize("pieces", [[1] * 11, [4, 7], [2, 3, 1, 5]])
@torch.no_grad()
def test_segments_of_any_length_are_one_text(pieces):
    model, inputs = build(num_layers=2), ids(3, 11)
    whole, whole_weights, end = model.read(inputs, model.start(3))
    state, found = model.start(3), []
    for piece in inputs.split(pieces, dim=1):
        readouts, weights, state = model.read(piece, state)
        found.append((readouts, weights))
    torch.testing.assert_close(torch.cat([readouts for readouts, _ in found], dim=1), whole)
    torch.testing.assert_close(torch.cat([weights for _, weights in found], dim=1), whole_weights)
    for a, b in zip(state, end, strict=True):
        torch.testing.assert_close(a, b)


@torch.no_grad()
def test_texts_of_different_length_side_by_side():
    """Readouts and the state behind each text are those of the text alone; also where a text has ended before."""
    model, lengths = build(), [7, 0, 2, 4]
    inputs = ids(4, 7)
    for row, length in zip(inputs, lengths):
        row[length:] = PAD
    state, found = model.start(4), []
    for first, piece in ((0, inputs[:, :3]), (3, inputs[:, 3:])):
        readouts, _, state = model.read(piece, state, (torch.tensor(lengths) - first).clamp(0, piece.size(1)))
        found.append(readouts)
    for b, length in enumerate(lengths):
        end = model.start(1)
        if length:
            alone, _, end = model.read(inputs[b : b + 1, :length], end)
            torch.testing.assert_close(torch.cat(found, dim=1)[b, :length], alone[0])
        for a, z in zip(state, end, strict=True):
            torch.testing.assert_close(a[b], z[0])


def test_what_a_training_batch_carries_has_no_gradient():
    model = build().train()
    first, second = LMBatch(ids(2, 4), ids(2, 4), first=True), LMBatch(ids(2, 4), ids(2, 4), first=False)
    alone = build().train().loss(second)[0]
    model.loss(first)
    assert not any(x.requires_grad for x in model._carried[True])
    loss, _ = model.loss(second)
    assert loss != alone
    loss.backward()  # the graph of the first batch is not asked for


def test_complete_shows_where_each_word_looked(tmp_path):
    model = build().float()
    model.tokenizer = Tokenizer.train(LINES, "word", 14)
    found = model.complete("the cat sat", max_words=3, min_words=3)
    assert found.attention.shape == (len(found.tokens), 3)
    assert (found.attention[0] == 0).all()  # nothing was read before the first word
    torch.testing.assert_close(found.attention[1:].sum(-1), torch.ones(len(found.tokens) - 1))
    assert found.plot(tmp_path / "a.png").stat().st_size
    assert model.perplexity("the cat") > 1


@pytest.mark.parametrize("window", [0, 1001])
def test_window_outside_its_range(window):
    with pytest.raises(ValueError, match=f"window must be from 1 to 1,000; got {window:,}"):
        build(window=window)
