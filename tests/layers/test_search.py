"""Search against plain per-sentence Python: one hypothesis is one list, one step is one call of the toy decoder."""

import collections
import dataclasses
import itertools
import math
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from zoo.layers import search
from zoo.layers.search import beam_search, greedy_search, sample
from zoo.layers.selection import first_largest, largest

PAD, UNK, BOS, EOS = 0, 1, 2, 3
NEVER = (PAD, BOS)


class Memory(NamedTuple):
    keys: Tensor  # (B, S, H)
    lengths: Tensor  # (B,)


class State(NamedTuple):
    hidden: Tensor  # (B, K, H)
    extra: tuple[Tensor, None]


class Toy:
    """A small recurrent decoder with attention; random, fixed weights. `eos_bias` steers how soon outputs end."""

    def __init__(self, vocab: int = 9, hidden: int = 6, eos_bias: float = 0.0, sharpness: float = 2.0, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)

        def weight(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        self.vocab, self.hidden = vocab, hidden
        self.embedding, self.recurrent = weight(vocab, hidden), weight(hidden, hidden)
        self.context, self.out = weight(hidden, hidden), weight(hidden, vocab) * sharpness / hidden**0.5
        self.bias = torch.zeros(vocab, dtype=torch.float64)
        self.bias[EOS] = eos_bias
        self.calls: list[tuple[int, ...]] = []

    def start(self, batch: int, source: int = 5, seed: int = 1) -> tuple[State, Memory]:
        generator = torch.Generator().manual_seed(seed)
        keys = torch.randn(batch, source, self.hidden, generator=generator, dtype=torch.float64)
        lengths = torch.randint(1, source + 1, (batch,), generator=generator)
        hidden = torch.zeros(batch, 1, self.hidden, dtype=torch.float64)
        return State(hidden, (hidden[..., 0] + 1, None)), Memory(keys, lengths)

    def step(self, tokens: Tensor, state: State, memory: Memory, t: int) -> tuple[Tensor, State, Tensor]:
        self.calls.append(tuple(tokens.shape))
        assert state.hidden.shape[:2] == tokens.shape == state.extra[0].shape
        assert (state.extra[0] == t + 1).all() and len(memory.keys) == len(tokens)
        scores = state.hidden @ memory.keys.transpose(1, 2)  # (B, K, S)
        beyond = torch.arange(scores.shape[-1]) >= memory.lengths[:, None, None]
        attn_weights = scores.masked_fill(beyond, -math.inf).softmax(-1)
        context = attn_weights @ memory.keys
        hidden = (self.embedding[tokens] + state.hidden @ self.recurrent + context @ self.context).tanh()
        return hidden @ self.out + self.bias, State(hidden, (state.extra[0] + 1, None)), attn_weights


def pick(state: State, memory: Memory, row: int) -> tuple[State, Memory]:
    rows = slice(row, row + 1)
    return State(state.hidden[rows], (state.extra[0][rows], None)), Memory(memory.keys[rows], memory.lengths[rows])


def norm(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def repeats(tokens: list[int], n: int) -> bool:
    ngrams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return n > 0 and len(set(ngrams)) < len(ngrams)


def next_log_probs(toy: Toy, prefix: list[int], state: State, memory: Memory) -> tuple[list[float], list[float]]:
    """Runs the decoder over a prefix of one sentence; log-probabilities of the next token and the attention."""
    for t, token in enumerate([BOS, *prefix]):
        logits, state, attn = toy.step(torch.tensor([[token]]), state, memory, t)
    return logits[0, 0].log_softmax(-1).tolist(), attn[0, 0].tolist()


def naive_beam(toy, state, memory, *, beam_size, n_best, alpha, max_length, min_length=0, forbid=(), no_repeat=0):
    """Beam search of one sentence to the bitter end; [(score, log_prob, tokens)], best first."""
    live, finished = [(0.0, [])], []
    for t in range(max_length):
        candidates = []
        for log_prob, tokens in live:
            for token, value in enumerate(next_log_probs(toy, tokens, state, memory)[0]):
                banned = token in (*NEVER, *forbid) or (token == EOS and t + 1 < min_length)
                if not banned and not repeats([*tokens, token], no_repeat):
                    candidates.append((log_prob + value, [*tokens, token]))
        candidates.sort(key=lambda c: -c[0])
        candidates = candidates[: 2 * beam_size]
        finished += [c for c in candidates if c[1][-1] == EOS]
        live = [c for c in candidates if c[1][-1] != EOS][:beam_size]
    ranked = [(log_prob / norm(len(tokens), alpha), log_prob, tokens) for log_prob, tokens in finished + live]
    return sorted(ranked, key=lambda c: -c[0])[:n_best]


def hypotheses(result: search.SearchResult, row: int) -> list[list[int]]:
    """Token lists of one sentence; checks the shape and the padding on the way."""
    out = []
    for tokens, length, score in zip(result.tokens[row], result.lengths[row], result.scores[row], strict=True):
        assert (tokens[length:] == PAD).all() and (tokens[:length] != PAD).all()
        assert (length == 0) == (score == -math.inf)
        out.append(tokens[:length].tolist())
    return out


def check(result: search.SearchResult, row: int, expected: list[tuple]) -> None:
    found = hypotheses(result, row)
    assert found[: len(expected)] == [tokens for _, _, tokens in expected]
    assert all(not tokens for tokens in found[len(expected) :])
    for n, (score, log_prob, _) in enumerate(expected):
        assert result.scores[row, n].item() == pytest.approx(score, abs=1e-4)
        assert result.log_probs[row, n].item() == pytest.approx(log_prob, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 1},
        {"beam_size": 4, "n_best": 4, "alpha": 0.0},
        {"beam_size": 5, "n_best": 3, "alpha": 1.0},
        {"beam_size": 3, "n_best": 2, "alpha": 2.0},
        {"beam_size": 3, "n_best": 3, "alpha": -0.7},
        {"beam_size": 12, "n_best": 12},  # more than the vocabulary
        {"beam_size": 12, "n_best": 12, "max_length": 1},  # and more than there are outputs
        {"min_length": 4, "forbid": (UNK, 5)},
        {"no_repeat": 1, "max_length": 4},
        {"no_repeat": 2, "n_best": 3},
        {"no_repeat": 3},
        {"max_length": 1, "n_best": 2},
    ],
    ids=str,
)
def test_beam_search_equals_naive(options, seed):
    options = {"beam_size": 3, "n_best": 1, "alpha": 0.6, "max_length": 7} | options
    toy = Toy(seed=seed, eos_bias=(0.0, 2.0, -2.0, 1.0)[seed])
    state, memory = toy.start(5, seed=seed)
    names = {"alpha": "length_penalty", "no_repeat": "no_repeat_ngram"}
    result = beam_search(toy.step, state, memory, **{names.get(key, key): value for key, value in options.items()})
    assert result.tokens.dtype == torch.int64
    for row in range(5):
        check(result, row, naive_beam(toy, *pick(state, memory, row), **options))


def test_beam_search_looks_at_blocks_of_a_large_vocabulary():
    toy = Toy(vocab=64 * 9 + 13, sharpness=4.0, eos_bias=3.0)  # whole blocks and a tail
    state, memory = toy.start(3)
    options = {"beam_size": 3, "n_best": 3, "max_length": 6}
    result = beam_search(toy.step, state, memory, length_penalty=0.6, **options)
    for row in range(3):
        check(result, row, naive_beam(toy, *pick(state, memory, row), alpha=0.6, **options))


@pytest.mark.parametrize("shape, count", [((4, 3, 320), 7), ((4, 3, 321), 7), ((2, 1, 700), 1), ((2, 5, 30), 99)])
def test_top_equals_topk_and_argmax(shape, count):
    logits, bias = torch.randn(shape), torch.randn(shape[:2])
    assert torch.equal(first_largest(logits), logits.argmax(-1))
    ties = logits.round()
    assert torch.equal(first_largest(ties), (ties == ties.amax(-1, keepdim=True)).int().argmax(-1))
    values, hypotheses, tokens = largest(logits, bias, count)
    expected = (logits + bias[..., None]).flatten(1).topk(count)
    torch.testing.assert_close(values, expected.values)
    assert torch.equal(hypotheses * shape[-1] + tokens, expected.indices)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_widest_beam_finds_the_global_optimum(alpha):
    toy, longest = Toy(vocab=6, eos_bias=-1.0), 4
    state, memory = toy.start(2)
    words = [token for token in range(6) if token not in (*NEVER, EOS)]
    result = beam_search(
        toy.step, state, memory, beam_size=6**longest, n_best=20, max_length=longest, length_penalty=alpha
    )
    for row in range(2):
        outputs = [
            [*prefix, *end]
            for length in range(longest + 1)
            for prefix in itertools.product(words, repeat=length)
            for end in ([EOS], []) if (len(prefix) < longest) == bool(end)
        ]  # fmt: skip
        ranked = []
        for tokens in outputs:
            sentence = pick(state, memory, row)
            log_prob = sum(next_log_probs(toy, tokens[:i], *sentence)[0][token] for i, token in enumerate(tokens))
            ranked.append((log_prob / norm(len(tokens), alpha), log_prob, tokens))
        check(result, row, sorted(ranked, key=lambda c: -c[0])[:20])


def test_attention_and_scores_belong_to_the_tokens():
    toy = Toy(eos_bias=1.0)
    state, memory = toy.start(6)
    arguments = (toy.step, state, memory)
    for result in (
        beam_search(*arguments, beam_size=4, n_best=4, max_length=8),
        greedy_search(*arguments, max_length=8),
        sample(*arguments, max_length=8, num_samples=3, generator=torch.Generator().manual_seed(0)),
    ):
        assert result.attn_weights.shape == (*result.tokens.shape, 5)
        assert result.tokens.shape[2] == result.lengths.max()
        for row, n in itertools.product(range(6), range(result.tokens.shape[1])):
            tokens, log_prob = hypotheses(result, row)[n], 0.0
            for t, token in enumerate(tokens):
                log_probs, attn = next_log_probs(toy, tokens[:t], *pick(state, memory, row))
                log_prob += log_probs[token]
                assert result.attn_weights[row, n, t].tolist() == pytest.approx(attn, abs=1e-5)
            assert result.log_probs[row, n].item() == pytest.approx(log_prob, abs=1e-4)
            assert (result.attn_weights[row, n, len(tokens) :] == 0).all()
    assert greedy_search(*arguments, max_length=3, return_attention=False).attn_weights is None


def test_step_without_attention():
    toy = Toy()

    def step(*arguments):
        return *toy.step(*arguments)[:2], None

    assert beam_search(step, *toy.start(2), beam_size=2, max_length=4).attn_weights is None
    assert greedy_search(step, *toy.start(2), max_length=4).attn_weights is None


@pytest.mark.parametrize("forbid, no_repeat, min_length", [((), 0, 0), ((UNK, 4), 0, 3), ((), 2, 0), ((), 1, 5)])
def test_greedy_equals_naive(forbid, no_repeat, min_length):
    toy = Toy(eos_bias=0.5)
    state, memory = toy.start(6)
    rules = {"forbid": forbid, "no_repeat_ngram": no_repeat, "min_length": min_length}
    result = greedy_search(toy.step, state, memory, max_length=6, **rules)
    for row in range(6):
        tokens = []
        while len(tokens) < 6 and EOS not in tokens:
            values = next_log_probs(toy, tokens, *pick(state, memory, row))[0]
            allowed = [
                token
                for token in range(toy.vocab)
                if token not in (*NEVER, *forbid)
                and not (token == EOS and len(tokens) + 1 < min_length)
                and not repeats([*tokens, token], no_repeat)
            ]
            tokens.append(max(allowed, key=values.__getitem__))
        assert hypotheses(result, row) == [tokens]


@pytest.mark.parametrize("method", ["greedy", "beam", "early"])
def test_a_sentence_alone_equals_the_sentence_in_a_batch(method):
    toy = Toy(eos_bias=1.5, seed=3)
    state, memory = toy.start(16)
    limits = torch.arange(16) % 7 + 1

    def run(state, memory, limits):
        if method == "greedy":
            return greedy_search(toy.step, state, memory, max_length=limits)
        return beam_search(
            toy.step, state, memory, beam_size=4, n_best=2, max_length=limits, early_stopping=method == "early"
        )

    together = run(state, memory, limits)
    assert min(batch for batch, _ in toy.calls) < 16  # finished sentences were dropped
    for row in range(16):
        alone = run(*pick(state, memory, row), limits[row : row + 1])
        length = alone.tokens.shape[2]
        assert torch.equal(alone.tokens[0], together.tokens[row, :, :length])
        assert (together.lengths[row] <= limits[row]).all() and (together.tokens[row, :, length:] == PAD).all()
        torch.testing.assert_close(alone.scores[0], together.scores[row])
        torch.testing.assert_close(alone.attn_weights[0], together.attn_weights[row, :, :length])


def test_rare_checks_change_nothing(monkeypatch):
    toy = Toy(eos_bias=1.5, seed=3)
    state, memory = toy.start(8)

    def run():
        options = {"beam_size": 3, "n_best": 3, "max_length": torch.arange(8) + 2}
        return [beam_search(toy.step, state, memory, **options, early_stopping=early) for early in (False, True)]

    expected = run()
    monkeypatch.setattr(search._Rules, "is_check", lambda rules, t: t + 1 == rules.horizon or t % 3 == 2)
    for a, b in zip(expected, run(), strict=True):
        for field in dataclasses.fields(a):
            torch.testing.assert_close(getattr(a, field.name), getattr(b, field.name))


def test_other_special_ids():
    toy = Toy(eos_bias=1.0)
    swap = torch.tensor([7, 1, 8, 6, 4, 5, 3, 0, 2])  # new id of each token
    state, memory = toy.start(3)

    def step(tokens, *rest):
        logits, state, attn = toy.step(swap.argsort()[tokens], *rest)
        return logits[..., swap.argsort()], state, attn

    for function, options in ((beam_search, {"beam_size": 3, "n_best": 3}), (greedy_search, {})):
        plain = function(toy.step, state, memory, max_length=6, **options)
        moved = function(step, state, memory, max_length=6, pad=7, bos=8, eos=6, **options)
        assert torch.equal(swap[plain.tokens], moved.tokens)


def test_n_best_is_sorted_and_distinct():
    toy = Toy(eos_bias=1.0)
    result = beam_search(toy.step, *toy.start(4), beam_size=8, n_best=8, max_length=6)
    assert (result.scores.diff(dim=1) <= 0).all()
    for row in range(4):
        found = hypotheses(result, row)
        assert len({tuple(tokens) for tokens in found}) == 8
    torch.testing.assert_close(result.scores, result.log_probs / ((5 + result.lengths) / 6) ** 0.6)


def test_length_penalty_favours_longer_outputs():
    toy = Toy(eos_bias=1.0)
    lengths = [
        beam_search(toy.step, *toy.start(32), beam_size=8, max_length=8, length_penalty=alpha).lengths.sum().item()
        for alpha in (-1.0, 0.0, 1.0, 3.0)
    ]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


def test_all_sentences_end_at_once():
    toy = Toy(eos_bias=100.0)
    for result in (
        beam_search(toy.step, *toy.start(4), beam_size=3, max_length=50),
        greedy_search(toy.step, *toy.start(4), max_length=50),
    ):
        assert result.tokens.tolist() == [[[EOS]]] * 4
    assert len(toy.calls) == 2  # one step each, not 50


def test_early_stopping_is_never_better_and_saves_steps():
    toy = Toy(eos_bias=1.0)
    steps, scores = [], []
    for early in (False, True):
        toy.calls.clear()
        options = {"beam_size": 4, "max_length": 30, "length_penalty": 1.0}
        scores.append(beam_search(toy.step, *toy.start(8), early_stopping=early, **options).scores)
        steps.append(len(toy.calls))
    assert (scores[0] >= scores[1]).all() and steps[0] > steps[1]


def test_ties_are_broken_the_same_way_every_time():
    def step(tokens, state, memory, t):
        return torch.zeros(*tokens.shape, 10), state, None

    def run(batch):
        return beam_search(step, torch.zeros(batch, 1), None, beam_size=3, n_best=3, max_length=4).tokens

    assert torch.equal(run(4), run(4)) and torch.equal(run(4)[3:], run(1))
    assert greedy_search(step, torch.zeros(1, 1), None, max_length=1).tokens.item() == 1  # the first of equals


def test_more_hypotheses_than_outputs():
    toy = Toy(vocab=5)
    result = beam_search(toy.step, *toy.start(2), beam_size=4, n_best=4, max_length=1, forbid=(UNK,))
    assert result.lengths.tolist() == [[1, 1, 0, 0]] * 2
    assert torch.isinf(result.scores[:, 2:]).all() and (result.attn_weights[:, 2:] == 0).all()


def test_sampling_follows_the_distribution():
    toy, draws = Toy(), 4000
    state, memory = toy.start(1)
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.tensor(next_log_probs(toy, [], state, memory)[0])
    for temperature, top_k in ((1.0, 0), (0.5, 0), (2.0, 4), (1.0, 99)):
        options = {"temperature": temperature, "top_k": top_k, "num_samples": draws, "generator": generator}
        result = sample(toy.step, state, memory, max_length=1, forbid=(5,), **options)
        expected = log_probs.clone()
        expected[[PAD, BOS, 5]] = -math.inf
        if 0 < top_k < 9:
            expected[expected < expected.topk(top_k).values[-1]] = -math.inf
        expected = (expected / temperature).softmax(-1) * draws
        counts = result.tokens.flatten().bincount(minlength=9)
        assert (counts[expected == 0] == 0).all()
        chi_square = ((counts - expected) ** 2 / expected)[expected > 0].sum()
        assert chi_square < 22  # 99.9th percentile for 6 degrees of freedom
        torch.testing.assert_close(result.log_probs.flatten(), log_probs[result.tokens.flatten()], check_dtype=False)


def test_sampling_repeats_with_its_generator_and_top_1_is_greedy():
    toy = Toy(eos_bias=0.5)
    arguments = (toy.step, *toy.start(5))

    def run(seed):
        return sample(*arguments, max_length=6, num_samples=3, generator=torch.Generator().manual_seed(seed)).tokens

    assert torch.equal(run(0), run(0)) and not torch.equal(run(0), run(1))
    greedy, top_1 = greedy_search(*arguments, max_length=6), sample(*arguments, max_length=6, top_k=1, num_samples=2)
    assert torch.equal(top_1.tokens, greedy.tokens.expand(-1, 2, -1))
    torch.testing.assert_close(top_1.scores, greedy.scores.expand(-1, 2))


@pytest.mark.parametrize("temperature", [1e-9, 1e-39, 1e-60])
def test_sampling_near_zero_is_greedy(temperature):
    toy = Toy()
    found = sample(toy.step, *toy.start(3), max_length=5, temperature=temperature)
    assert found.tokens.equal(greedy_search(toy.step, *toy.start(3), max_length=5).tokens)


def test_no_end_at_all():
    toy = Toy()
    for method, options in ((greedy_search, {}), (partial(beam_search, beam_size=3), {}), (sample, {})):
        found = method(toy.step, *toy.start(3), max_length=5, min_length=6, **options)
        assert (found.lengths == 5).all() and not (found.tokens == EOS).any()


METHODS = {
    "greedy": greedy_search,
    "beam": partial(beam_search, beam_size=3, n_best=2),
    "sample": lambda *arguments, **options: sample(
        *arguments, num_samples=3, generator=torch.Generator().manual_seed(0), **options
    ),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def assert_same(found, expected):
    for field in dataclasses.fields(expected):
        torch.testing.assert_close(getattr(found, field.name), getattr(expected, field.name), rtol=0, atol=0)


@dataclasses.dataclass(frozen=True)
class Kept:
    hidden: Tensor
    steps: int = 7


FORMS = {
    "list": (lambda x: [x, None], lambda x: x[0]),
    "dict": (lambda x: {"name": "layer", "hidden": [x]}, lambda x: x["hidden"][0]),
    "ordered": (lambda x: collections.OrderedDict(hidden=x), lambda x: x["hidden"]),
    "default": (lambda x: collections.defaultdict(list, hidden=x), lambda x: x["hidden"]),
    "dataclass": (Kept, lambda x: x.hidden),
}


@every_method
@pytest.mark.parametrize("pack, unpack", FORMS.values(), ids=FORMS)
def test_state_and_memory_in_lists_dicts_and_dataclasses(method, pack, unpack):
    toy = Toy(eos_bias=1.0)

    def step(tokens, state, memory, t):
        inner = State(unpack(state), (unpack(state)[..., 0] * 0 + t + 1, None))
        logits, after, attn = toy.step(tokens, inner, Memory(unpack(memory), memory_lengths(memory)), t)
        return logits, pack(after.hidden), attn

    def memory_lengths(memory):
        return torch.full((len(unpack(memory)),), 4)

    state, memory = toy.start(4)
    expected = method(toy.step, state, memory._replace(lengths=torch.full((4,), 4)), max_length=6)
    assert_same(method(step, pack(state.hidden), pack(memory.keys), max_length=6), expected)


@every_method
@pytest.mark.parametrize("no_repeat", [0, 2])
@pytest.mark.parametrize("bos", [BOS, EOS])
def test_eos_may_be_the_padding_or_bos_too(method, no_repeat, bos):
    """As in many pretrained models. All else equal, only what stands after the end differs."""
    toy = Toy(eos_bias=1.0)
    options = dict(max_length=6, no_repeat_ngram=no_repeat)
    if bos == EOS:
        toy.embedding[EOS] = toy.embedding[BOS]
    expected = method(toy.step, *toy.start(4), **options)
    found = method(toy.step, *toy.start(4), **options, pad=EOS, bos=bos, forbid=(PAD, BOS))
    assert (expected.lengths < 6).any()
    inside = torch.arange(expected.tokens.size(-1)) < expected.lengths[..., None]
    assert_same(found, dataclasses.replace(expected, tokens=expected.tokens.where(inside, EOS)))


@every_method
def test_no_sentence_gives_no_result(method):
    toy = Toy()
    for limit in (5, torch.zeros(0, dtype=torch.int64)):
        found = method(toy.step, *toy.start(0), max_length=limit)
        count = found.lengths.size(1)
        assert found.tokens.shape == (0, count, 0) and found.scores.shape == found.log_probs.shape == (0, count)
        assert found.tokens.dtype == found.lengths.dtype == torch.int64 and not toy.calls


@every_method
def test_special_tokens_that_a_decoder_does_not_produce(method):
    """A decoder's output layer may lack BOS and PAD."""
    toy = Toy(eos_bias=1.0)
    toy.embedding = torch.cat((toy.embedding, toy.embedding[[PAD, BOS]]))  # tokens 9 and 10
    expected = method(toy.step, *toy.start(4), max_length=6)
    found = method(toy.step, *toy.start(4), max_length=6, pad=9, bos=10, forbid=(PAD, BOS))
    assert found.log_probs.equal(expected.log_probs) and found.lengths.equal(expected.lengths)


class Holder:
    def __init__(self, hidden):
        self.hidden = hidden


@pytest.mark.parametrize(
    "state, memory, error, message",
    [
        (None, None, ValueError, r"the first state must have a tensor \(B, 1, \.\.\.\).*; got None"),
        (torch.zeros(2, 4), None, ValueError, r"must be \(B, 1, \.\.\.\), here \(2, 1, \.\.\.\); got \(2, 4\)"),
        ([torch.zeros(2, 1), torch.zeros(3, 1)], None, ValueError, r"here \(2, 1, \.\.\.\); got \(3, 1\)"),
        (torch.zeros(2, 1), {"keys": torch.zeros(3, 5)}, ValueError, r"here \(2, \.\.\.\); got \(3, 5\)"),
        (Holder(torch.zeros(2, 1)), None, TypeError, "got tensors in a Holder: give these in a dict"),
    ],
)
def test_bad_states_and_memories(state, memory, error, message):
    with pytest.raises(error, match=message):
        greedy_search(lambda *_: None, state, memory, max_length=3)


def test_half_precision_logits():
    toy = Toy(eos_bias=1.0)

    def step(*arguments):
        logits, state, attn = toy.step(*arguments)
        return logits.bfloat16(), state, attn

    result = beam_search(step, *toy.start(3), beam_size=3, max_length=5)
    assert result.scores.dtype == torch.float32 and torch.isfinite(result.scores).all()


@pytest.mark.parametrize(
    "function, options, message",
    [
        (beam_search, {"beam_size": 0}, "beam_size must be at least 1; got 0"),
        (beam_search, {"beam_size": 2, "n_best": 3}, "n_best must be between 1 and beam_size = 2; got 3"),
        (beam_search, {"beam_size": 2, "n_best": 0}, "n_best must be between 1 and beam_size = 2; got 0"),
        (beam_search, {"beam_size": 2, "max_length": 0}, "max_length must be at least 1; got 0"),
        (greedy_search, {"max_length": torch.tensor([3, 0])}, "max_length must be at least 1; got 0"),
        (greedy_search, {"max_length": torch.ones(3, dtype=torch.long)}, r"one for each of 2 sentences; got \(3,\)"),
        (greedy_search, {"min_length": 9}, r"min_length must be between 0 and max_length \+ 1 = 6; got 9"),
        (greedy_search, {"forbid": (UNK, EOS)}, r"forbid must not hold eos = 3.*got \[1, 3\]"),
        (greedy_search, {"forbid": (UNK, 9)}, r"token ids from 0 to 8, of the 9 that step gives.*; got \[9\]"),
        (beam_search, {"beam_size": 2, "forbid": (-1,)}, r"token ids from 0 to 8.*; got \[-1\]"),
        (greedy_search, {"no_repeat_ngram": -1}, "no_repeat_ngram must be at least 1, or 0 for no rule; got -1"),
        (sample, {"temperature": 0.0}, "temperature must be greater than 0 and finite; got 0.0"),
        (sample, {"temperature": float("inf")}, "temperature must be greater than 0 and finite; got inf"),
        (search.search, {"beam_size": 101}, "beam_size must be from 1 to 100; got 101"),
        (search.search, {"beam_size": 2, "length_penalty": 1e9}, "length_penalty must be from -10 to 10"),
        (sample, {"top_k": -1}, "top_k must be at least 1, or 0 for all tokens; got -1"),
        (sample, {"num_samples": 0}, "num_samples must be from 1 to 10,000; got 0"),
    ],
)
def test_bad_arguments(function, options, message):
    toy = Toy()
    with pytest.raises(ValueError, match=message):
        function(toy.step, *toy.start(2), **{"max_length": 5} | options)


def test_forbidden_tokens_are_integers():
    toy = Toy()
    with pytest.raises(TypeError, match="each token id of forbid must be an integer; got 1.5"):
        greedy_search(toy.step, *toy.start(2), max_length=5, forbid=(1.5,))
