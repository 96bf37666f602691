"""The NumPy search against zoo.layers.search: the same decoder, once with tensors and once with arrays."""

import math

import numpy as np
import pytest
import torch

from zoo.layers import search as torch_search
from zoo.runtime import search as numpy_search

PAD, UNK, BOS, EOS = 0, 1, 2, 3


class Decoder:
    """A random decoder with attention whose state grows by one column at each step, as that of a Transformer.

    The log-probabilities are computed by torch for both searches, so that they are equal to the last bit.
    """

    def __init__(self, vocab=11, eos_bias=0.0, seed=0, size=6, attention=True, ties=False, sharpness=2.0):
        generator = torch.Generator().manual_seed(seed)
        self.embedding, self.mix = torch.randn(2, max(vocab, size), size, generator=generator)
        self.out = torch.randn(size, vocab, generator=generator) * sharpness
        self.bias = torch.zeros(vocab)
        self.bias[EOS] = eos_bias
        self.attention, self.ties, self.size = attention, ties, size
        self.sizes = []

    def start(self, batch, seed=1):
        generator = torch.Generator().manual_seed(seed)
        keys = torch.randn(batch, 5, self.size, generator=generator)
        return (torch.zeros(batch, 1, self.size), torch.zeros(batch, 1, 0, self.size)), (keys,)

    def step(self, tokens, state, memory, t):
        (hidden, cache), (keys,) = state, memory
        assert hidden.shape[:2] == cache.shape[:2] == tokens.shape and len(keys) == len(tokens) and cache.shape[2] == t
        self.sizes.append(tuple(tokens.shape))
        # Sums of products, not a matrix product: a row's result does not depend on how many others there are.
        weights = (hidden[:, :, None] * keys[:, None]).sum(-1).softmax(-1)  # (B, K, S)
        hidden = (self.embedding[tokens] + (weights[..., None] * keys[:, None]).sum(2) + hidden[..., None, :].mul(
            self.mix[: self.size]).sum(-1)).tanh()  # fmt: skip
        cache = torch.cat((cache, hidden[:, :, None]), 2)
        logits = ((hidden + cache.mean(2))[..., None] * self.out).sum(-2) + self.bias
        if self.ties:
            logits = logits.sign() + (torch.arange(len(self.bias)) == EOS) * self.bias[EOS]
        return logits.log_softmax(-1), (hidden, cache), weights if self.attention else None

    def numpy_start(self, batch, seed=1):
        (hidden, cache), (keys,) = self.start(batch, seed)
        return {"hidden": hidden.numpy(), "cache": cache.numpy()}, {"keys": keys.numpy()}

    def numpy_step(self, tokens, state, memory, t):
        assert tokens.dtype == np.int64 and all(type(x) is np.ndarray for x in (tokens, *state.values()))
        state = torch.from_numpy(state["hidden"]), torch.from_numpy(state["cache"])
        found, (hidden, cache), weights = self.step(
            torch.from_numpy(tokens), state, (torch.from_numpy(memory["keys"]),), t
        )
        attn_weights = None if weights is None else weights.numpy()
        return found.numpy(), {"hidden": hidden.numpy(), "cache": cache.numpy()}, attn_weights


def both(decoder, batch=5, name="search", **options):
    """The results of the two searches; torch's with arrays."""
    decoder.sizes = []
    expected = getattr(torch_search, name)(decoder.step, *decoder.start(batch), **options)
    calls, decoder.sizes = decoder.sizes, []
    if torch.is_tensor(options.get("max_length")):
        options["max_length"] = options["max_length"].numpy()
    found = getattr(numpy_search, name)(decoder.numpy_step, *decoder.numpy_start(batch), **options)
    assert decoder.sizes == calls  # finished sentences are dropped at the same steps
    return found, expected


def assert_equal(found, expected):
    for field in ("tokens", "lengths", "scores", "log_probs", "attn_weights"):
        x, y = getattr(found, field), getattr(expected, field)
        if y is None:
            assert x is None
            continue
        assert x.dtype == y.numpy().dtype and x.shape == y.shape
        if field in ("tokens", "lengths"):
            assert (x == y.numpy()).all()
        else:
            np.testing.assert_allclose(x, y.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("eos_bias", [-2.0, 0.0, 2.0, 4.0])
@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 1},
        {"beam_size": 1, "length_penalty": 1.0, "min_length": 4},
        {"beam_size": 1, "no_repeat_ngram": 2, "forbid": (UNK, 5)},
        *({"beam_size": size, "n_best": n_best} for size, n_best in ((2, 1), (3, 2), (4, 4), (5, 1), (6, 3), (7, 7))),
        *({"beam_size": 5, "n_best": 2, "length_penalty": alpha} for alpha in (0.0, 1.0, 3.0, -0.7, -10, 10)),
        {"beam_size": 3, "n_best": 2, "min_length": 5},
        {"beam_size": 3, "forbid": (UNK, 5)},
        {"beam_size": 4, "n_best": 3, "no_repeat_ngram": 1},
        {"beam_size": 4, "n_best": 3, "no_repeat_ngram": 2},
        {"beam_size": 4, "n_best": 4, "no_repeat_ngram": 3},
        {"beam_size": 3, "n_best": 3, "early_stopping": True, "length_penalty": 1.0},
        {"beam_size": 30, "n_best": 30, "max_length": 3},  # more than the vocabulary
        {"beam_size": 3, "n_best": 3, "max_length": 1},
        {"beam_size": 3, "min_length": 10},  # no end by itself
        {"beam_size": 3, "return_attention": False},
        {"beam_size": 1, "return_attention": False},
        {"beam_size": 3, "n_best": 3, "pad": 4, "bos": 7, "eos": 8},
        {"beam_size": 1, "pad": 4, "bos": 7, "eos": 8},
        {"beam_size": 3, "n_best": 2, "pad": EOS, "no_repeat_ngram": 2},
        {"beam_size": 1, "pad": EOS, "bos": EOS, "no_repeat_ngram": 2},
        {"beam_size": 1, "pad": EOS, "min_length": 4},
    ],
    ids=str,
)
def test_equals_torch(options, eos_bias):
    decoder = Decoder(eos_bias=eos_bias, seed=int(eos_bias + 2))
    if options["beam_size"] > 1 or options.get("n_best", 1) > 1:
        options = {"length_penalty": 0.6} | options
    assert_equal(*both(decoder, **{"max_length": 9} | options))


@pytest.mark.parametrize("name", ["greedy_search", "sample", "beam_search"])
@pytest.mark.parametrize("engine", [torch_search, numpy_search], ids=["torch", "numpy"])
def test_scores_that_are_no_numbers(name, engine):
    decoder = Decoder()

    def step(tokens, state, memory, t):
        gains, state, weights = getattr(decoder, own)(tokens, state, memory, t)
        return gains * math.nan, state, weights

    own, start = ("step", decoder.start) if engine is torch_search else ("numpy_step", decoder.numpy_start)
    options = {"beam_size": 2} if name == "beam_search" else {}
    with pytest.raises(ValueError, match="the model computes NaN instead of probabilities"):
        getattr(engine, name)(step, *start(3), max_length=4, **options)


def test_beam_of_one_is_not_greedy_search():
    assert_equal(*both(Decoder(eos_bias=1.0), name="beam_search", beam_size=1, max_length=9))


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 4, "n_best": 2}], ids=str)
@pytest.mark.parametrize("early", [False, True])
def test_sentences_of_a_batch_end_at_different_times(options, early):
    decoder = Decoder(eos_bias=1.0, seed=3)
    if options["beam_size"] > 1:
        options = options | {"early_stopping": early, "length_penalty": 0.6}
    limits = torch.arange(20) % 7 + 1
    found, expected = both(decoder, 20, max_length=limits, min_length=3, **options)
    assert_equal(found, expected)
    assert len({batch for batch, _ in decoder.sizes}) > 2  # not only all or none
    state, memory = decoder.numpy_start(20)
    for row, limit in enumerate(limits.tolist()):
        alone = ({name: x[row : row + 1] for name, x in tree.items()} for tree in (state, memory))
        alone = numpy_search.search(
            decoder.numpy_step, *alone, max_length=limit, min_length=min(3, limit + 1), **options
        )
        length = alone.tokens.shape[2]
        assert (alone.tokens[0] == found.tokens[row, :, :length]).all() and (found.tokens[row, :, length:] == PAD).all()
        np.testing.assert_allclose(alone.attn_weights[0], found.attn_weights[row, :, :length], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("vocab", [300, 64 * 9 + 13, 1024, 1500])
def test_large_vocabularies(vocab):
    decoder = Decoder(vocab=vocab, eos_bias=5.0)
    assert_equal(*both(decoder, beam_size=5, n_best=5, max_length=6))
    assert_equal(*both(decoder, beam_size=1, max_length=6))


def test_step_without_attention():
    decoder = Decoder(attention=False)
    for options in ({"beam_size": 1}, {"beam_size": 3}):
        found, expected = both(decoder, max_length=4, **options)
        assert found.attn_weights is None
        assert_equal(found, expected)


@pytest.mark.parametrize("shape, count", [((4, 3, 320), 7), ((4, 3, 800), 7), ((2, 1, 700), 1), ((2, 5, 30), 99), ((1, 2, 70_000), 9), ((3, 2, 1234), 300), ((2, 100, 130), 200)])  # fmt: skip
@pytest.mark.parametrize("ties", [False, True])
def test_top(shape, count, ties):
    random = np.random.default_rng(0)
    log_probs, bias = random.normal(size=shape).astype(np.float32), random.normal(size=shape[:2]).astype(np.float32)
    if ties:
        log_probs, bias = log_probs.round(), bias.round()
        log_probs[0, :, 5:] = -np.inf  # fewer numbers than asked for
    values, hypotheses, tokens = numpy_search._top(log_probs, bias, count)
    rows = (log_probs + bias[..., None]).reshape(shape[0], -1)
    order = (-rows).argsort(1, kind="stable")[:, :count]
    assert (values == np.take_along_axis(rows, order, 1)).all()
    assert (hypotheses * shape[2] + tokens == order + np.arange(shape[0])[:, None] * rows.shape[1]).all()


def naive_beam(decoder, row, beam_size, alpha, max_length):
    """Beam search of one sentence as lists; of equals the first in the order (parent, token), or in that of arrival."""
    live, finished = [(np.float32(0), [])], []
    for t in range(max_length):
        candidates = []
        for total, tokens in live:
            (state, memory), token = decoder.start(5), BOS
            state, memory = tuple(x[row : row + 1] for x in state), tuple(x[row : row + 1] for x in memory)
            for step, token in enumerate([BOS, *tokens]):
                log_probs, state, _ = decoder.step(torch.tensor([[token]]), state, memory, step)
            log_probs = log_probs[0, 0].numpy()
            candidates += [(total + x, [*tokens, n]) for n, x in enumerate(log_probs) if n not in (PAD, BOS)]
        candidates = sorted(candidates, key=lambda c: -c[0])[: 2 * beam_size]
        ended = candidates if t + 1 == max_length else [c for c in candidates if c[1][-1] == EOS]
        finished += [(x / np.float32(((6 + t) / 6) ** alpha), tokens) for x, tokens in ended]
        live = [c for c in candidates if c[1][-1] != EOS][:beam_size]
    return sorted(finished, key=lambda c: -c[0])[:beam_size]


@pytest.mark.parametrize("eos_bias", [0.0, 1.0])
def test_the_first_of_equals(eos_bias):
    decoder = Decoder(vocab=8, eos_bias=eos_bias, ties=True)
    assert_equal(*both(decoder, beam_size=1, max_length=6))
    found = numpy_search.beam_search(decoder.numpy_step, *decoder.numpy_start(5), beam_size=3, n_best=3, max_length=4)
    for row in range(5):
        expected = naive_beam(decoder, row, 3, 0.6, 4)
        assert found.scores[row].tolist() == pytest.approx([score for score, _ in expected], abs=1e-6)
        assert [x[x != PAD].tolist() for x in found.tokens[row]] == [tokens for _, tokens in expected]


@pytest.mark.parametrize("temperature, top_k", [(1.0, 0), (0.5, 0), (2.0, 4), (1.0, 99), (1e-60, 0), (1.0, 1)])
def test_sampling_equals_torch_with_the_same_numbers(temperature, top_k, monkeypatch):
    random = np.random.default_rng(0)
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.from_numpy(random.random(shape)).float())
    decoder = Decoder(eos_bias=1.5)
    options = {"max_length": torch.arange(9) % 4 + 5, "forbid": (5,), "no_repeat_ngram": 2, "length_penalty": 0.6}
    options |= {"temperature": temperature, "top_k": top_k}
    expected = torch_search.sample(decoder.step, *decoder.start(9), num_samples=3, **options)
    options |= {"max_length": options["max_length"].numpy(), "generator": np.random.default_rng(0)}
    found = numpy_search.search(decoder.numpy_step, *decoder.numpy_start(9), beam_size=1, n_best=3, **options)
    assert_equal(found, expected)


def test_sampling_follows_the_distribution():
    decoder, draws = Decoder(sharpness=0.3), 4000
    log_probs = decoder.step(torch.tensor([[BOS]]), *decoder.start(1), 0)[0][0, 0].numpy().astype(float)
    generator = np.random.default_rng(0)
    for temperature, top_k in ((1.0, 0), (0.5, 0), (2.0, 4), (1.0, 99)):
        found = numpy_search.sample(
            decoder.numpy_step, *decoder.numpy_start(1), max_length=1, forbid=(5,), temperature=temperature, top_k=top_k,
            num_samples=draws, generator=generator
        )  # fmt: skip
        allowed = log_probs.copy()
        allowed[[PAD, BOS, 5]] = -math.inf
        if top_k == 4:
            allowed[allowed < np.sort(allowed)[-4]] = -math.inf
        expected = np.exp(allowed / temperature)
        expected *= draws / expected.sum()
        counts = np.bincount(found.tokens.ravel(), minlength=len(expected))
        assert (counts[expected == 0] == 0).all()
        possible = expected > 0
        assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 24.3  # 99.9th percentile for 7 degrees
        np.testing.assert_allclose(found.log_probs.ravel(), log_probs[found.tokens.ravel()], rtol=1e-6)


def test_sampling_repeats_with_its_generator():
    decoder = Decoder()

    def run(generator):
        options = {"max_length": 6, "num_samples": 3, "generator": generator}
        return numpy_search.sample(decoder.numpy_step, *decoder.numpy_start(5), **options).tokens

    first = run(np.random.default_rng(0))
    assert (first == run(np.random.default_rng(0))).all()
    assert first.shape != (other := run(np.random.default_rng(1))).shape or (first != other).any()
    assert run(None).shape[:2] == (5, 3)


@pytest.mark.parametrize("form", ["read-only", "float64", "strided"])
def test_arrays_that_cannot_be_written_are_copied(form):
    decoder = Decoder(eos_bias=1.0)
    given = []

    def step(*arguments):
        log_probs, *others = decoder.numpy_step(*arguments)
        if form == "read-only":
            log_probs.flags.writeable = False
        elif form == "float64":
            log_probs = log_probs.astype(float)
        else:
            log_probs = log_probs.repeat(2, axis=-1)[..., ::2]
        given.append((log_probs, log_probs.copy()))
        return log_probs, *others

    for options in ({"beam_size": 1}, {"beam_size": 3}):
        found = numpy_search.search(step, *decoder.numpy_start(5), max_length=6, **options)
        assert_equal(found, torch_search.search(decoder.step, *decoder.start(5), max_length=6, **options))
    assert all((array == copy).all() for array, copy in given)


@pytest.mark.parametrize(
    "name, options", [("greedy_search", {}), ("beam_search", {"beam_size": 3, "n_best": 2}), ("sample", {})]
)
def test_no_sentence_gives_no_result(name, options):
    for limit in (5, torch.zeros(0, dtype=torch.int64)):
        found, expected = both(Decoder(), batch=0, name=name, max_length=limit, **options)
        assert_equal(found, expected)


def test_no_output_is_possible():
    decoder = Decoder(vocab=5)
    options = {"max_length": 3, "forbid": (UNK, 4), "min_length": 4}
    for name, more in (("greedy_search", {}), ("beam_search", {"beam_size": 2}), ("sample", {})):
        found, expected = both(decoder, name=name, **options, **more)
        assert not found.lengths.any() and (found.scores == -math.inf).all()
        assert_equal(found, expected)


@pytest.mark.parametrize(
    "name, options",
    [
        ("beam_search", {"beam_size": 0}),
        ("beam_search", {"beam_size": 2, "n_best": 3}),
        ("beam_search", {"beam_size": 2, "n_best": 0}),
        ("beam_search", {"beam_size": 2, "max_length": 0}),
        ("greedy_search", {"max_length": torch.tensor([3, 0])}),
        ("greedy_search", {"max_length": torch.ones(3, dtype=torch.long)}),
        ("greedy_search", {"min_length": 9}),
        ("greedy_search", {"forbid": (UNK, EOS)}),
        ("greedy_search", {"forbid": (UNK, 11)}),
        ("beam_search", {"beam_size": 2, "forbid": (-1,)}),
        ("greedy_search", {"no_repeat_ngram": -1}),
        ("sample", {"temperature": 0.0}),
        ("sample", {"temperature": math.inf}),
        ("sample", {"top_k": -1}),
        ("sample", {"num_samples": 0}),
        ("search", {"beam_size": 101}),
        ("search", {"beam_size": 2, "length_penalty": 1e9}),
    ],
    ids=str,
)
def test_bad_arguments_have_the_messages_of_torch(name, options):
    decoder, options = Decoder(), {"max_length": 5} | options
    with pytest.raises(ValueError) as expected:
        getattr(torch_search, name)(decoder.step, *decoder.start(2), **options)
    if torch.is_tensor(options["max_length"]):
        options["max_length"] = options["max_length"].numpy()
    with pytest.raises(ValueError) as found:
        getattr(numpy_search, name)(decoder.numpy_step, *decoder.numpy_start(2), **options)
    assert str(found.value) == str(expected.value) != ""


def test_nan_is_an_error_of_beam_search():
    for decoder in (Decoder(), Decoder(vocab=600)):
        decoder.bias[-1] = math.nan
        with pytest.raises(ValueError, match="NaN instead of probabilities"):
            numpy_search.beam_search(decoder.numpy_step, *decoder.numpy_start(2), beam_size=2, max_length=3)
