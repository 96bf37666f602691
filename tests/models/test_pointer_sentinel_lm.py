"""The pointer sentinel: the equations against a loop, memory across segments and beside other texts, the gradient."""

import pytest
import torch

from zoo.batches.language_modelling import LMBatch, SoftLabels
from zoo.layers.pointer_sentinel import mixed_log_probs, mixed_losses
from zoo.models.pointer_sentinel_lm import PointerSentinelLM
from zoo.text import EOS, PAD, Tokenizer

LINES = ["the cat sat on the mat", "a dog sat on a cat"] * 3


def build(dtype=torch.float64, **options):
    torch.manual_seed(0)
    model = PointerSentinelLM(**{**PointerSentinelLM.tiny, "vocab_size": 14, "window": 3, **options}).eval().to(dtype)
    for p in model.parameters():  # large weights, so that a difference shows
        p.data.mul_(2)
    return model


def ids(*shape, seed=0):
    return torch.randint(EOS, 12, shape, generator=torch.Generator().manual_seed(seed))


def by_the_paper(model, inputs):
    """p(w) after each word of a text (T, V), and the weights (T, L), a word and a number at a time."""
    cell, pointer = model.cells[0], model.pointer
    h = c = torch.zeros(model.config["hidden_size"], dtype=torch.float64)
    states, found, shown = [], [], []
    for t, word in enumerate(inputs.tolist()):
        x = model.words.table.weight[word] * model.config["embedding_size"] ** 0.5
        i, f, g, o = (cell.weight_input @ x + cell.weight_hidden @ h + cell.bias).split(len(h))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
        past = [t - d for d in range(1, model.config["window"] + 1) if d <= t]  # the nearest first
        q = torch.tanh(pointer.query.weight @ h + pointer.query.bias)
        a = torch.stack([*(q @ states[n] for n in past), q @ pointer.sentinel]).softmax(0)
        p = a[-1] * model.words.logits(h).softmax(0)
        for n, weight in zip(past, a):
            p[inputs[n]] += weight
        found.append(p)
        shown.append(torch.cat([a[:-1], torch.zeros(model.config["window"] - len(past), dtype=a.dtype)]))
    return torch.stack(found), torch.stack(shown)


@pytest.mark.parametrize("window", [1, 3, 20])
@torch.no_grad()
def test_equations(window):
    model, inputs = build(window=window), ids(2, 8)
    logits, weights = model(inputs)
    labels = ids(2, 8, seed=1)
    loss, count = model.loss(LMBatch(inputs, labels, first=True))
    want = [by_the_paper(model, row) for row in inputs]
    for b, (p, shown) in enumerate(want):
        torch.testing.assert_close(logits[b].exp(), p, rtol=1e-9, atol=1e-12)  # they are log-probabilities
        torch.testing.assert_close(weights[b], shown, rtol=1e-9, atol=1e-12)
    of_labels = torch.stack([p.gather(1, row.unsqueeze(1)) for (p, _), row in zip(want, labels)])
    assert count == 16 and loss.item() == pytest.approx(-of_labels.log().sum().item(), rel=1e-9)


def test_soft_targets_are_those_of_the_mixture():
    model, batch = build(window=3), LMBatch(ids(2, 8), ids(2, 8, seed=1), first=True)
    certain = SoftLabels(batch.labels.unsqueeze(-1), torch.ones(2, 8, 1))
    torch.testing.assert_close(model.loss(batch._replace(soft=certain)), model.loss(batch))


def test_the_mixture_is_a_distribution():
    """Also where one word is pointed at twice, and where nearly nothing is left for the vocabulary."""
    weights = torch.tensor([[0.2, 0.3, 0.1], [0.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    words, logits = torch.tensor([[4, 5, 4], [0, 0, 0], [3, 2, 1]]), torch.randn(3, 9)
    log_probs = mixed_log_probs(logits, weights, words)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3))
    torch.testing.assert_close(log_probs[0, 4].exp(), 0.3 + 0.4 * logits[0].softmax(0)[4])
    torch.testing.assert_close(log_probs[1], logits[1].log_softmax(0))
    for label in range(9):
        labels = torch.full((3,), label)
        losses = mixed_losses(logits.log_softmax(-1)[:, label], weights, words, labels)
        torch.testing.assert_close(losses, -log_probs[:, label])


def test_gradient_is_the_slope():
    model = build(num_layers=2)
    batch = LMBatch(ids(2, 6), ids(2, 6, seed=1), first=True)
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
    model, inputs, labels = build(num_layers=2), ids(3, 11), ids(3, 11, seed=1)
    whole = model.loss(LMBatch(inputs, labels, first=True))[0]
    first, total = True, 0
    for words, following in zip(inputs.split(pieces, dim=1), labels.split(pieces, dim=1)):
        total += model.loss(LMBatch(words, following, first=first))[0]
        first = False
    torch.testing.assert_close(total, whole)


@torch.no_grad()
def test_texts_of_different_length_side_by_side():
    """The state behind each text is that of the text alone; also where a text has ended before."""
    model, lengths = build(), [7, 0, 2, 4]
    inputs = ids(4, 7)
    for row, length in zip(inputs, lengths):
        row[length:] = PAD
    state = model.start(4)
    for first, piece in ((0, inputs[:, :3]), (3, inputs[:, 3:])):
        _, _, state = model.read(piece, state, (torch.tensor(lengths) - first).clamp(0, piece.size(1)))
    for b, length in enumerate(lengths):
        end = model.start(1)
        if length:
            _, _, end = model.read(inputs[b : b + 1, :length], end)
        for a, z in zip(state, end, strict=True):
            torch.testing.assert_close(a[b], z[0])


@torch.no_grad()
def test_verbs_use_the_mixture(monkeypatch):
    monkeypatch.setattr("zoo.tasks.language_modelling.STEPS_AT_ONCE", 3)
    model = build()
    model.tokenizer = Tokenizer.train(LINES, "word", 14)
    found = model.complete("the cat sat", max_words=6, min_words=6, beam_size=1, allow_unk=True)
    rows = [EOS, *(i for word in found.tokens for i in model.tokenizer.encode(word))]
    assert len(rows) == len(found.tokens) + 1 > found.given + 3
    log_probs, weights = model(torch.tensor([rows[:-1]]))
    log_probs[..., EOS] = -torch.inf  # six words are asked for
    best = log_probs[0].argmax(-1).tolist()
    assert best[found.given :] == rows[1 + found.given :]
    torch.testing.assert_close(found.attention, weights[0])
    assert best != model.words.logits(model.read(torch.tensor([rows[:-1]]), model.start(1))[0])[0].argmax(-1).tolist()
    line = "the cat sat on the mat"
    inputs = torch.tensor([[EOS, *model.tokenizer.encode(line)]])
    labels = torch.tensor([[*model.tokenizer.encode(line), EOS]])
    loss, count = model.loss(LMBatch(inputs, labels, first=True))
    assert model.perplexity(line) == pytest.approx((loss / count).exp().item(), rel=1e-9)


@torch.no_grad()
def test_distances_are_of_the_weight_that_words_get():
    model, inputs = build(window=4), ids(2, 9)
    model.on_validation_epoch_start()
    model._measure(LMBatch(inputs, inputs, first=True))
    values, weights = model._values(), model(inputs)[1]
    assert values["mean_distance"] == pytest.approx(
        ((weights @ torch.arange(1.0, 5, dtype=torch.float64)).sum() / weights.sum()).item(), rel=1e-5
    )
    assert sum(values[f"share_{d}"] for d in range(1, 5)) == pytest.approx(1)


def test_it_learns_to_copy():
    """Of two random words that alternate, the next one can be known only from the text."""
    model = build(torch.float32, window=4, vocab_size=40).train()
    optimizer, generator = torch.optim.Adam(model.parameters(), lr=0.02), torch.Generator().manual_seed(0)
    losses = []
    for _ in range(150):
        pair = torch.randint(4, 40, (16, 2), generator=generator)
        text = pair.repeat(1, 4)
        labels = text[:, 1:].clone()
        labels[:, 0] = PAD  # nothing tells the second word
        loss, count = model.loss(LMBatch(text[:, :-1], labels, first=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() / count)
    assert losses[0] > 0.5 and losses[-1] < 0.25
    weights = model(text[:, :-1])[1][:, 3:]
    assert weights[..., [0, 2]].sum(-1).mean() > 0.7  # it points at the word before the last, and where it stood before


def test_wrong_options():
    with pytest.raises(ValueError, match="window must be at least 1; got 0"):
        build(window=0)
    with pytest.raises(ValueError, match="window must be at most 10,000; got 10,001"):
        build(window=10_001)
