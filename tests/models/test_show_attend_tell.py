"""Show, Attend and Tell: the equations, the gradient estimator of hard attention, and that an image or a caption
decides for itself.
"""

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import log_softmax

from zoo.batches.captioning import CaptionBatch
from zoo.metrics import CiderD
from zoo.models.show_attend_tell import ShowAttendTell, draw
from zoo.text import BOS, EOS, PAD

exactly = pytest.mark.usefixtures("float64")

POSITIONS, STEPS = 3, 3


def build(**options):
    torch.manual_seed(0)
    model = ShowAttendTell(**{**ShowAttendTell.tiny, **options}).eval()
    for parameter in model.parameters():  # large weights, so that choices matter
        parameter.data.mul_(2.5)
    return model


def naive_steps(model, features, tokens, choose=None):
    """The paper's equations for one caption, number by number: features (L, C), tokens (T,) -> logits (T, V), weights
    (T, L).
    """
    d = model.decoder
    a = model.adapter(features)
    mean = a.mean(0)
    for layer in d.init:
        if isinstance(layer, torch.nn.Linear):
            mean = (layer.weight @ mean + layer.bias).clamp(min=0)
    h, c = torch.tanh(d.init_hidden(mean)), torch.tanh(d.init_cell(mean))
    logits, weights = [], []
    for t, token in enumerate(tokens):
        if d.bilinear:
            e = torch.stack(
                [sum(a_i[n] * (d.w_hidden.weight[n] @ h) for n in range(len(a_i))) for a_i in a]
            )  # a_i^T W h
        else:
            e = torch.stack([d.v @ torch.tanh(d.w_features(a_i) + d.w_hidden(h)) for a_i in a])
        alpha = torch.softmax(d.temperature * e, 0)
        s = alpha if choose is None else choose(t, alpha)
        z = torch.sigmoid(d.gate(h)) * sum(s_i * a_i for s_i, a_i in zip(s, a))
        y = model.embedding.weight[token]
        i, f, g, o = (d.lstm.weight_input @ torch.cat([y, z]) + d.lstm.weight_hidden @ h + d.lstm.bias).chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        logits.append(model.output(torch.tanh(model.deep_output(torch.cat([h, z])) + y)))
        weights.append(alpha)
    return torch.stack(logits), torch.stack(weights)


@exactly
@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"feature_size": None}, {"score": "bilinear"}, {"init_layers": 3}]
)
def test_equals_the_equations(options):
    model = build(**options)
    assert sum(isinstance(layer, torch.nn.Linear) for layer in model.decoder.init) == options.get("init_layers", 1) - 1
    features = torch.randn(2, 5, model.encoder_channels)
    tokens = torch.randint(4, 12, (2, 3, 4))
    logits, weights = model(features, tokens)
    for n, k in product(range(2), range(3)):
        want_logits, want_weights = naive_steps(model, features[n], tokens[n, k])
        torch.testing.assert_close(logits[n, k], want_logits, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(weights[n, k], want_weights, rtol=1e-9, atol=1e-9)


@exactly
@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_searching_step_by_step_gives_the_same_as_teacher_forcing(attention):
    model = build(attention=attention)
    batch = model.example_batch(4)
    logits, weights = model(batch.images, batch.captions[..., :-1])
    memory, state = model.encode(batch.images)
    state = tuple(x.unsqueeze(1).expand(-1, 2, -1) for x in state)
    for t in range(batch.captions.size(-1) - 1):
        found, state, alpha = model.step(batch.captions[..., t], state, memory, t)
        torch.testing.assert_close(found, logits[:, :, t], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(alpha, weights[:, :, t], rtol=1e-9, atol=1e-9)


@exactly
def test_captions_do_not_see_each_other_nor_the_padding():
    model = build()
    batch = model.example_batch(6)
    whole, words = model.loss(batch)
    wider = batch._replace(captions=torch.nn.functional.pad(batch.captions, (0, 3), value=PAD))
    torch.testing.assert_close(model.loss(wider)[0], whole, rtol=1e-9, atol=1e-9)
    parts = [
        model.loss(
            CaptionBatch(
                batch.images[n : n + 1], batch.captions[n : n + 1, k : k + 1], batch.lengths[n : n + 1, k : k + 1]
            )
        )
        for n in range(6)
        for k in range(2)
    ]
    torch.testing.assert_close(sum(loss for loss, _ in parts), whole, rtol=1e-9, atol=1e-9)
    assert sum(count for _, count in parts) == words == int(batch.lengths.sum())


@exactly
def test_the_doubly_stochastic_term_is_that_of_the_paper_on_real_steps():
    batch = build().example_batch(6)
    with_term, without = build(doubly_stochastic=0.7).train(), build(doubly_stochastic=0.0).train()
    _, weights = without(batch.images, batch.captions[..., :-1])
    want = 0.0
    for n, k in product(range(6), range(2)):
        length = int(batch.lengths[n, k])
        if length:
            want += 0.7 * sum((1 - weights[n, k, :length, i].sum()) ** 2 for i in range(weights.size(-1)))
    torch.testing.assert_close(with_term.loss(batch)[0] - without.loss(batch)[0], want, rtol=1e-9, atol=1e-9)


def test_hard_attention_has_no_doubly_stochastic_term_unless_it_is_asked_for():
    batch = build().example_batch(4)
    plain, zero, one = (
        build(attention="hard", expected_share=1.0, doubly_stochastic=x).train().loss(batch)[0]
        for x in (None, 0.0, 1.0)
    )
    assert plain == zero != one


# ---- the estimator ----


class Problem:
    """One caption of three words for an image with three positions, small enough to try all 27 ways of looking at
    it.
    """

    def __init__(self, **options):
        self.model = build(
            attention="hard", feature_size=None, expected_share=0.0, entropy=0.0, doubly_stochastic=0.0, **options
        ).train()
        self.features = torch.randn(
            1, POSITIONS, self.model.encoder_channels, generator=torch.Generator().manual_seed(3)
        )
        self.labels = torch.tensor([5, 9, EOS])
        self.tokens = torch.tensor([BOS, 5, 9])
        self.parameters = [p for name, p in self.model.named_parameters() if not name.startswith("encoder")]

    def objective(self):
        """E[log p(y | s)], by enumeration."""
        total = 0.0
        for path in product(range(POSITIONS), repeat=STEPS):
            logits, weights = naive_steps(
                self.model, self.features[0], self.tokens, lambda t, alpha: torch.eye(POSITIONS)[path[t]]
            )
            log_p = log_softmax(logits, -1)[range(STEPS), self.labels].sum()
            total = total + torch.stack([weights[t, s] for t, s in enumerate(path)]).prod() * log_p
        return total

    def exact(self):
        return self._flat(torch.autograd.grad(self.objective(), self.parameters))

    def estimates(self, runs, samples):
        """Estimated gradients, (runs, P), each the mean over some samples."""
        shape = (1, samples, STEPS)
        tokens, labels = self.tokens.expand(shape), self.labels.expand(shape)
        found = []
        for _ in range(runs):
            memory, state = self.model.encode(self.features)
            loss, _ = self.model.hard_loss(memory, state, tokens, labels, torch.ones(shape, dtype=torch.bool))
            found.append(self._flat(torch.autograd.grad(-loss / samples, self.parameters)))
        return torch.stack(found)

    @staticmethod
    def _flat(gradients):
        return torch.cat([g.flatten() for g in gradients])


def standard_errors(found, exact):
    """By how many standard errors the mean of estimates (runs, P) is off, where they vary at all."""
    error = found.std(0) / len(found) ** 0.5
    varies = error > 1e-7
    return (found.mean(0) - exact)[varies] / error[varies]


@pytest.mark.parametrize("word_baseline", [0.0, -2.5])
def test_the_mean_of_the_estimator_is_the_exact_gradient(word_baseline):
    problem = Problem()
    problem.model.word_baseline.fill_(word_baseline)
    exact = problem.exact()
    found = problem.estimates(runs=50, samples=600)
    z = standard_errors(found, exact)
    assert len(z) > 200
    assert z.abs().max() < 5 and 0.6 < z.square().mean() < 1.6
    assert (found.mean(0) - exact).norm() < 0.05 * exact.norm()
    # the test can fail: what the words alone say about where to look is another gradient
    problem.model.config["reinforce"] = 0.0
    assert standard_errors(problem.estimates(runs=40, samples=200), exact).abs().max() > 20


def test_the_baseline_lowers_the_variance():
    problem = Problem()
    without = problem.estimates(runs=60, samples=20).var(0).sum()
    problem.model.word_baseline.fill_(problem.objective().item() / STEPS)
    with_baseline = problem.estimates(runs=60, samples=20).var(0).sum()
    problem.model.config["baseline"] = "soft_context"
    soft_context = problem.estimates(runs=60, samples=20).var(0).sum()
    assert with_baseline < 0.7 * without
    assert soft_context < with_baseline


@exactly
def test_the_expected_context_gets_no_reinforce_term_and_is_soft_attention():
    hard = build(attention="hard", expected_share=1.0, entropy=0.0, doubly_stochastic=0.0).train()
    soft = build(attention="soft", doubly_stochastic=0.0).train()
    batch = hard.example_batch(5)
    gradients = []
    for model, weight in ((hard, 1.0), (hard, 0.0), (soft, 0.0)):
        model.config["reinforce"] = weight
        model.zero_grad()
        loss, _ = model.loss(batch)
        loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for with_term, without, of_soft in zip(*gradients):
        assert torch.equal(with_term, without)
        torch.testing.assert_close(with_term, of_soft, rtol=1e-9, atol=1e-9)


def test_samples_follow_the_weights_and_pass_no_gradient():
    weights = torch.tensor([0.1, 0.0, 0.6, 0.3]).expand(20_000, 4).clone().requires_grad_()
    torch.manual_seed(1)
    found = draw(weights)
    assert not found.requires_grad
    assert torch.equal(found.sum(-1), torch.ones(20_000)) and set(found.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(found.mean(0), weights[0].detach(), rtol=0, atol=0.015)
    assert found[:, 1].sum() == 0  # a weight of 0 is never drawn


def test_the_moving_average_is_that_of_a_word_and_is_used_before_it_is_renewed():
    model = build(attention="hard", expected_share=0.0).train()
    batch = model.example_batch(4)
    used = []
    inner = model.hard_loss

    def spy(*args):
        used.append(model.word_baseline.item())
        loss, reward = inner(*args)
        rewards.append(reward.item() / int(batch.lengths.sum()))
        return loss, reward

    rewards, model.hard_loss = [], spy
    for _ in range(3):
        model.loss(batch)
        model.update_baseline()
    assert used[0] == 0
    assert used[1] == pytest.approx(0.1 * rewards[0])
    assert used[2] == pytest.approx(0.9 * used[1] + 0.1 * rewards[1])
    model.eval().loss(batch)
    model.update_baseline()
    assert model.word_baseline.item() == pytest.approx(0.9 * used[2] + 0.1 * rewards[2])  # evaluation leaves it alone


@exactly
def test_entropy_is_rewarded():
    batch = build().example_batch(5)
    losses = []
    for weight in (0.0, 2.0):
        model = build(attention="hard", expected_share=1.0, entropy=weight).train()
        losses.append(model.loss(batch)[0])
    _, weights = model.eval()(batch.images, batch.captions[..., :-1])
    real = torch.arange(weights.size(2)) < batch.lengths.unsqueeze(-1)
    entropy = -(weights * weights.log()).sum(-1)[real].sum()
    torch.testing.assert_close(losses[0] - losses[1], 2 * entropy, rtol=1e-9, atol=1e-9)


# ---- self-critical training ----


def expected_reward(model, features, reward, longest, hard):
    """E[reward], by enumeration of all captions, and of all ways of looking: features (L, C)."""
    allowed = [token for token in range(model.config["vocab_size"]) if token not in model.forbidden()]
    positions = range(len(features)) if hard else [None]

    def rest(tokens, path):
        if len(tokens) > 1 and (tokens[-1] == EOS or len(tokens) == longest + 1):
            return reward(tuple(tokens[1:]))
        total = 0.0
        for s in positions:
            looked = [*path, s]
            choose = (lambda t, alpha: torch.eye(len(features))[looked[t]]) if hard else None
            logits, weights = naive_steps(model, features, tokens, choose)
            p = torch.softmax(logits[-1][allowed], -1)
            weight = weights[-1][s] if hard else 1.0
            total = total + weight * sum(p[n] * rest([*tokens, token], looked) for n, token in enumerate(allowed))
        return total

    return rest([BOS], [])


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_self_critical_training_follows_the_gradient_of_the_expected_reward(attention, monkeypatch):
    monkeypatch.setattr("zoo.tasks.self_critical.MAX_WORDS", 2)
    model = build(
        attention=attention, vocab_size=6, feature_size=None, self_critical_epoch=0, expected_share=0.0
    ).train()
    features = torch.randn(1, 2, model.encoder_channels, generator=torch.Generator().manual_seed(3))

    def reward(words):
        return 0.3 * words.count(5) - words.count(4) + 2.0 * (words[-1] == EOS) * len(words)

    def rewards(captions, batch):
        return torch.tensor([[reward(tuple(t for t in row if t != PAD)) for row in rows] for rows in captions.tolist()])

    model.rewards = rewards
    count = 400
    batch = CaptionBatch(features, torch.full((1, count, 4), 5), torch.full((1, count), 3))
    parameters = [p for name, p in model.named_parameters() if not name.startswith("encoder")]

    def flat(loss):
        found = torch.autograd.grad(loss, parameters)
        return torch.cat([g.flatten() for g in found])

    exact = flat(expected_reward(model, features[0], reward, 2, attention == "hard"))
    found = torch.stack([flat(-model.loss(batch)[0] / count) for _ in range(60)])
    assert exact.norm() > 0.1 and (found.mean(0) - exact).norm() < 0.1 * exact.norm()
    z = standard_errors(found, exact)
    assert len(z) > 100 and z.abs().max() < 5 and z.square().mean() < 2
    assert model.training


def test_self_critical_training_needs_two_captions_and_begins_when_it_should():
    model = build(self_critical_epoch=1).train()
    batch = model.example_batch(3)
    assert torch.equal(model.loss(batch)[0], build().train().loss(batch)[0])  # the first epoch
    model.config["self_critical_epoch"] = 0
    with pytest.raises(ValueError, match="set captions_per_image to 2 or more; got 1"):
        model.loss(CaptionBatch(batch.images, batch.captions[:, :1], batch.lengths[:, :1]))
    assert model.training


def test_likelihood_beside_the_self_critical_term():
    model = build(self_critical_epoch=0, likelihood=0.25).train()
    model.self_critical_loss = lambda batch: (torch.tensor(3.0), 7)
    batch = model.example_batch(3)
    loss, words = model.loss(batch)
    assert words == 7 and loss.allclose(3 + 0.25 * build().train().loss(batch)[0])


def test_reward_of_right_words_beside_cider():
    captions = torch.tensor([[[5, 6, EOS], [5, EOS, PAD]], [[7, EOS, PAD], [8, 8, 8]]])
    batch = CaptionBatch(None, torch.tensor([[[BOS, 5, 6, 7, EOS]], [[BOS, 8, 9, EOS, PAD]]]), torch.tensor([[4], [3]]))

    def rewards(**changed):
        model = build(self_critical_epoch=0, **changed)
        model._cider = CiderD([[[5, 6, 7, EOS]], [[8, 9, EOS]], [[5, 9]]])
        return model.rewards(captions, batch)

    share = torch.tensor([[3 / 4, 2 / 4], [1 / 3, 1 / 3]])
    torch.testing.assert_close(rewards(right_words=2.0), rewards() + 2 * share)
    assert rewards().std() > 0.1


def test_each_training_has_the_document_frequencies_of_its_own_captions(monkeypatch):
    model, batch = (
        build(self_critical_epoch=0),
        CaptionBatch(None, torch.tensor([[[BOS, 5, 6, EOS]]]), torch.tensor([[3]])),
    )
    trainings = [[[5, 6, EOS]], [[8, 9, EOS]]], [[[5, 6, EOS]], [[5, 9, EOS]], [[6, EOS]]]

    def rewards(model, captions):
        data = SimpleNamespace(training_captions=lambda: captions)
        monkeypatch.setattr(type(model), "data_module", data)
        model.setup("fit")
        return model.rewards(torch.tensor([[[5, EOS], [6, EOS]]]), batch)

    first, second = (rewards(model, captions) for captions in trainings)
    assert second.equal(rewards(build(self_critical_epoch=0), trainings[1])) and not second.equal(first)


@pytest.mark.parametrize("score", ["additive", "bilinear"])
def test_weights_are_of_single_precision_under_autocast(score):
    model = build(score=score)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        _, weights = model(torch.randn(1, 50, model.encoder_channels), torch.randint(4, 12, (1, 1, 3)))
    assert weights.dtype == torch.float32  # in bf16 the cumulated sum, from which positions are drawn, is wrong
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 3))


@exactly
@pytest.mark.parametrize("decoding", ["expectation", "argmax", "sample"])
def test_decoding_of_hard_attention(decoding):
    model = build(attention="hard", decoding=decoding)
    features, tokens = torch.randn(1, 4, model.encoder_channels), torch.randint(4, 12, (1, 1, 3))
    torch.manual_seed(5)
    logits, weights = model(features, tokens)
    assert weights.sum(-1).allclose(torch.ones(1, 1, 3))  # what is shown is alpha, whatever was drawn
    torch.manual_seed(5)
    choose = {
        "expectation": None,
        "argmax": lambda t, alpha: torch.eye(4)[alpha.argmax()],
        "sample": lambda t, alpha: draw(alpha),
    }
    want, _ = naive_steps(model, features[0], tokens[0, 0], choose[decoding])
    torch.testing.assert_close(logits[0, 0], want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"attention": "medium"}, "attention must be one of 'soft', 'hard'; got 'medium'"),
        ({"score": "dot"}, "score must be one of 'additive', 'bilinear'; got 'dot'"),
        ({"init_layers": 0}, "init_layers must be at least 1; got 0"),
        ({"baseline": "none"}, "baseline must be one of 'moving_average', 'soft_context'; got 'none'"),
        ({"decoding": "beam"}, "decoding must be one of 'expectation', 'argmax', 'sample'; got 'beam'"),
        ({"samples": 0}, "samples must be at least 1; got 0"),
        ({"expected_share": 1.5}, "expected_share must be in [0, 1]; got 1.5"),
        ({"layer": "blocks.9"}, "layer must be one of blocks.0, .*, conv_head; got 'blocks.9'"),
        ({"label_smoothing": 1.0}, "label_smoothing must be in [0, 1); got 1.0"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message.replace("[", r"\[").replace(")", r"\)")):
        ShowAttendTell(**{**ShowAttendTell.tiny, **options})
