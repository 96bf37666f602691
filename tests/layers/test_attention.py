"""Scores and attention against loops written from the papers, one number at a time."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call

from zoo.layers.attention import ATTENTIONS, NORMALIZATIONS, NoAttention, make_attention
from zoo.layers.masking import lengths_to_mask
from zoo.layers.multi_head import MultiHeadAttention
from zoo.layers.scores import SCORES

pytestmark = pytest.mark.usefixtures("float64")

B, T, S, H, D = 3, 4, 7, 6, 2
LENGTHS = [7, 3, 0]  # a full row, a padded row, a row with nothing to attend to


def naive_score(name, score, h_t, h_s, s):
    """The score of one query and one memory position, as a number."""
    if name == "dot":
        return float(h_t @ h_s)
    if name == "scaled_dot":
        return float(h_t @ h_s) / math.sqrt(H)
    if name == "general":
        return float(h_t @ score.w_a.weight @ h_s)
    if name == "concat":
        w = torch.cat([score.w_query.weight, score.w_memory.weight], dim=1)
        return float(score.v @ torch.tanh(w @ torch.cat([h_t, h_s])))
    return 0.0 if name == "uniform" else float((score.w_a.weight @ h_t)[s])


def naive_normalized(normalize, scores):
    """Weights of a list of scores."""
    if normalize == "softmax":
        return [math.exp(z) / sum(map(math.exp, scores)) for z in scores]
    total = tau = 0.0
    for k, z in enumerate(sorted(scores, reverse=True), start=1):  # Martins and Astudillo 2016, Algorithm 1
        total += z
        if 1 + k * z > total:
            tau = (total - 1) / k
    return [max(z - tau, 0.0) for z in scores]


def naive_weights(kind, attention, name, normalize, query, memory, length, t, renormalize):
    """Weights of one query over S positions: list of S numbers."""
    scores = [naive_score(name, attention.score, query, memory[s], s) for s in range(length)]
    if kind == "global":
        chosen, factor = list(range(length)), [1.0] * length
    elif kind == "local_m":
        p = min(t, length - 1)
        chosen, factor = [s for s in range(length) if p - D <= s <= p + D], [1.0] * length
    elif kind in ("local_p", "local_p_full"):
        p = length / (1 + math.exp(-float(attention.v_p.weight @ torch.tanh(attention.w_p.weight @ query))))
        in_window = [s for s in range(length) if math.floor(p) - D <= s <= math.floor(p) + D]
        chosen = in_window if kind == "local_p" else list(range(length))
        sigma = D / 2
        factor = [math.exp(-((s - p) ** 2) / (2 * sigma**2)) for s in range(length)]
    else:
        factor = [
            1 / (1 + math.exp(-float(attention.v_p.weight @ torch.tanh(attention.w_p.weight @ memory[s]))))
            for s in range(length)
        ]
        chosen = sorted(range(length), key=lambda s: -factor[s])[:D]
    weights = [0.0] * S
    for s, weight in zip(chosen, naive_normalized(normalize, [scores[s] for s in chosen])):
        weights[s] = weight * factor[s]
    if renormalize and chosen:
        weights = [w / sum(weights) for w in weights]
    return weights


def make(kind, name, renormalize=False, normalize="softmax"):
    torch.manual_seed(0)
    options = dict(renormalize=renormalize, normalize=normalize)
    attention = make_attention(kind, H, H, score=name, window=D, max_length=9, **options)
    return attention, torch.randn(B, T, H), torch.randn(B, S, H), torch.tensor(LENGTHS)


CASES = [(kind, name) for kind in ATTENTIONS for name in SCORES if name != "location" or kind == "global"]


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("kind, name", CASES)
@torch.no_grad()
def test_against_naive_loops(kind, name, renormalize, normalize):
    renormalize = renormalize and kind.startswith("local_p")
    attention, query, memory, lengths = make(kind, name, renormalize, normalize)
    projected = attention.project(memory, lengths_to_mask(lengths, S))
    context, weights = attention(query, projected, torch.arange(T))
    for b in range(B):
        for t in range(T):
            want = naive_weights(kind, attention, name, normalize, query[b, t], memory[b], LENGTHS[b], t, renormalize)
            torch.testing.assert_close(weights[b, t], torch.tensor(want))
            torch.testing.assert_close(context[b, t], sum(w * h for w, h in zip(want, memory[b])))


@pytest.mark.parametrize("name", ["general", "concat", "location", "uniform"])
@torch.no_grad()
def test_scores_of_queries_and_memories_of_different_size(name):
    torch.manual_seed(0)
    score = SCORES[name](4, H, attention_size=9, max_length=8)
    query, memory = torch.randn(2, T, 4), torch.randn(2, S, H)
    keys = score.project(memory)
    want = [
        [[naive_score(name, score, h_t, h_s, s) for s, h_s in enumerate(memory[b])] for h_t in query[b]] for b in (0, 1)
    ]
    torch.testing.assert_close(score(query, keys), torch.tensor(want))
    assert keys.size(-1) == {"general": 4, "concat": 9}.get(name, H)


@pytest.mark.parametrize("kind, name", CASES)
@torch.no_grad()
def test_given_weights_replace_those_of_their_rows_only(kind, name):
    attention, query, memory, lengths = make(kind, name)
    given = torch.rand(B, T, S).softmax(-1)
    given[:, 1] = 0  # the model decides
    projected = attention.project(memory, lengths_to_mask(lengths, S))
    context, weights = attention(query, projected, torch.arange(T), given)
    for b in range(B):
        for t in range(T):
            want = given[b, t].tolist()
            if t == 1:
                want = naive_weights(kind, attention, name, "softmax", query[b, t], memory[b], LENGTHS[b], t, False)
            torch.testing.assert_close(weights[b, t], torch.tensor(want))
            torch.testing.assert_close(context[b, t], sum(w * h for w, h in zip(want, memory[b])))


@pytest.mark.parametrize("kind", ATTENTIONS)
@torch.no_grad()
def test_without_a_position_query_t_stands_at_t(kind):
    attention, query, memory, lengths = make(kind, "general")
    projected = attention.project(memory, lengths_to_mask(lengths, S))
    _, weights = attention(query, projected)
    assert weights.equal(attention(query, projected, torch.arange(T))[1])
    if kind == "local_m":  # an int: all queries stand there, as the hypotheses of a search
        steps = [attention(query[:, [t]], projected, t)[1] for t in range(T)]
        torch.testing.assert_close(weights, torch.cat(steps, 1))
        assert not weights.allclose(attention(query, projected, 0)[1])


@pytest.mark.parametrize("causal", [False, True])
def test_shown_weights_have_the_same_dropout(causal):
    torch.manual_seed(0)
    attention = MultiHeadAttention(H, 2, key_size=3, output_projection=False, dropout=0.5)
    x = torch.randn(B, T, H)
    keys, values = attention.project(x)
    exact, plain = attention.eval()(x, keys, values, causal=causal, show=True)
    attention.train()
    for show in (False, True):
        found = torch.stack([attention(x, keys, values, causal=causal, show=show)[0] for _ in range(3000)])
        assert found.std(0).amin() > 0.01, f"no dropout with show={show}"
        torch.testing.assert_close(found.mean(0), exact, rtol=0, atol=0.1)
    _, weights = attention(x, keys, values, causal=causal, show=True)
    torch.testing.assert_close(weights, plain)  # shown as they are before dropout


class Attended(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, query, memory, lengths):
        return self.attention(query, self.attention.project(memory, lengths_to_mask(lengths, memory.size(1))))


class AttendedByHeads(nn.Module):
    def __init__(self, show=False, is_masked=False):
        super().__init__()
        self.attention = MultiHeadAttention(H, 2, 3, output_projection=True, dropout=0.1)
        self.show, self.is_masked = show, is_masked

    def forward(self, query, memory, lengths):
        mask = lengths_to_mask(lengths, memory.size(1))[:, None, None] if self.is_masked else None
        found, weights = self.attention(query, *self.attention.project(memory), mask, show=self.show)
        return (found,) if weights is None else (found, weights)


TRACED = {
    **{"-".join(case): lambda normalize, case=case: Attended(make(*case, normalize=normalize)[0]) for case in CASES},
    "none": lambda normalize: Attended(NoAttention()),
    "heads": lambda normalize: AttendedByHeads(),
    "shown_heads": lambda normalize: AttendedByHeads(show=True),
    "masked_heads": lambda normalize: AttendedByHeads(is_masked=True),
}


@pytest.mark.filterwarnings("ignore:.*is deprecated")
@pytest.mark.filterwarnings("error::torch.jit.TracerWarning")
@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("make_module", TRACED.values(), ids=TRACED)
@torch.no_grad()
def test_traces_are_right_for_other_sizes(make_module, normalize):
    module = make_module(normalize).eval()
    memory = torch.randn(2, 4, H)
    traced = torch.jit.trace(module, (torch.randn(2, 3, H), memory, torch.tensor([4, 2])))
    for queries, positions in ((3, 4), (1, 1), (5, 12)):
        given = torch.randn(3, queries, H), torch.randn(3, positions, H), torch.tensor([positions, 1, 1])
        for found, expected in zip(traced(*given), module(*given), strict=True):
            torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_all_heads_use_given_weights():
    """Each head averages its part of the values with them; a row of zeros is softmax(q k / sqrt(d_k))."""
    torch.manual_seed(0)
    heads, size = 2, H // 2
    attention = MultiHeadAttention(H, heads, key_size=size, output_projection=False, dropout=0.0)
    x, memory, given = torch.randn(B, T, H), torch.randn(B, S, H), torch.rand(B, T, S).softmax(-1)
    given[:, 1] = 0
    keys, values = attention.project(memory)
    found, weights = attention(x, keys, values, given=given)
    queries = attention.query(x)
    for b in range(B):
        for t in range(T):
            for h in range(heads):
                want = given[b, t].tolist()
                if t == 1:
                    query = queries[b, t, h * size : (h + 1) * size]
                    want = naive_normalized(
                        "softmax", [float(query @ keys[b, h, s]) / math.sqrt(size) for s in range(S)]
                    )
                torch.testing.assert_close(weights[b, h, t], torch.tensor(want))
                mean = sum(w * values[b, h, s] for s, w in enumerate(want))
                torch.testing.assert_close(found[b, t, h * size : (h + 1) * size], mean)


@pytest.mark.parametrize("kind, name", CASES)
def test_a_loop_of_steps_equals_all_queries_at_once_and_so_do_the_gradients(kind, name):
    results = []
    for loop in (False, True):
        attention, query, memory, lengths = make(kind, name)
        query.requires_grad_()
        memory.requires_grad_()
        projected = attention.project(memory, lengths_to_mask(lengths, S))
        if loop:
            steps = [attention(query[:, t : t + 1], projected, t) for t in range(T)]
            context, weights = (torch.cat(x, dim=1) for x in zip(*steps))
        else:
            context, weights = attention(query, projected, torch.arange(T))
        (context.sin().sum() + (weights**2).sum()).backward()
        results.append([context, weights, query.grad, memory.grad, *(p.grad for p in attention.parameters())])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("kind, name", CASES)
def test_nothing_to_attend_to_gives_zeros_and_finite_gradients(kind, name, renormalize):
    attention, query, memory, lengths = make(kind, name, renormalize and kind.startswith("local_p"))
    query.requires_grad_()
    memory.requires_grad_()
    context, weights = attention(query, attention.project(memory, lengths_to_mask(lengths, S)), torch.arange(T))
    assert (weights[2] == 0).all() and (context[2] == 0).all()
    (context.sum() + weights.square().sum()).backward()
    given = [memory] if query.grad is None else [memory, query]
    assert all((x.grad[2] == 0).all() and x.grad.isfinite().all() for x in given)
    asks = name != "uniform" or kind in ("local_p", "local_p_full")
    assert (query.grad is not None) == asks, "uniform weights depend on the query only through a predicted position"
    for p in attention.parameters():
        assert p.grad is None or p.grad.isfinite().all()


def test_local_p_uses_the_true_length_and_its_gradient_reaches_the_position():
    attention, query, memory, lengths = make("local_p", "dot")
    mask = lengths_to_mask(lengths, S)
    position = attention.aligned_position(query, attention.project(memory, mask))
    assert (position[0] > 3).any() and (position[1] < 3).all()  # rows of 7 and of 3 real positions
    context, _ = attention(query, attention.project(memory, mask))
    context.sum().backward()
    assert attention.v_p.weight.grad.abs().sum() > 0 and attention.w_p.weight.grad.abs().sum() > 0


def test_local_p_mass_with_flat_scores():
    """Not renormalised, the paper's weights sum to 0.57 in the middle of a long sentence (D = 10)."""
    attention = make_attention("local_p", H, H, score="dot", window=10)
    memory = torch.zeros(1, 101, H)
    with torch.no_grad():
        attention.v_p.weight.zero_()  # p = 50.5
        _, weights = attention(torch.zeros(1, 1, H), attention.project(memory, torch.ones(1, 101, dtype=torch.bool)))
    assert weights.sum().item() == pytest.approx(0.57, abs=0.01)


def test_without_truncation_the_weights_are_those_of_global_attention_times_the_gaussian():
    full, query, memory, _ = make("local_p_full", "general")
    plain, cut = (make_attention(kind, H, H, score="general", window=D) for kind in ("global", "local_p"))
    plain.score.load_state_dict(full.score.state_dict())
    cut.load_state_dict(full.state_dict())
    mask = lengths_to_mask(torch.tensor([7, 3, 1]), S)
    _, weights = full(query, full.project(memory, mask))
    _, global_weights = plain(query, plain.project(memory, mask))
    _, cut_weights = cut(query, cut.project(memory, mask))
    p = full.aligned_position(query, full.project(memory, mask)).unsqueeze(-1)
    torch.testing.assert_close(weights, global_weights * torch.exp(-((torch.arange(S) - p) ** 2) / (2 * (D / 2) ** 2)))
    assert (weights[0] > 0).all() and (cut_weights[0] == 0).any()  # a row without pads


def test_local_p_star_with_a_wide_window_is_gated_global_attention():
    torch.manual_seed(1)
    star = make_attention("local_p_star", H, H, score="general", window=S)
    plain = make_attention("global", H, H, score="general")
    plain.score.load_state_dict(star.score.state_dict())
    query, memory, mask = torch.randn(B, T, H), torch.randn(B, S, H), lengths_to_mask(torch.tensor(LENGTHS), S)
    gate = torch.sigmoid(star.v_p(torch.tanh(star.w_p(memory)))).squeeze(-1)
    _, weights = star(query, star.project(memory, mask))
    _, global_weights = plain(query, plain.project(memory, mask))
    torch.testing.assert_close(weights, global_weights * gate.unsqueeze(1))


def test_local_p_star_takes_the_first_of_equally_relevant_positions():
    attention, _, _, _ = make("local_p_star", "general")
    seen = attention.project(torch.ones(2, S, H), lengths_to_mask(torch.tensor([7, 3]), S))
    assert seen.mask.tolist() == [[True] * D + [False] * (S - D)] * 2


@torch.no_grad()
def test_renormalised_weights_without_truncation_are_a_softmax_however_small_they_are():
    """softmax(score - (s - p)^2 / (2 sigma^2)): the Gaussian is a part of the score."""
    torch.manual_seed(0)
    attention = make_attention("local_p_full", H, H, score="dot", window=4, renormalize=True)
    memory, mask = torch.randn(2, 40, H), lengths_to_mask(torch.tensor([40, 30]), 40)
    memory[:, 0] *= 3  # what the first query matches is far from its position
    query = memory[:, [0, 1, 2, 3]] * torch.tensor([2.0, 1.0, 0.1, 0.0]).unsqueeze(-1)
    seen = attention.project(memory, mask)
    _, weights = attention(query, seen)
    scores = (query @ memory.transpose(1, 2)).masked_fill(~mask.unsqueeze(1), -torch.inf)
    p = attention.aligned_position(query, seen).unsqueeze(-1)
    near = scores - (torch.arange(40) - p) ** 2 / (2 * 2**2)
    assert (near.logsumexp(-1) - scores.logsumexp(-1)).min() < math.log(1e-8), "the sum of the weights is never small"
    torch.testing.assert_close(weights, near.softmax(-1))


GRADIENTS = [
    *(("global", name, False) for name in SCORES),
    *((kind, "general", again) for kind in ATTENTIONS if kind.startswith("local_p") for again in (False, True)),
]


@pytest.mark.parametrize("kind, name, renormalize", GRADIENTS)
def test_gradients_are_the_slopes(kind, name, renormalize):
    torch.manual_seed(0)
    module = Attended(make_attention(kind, 2, 2, score=name, window=2, max_length=3, renormalize=renormalize))
    names, parameters = dict(module.named_parameters()).keys(), module.parameters()

    def attend(query, memory, *given):
        return functional_call(module, dict(zip(names, given, strict=True)), (query, memory, torch.tensor([3, 2])))

    inputs = torch.randn(2, 2, 2, requires_grad=True), torch.randn(2, 3, 2, requires_grad=True)
    assert torch.autograd.gradcheck(attend, (*inputs, *parameters))


@pytest.mark.parametrize("kind, name", CASES)
@torch.no_grad()
def test_in_low_precision_keys_weights_and_positions_are_of_single_precision(kind, name):
    attention, query, memory, lengths = make(kind, name)
    attention, query, memory = attention.bfloat16(), query.bfloat16(), memory.bfloat16()
    seen = attention.project(memory, lengths_to_mask(lengths, S))
    context, weights = attention(query, seen)
    assert context.dtype == torch.bfloat16 and weights.dtype == seen.gate.dtype == torch.float32
    if name in ("dot", "scaled_dot", "general", "concat"):
        assert seen.keys.dtype == torch.float32
    if kind in ("local_p", "local_p_full"):  # of 1,000 words: bfloat16 has only every fourth of the last numbers
        long = seen._replace(lengths=torch.full((B,), 1000))
        position = attention.aligned_position(query, long)
        assert position.dtype == torch.float32 and not position.equal(position.bfloat16().float())


@pytest.mark.parametrize("name", ["dot", "scaled_dot", "general", "concat"])
@torch.no_grad()
def test_scores_beyond_the_largest_number_of_half_precision(name):
    torch.manual_seed(0)
    attention, memory = make_attention("global", 512, 512, score=name).half(), (20 * torch.randn(1, 3, 512)).half()
    context, weights = attention(memory[:, 1:2], attention.project(memory, torch.ones(1, 3, dtype=torch.bool)))
    assert context.isfinite().all() and weights.sum().item() == pytest.approx(1)
    if name in ("dot", "scaled_dot"):  # of a vector with itself, about 400 * 512
        assert weights[0, 0, 1] == 1


def test_location_ignores_words_beyond_its_length():
    attention = make_attention("global", H, H, score="location", max_length=4)
    _, weights = attention(
        torch.randn(1, 2, H), attention.project(torch.randn(1, 6, H), torch.ones(1, 6, dtype=torch.bool))
    )
    assert (weights[..., 4:] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2))


def test_scaled_dot_is_torch_scaled_dot_product_attention():
    attention, query, memory, _ = make("global", "scaled_dot")
    mask = lengths_to_mask(torch.tensor([7, 3, 1]), S)
    context, _ = attention(query, attention.project(memory, mask))
    want = torch.nn.functional.scaled_dot_product_attention(query, memory, memory, attn_mask=mask.unsqueeze(1))
    torch.testing.assert_close(context, want)


def test_permuting_the_memory_permutes_the_weights():
    attention, query, memory, _ = make("global", "concat")
    order = torch.randperm(S)
    mask = torch.ones(B, S, dtype=torch.bool)
    context, weights = attention(query, attention.project(memory, mask))
    again, shuffled = attention(query, attention.project(memory[:, order], mask))
    torch.testing.assert_close(shuffled, weights[..., order])
    torch.testing.assert_close(again, context)


def test_bad_arguments():
    with pytest.raises(ValueError, match="score 'dot' needs query and memory of one size; got query 4 and memory 5"):
        make_attention("global", 4, 5, score="dot")
    with pytest.raises(
        ValueError,
        match="attention must be one of 'global', 'local_m', 'local_p', 'local_p_full', 'local_p_star'; got 'hard'",
    ):
        make_attention("hard", 4, 4)
    with pytest.raises(ValueError, match="normalize must be one of 'softmax', 'sparsemax'; got 'entmax'"):
        make_attention("global", 4, 4, normalize="entmax")
    with pytest.raises(ValueError, match="window must be at least 1; got 0"):
        make_attention("local_m", 4, 4, window=0)
    with pytest.raises(ValueError, match="max_length must be at least 1; got 0"):  # not the default, 100
        make_attention("global", 4, 4, score="location", max_length=0)
    with pytest.raises(ValueError, match="attention_size must be at least 1; got 0"):
        make_attention("global", 4, 4, score="concat", attention_size=0)


@pytest.mark.parametrize("name", ["global", "local_m", "local_p", "local_p_full"])
def test_a_normalisation_gets_wide_scores(name, monkeypatch):
    """Also in bf16, where a user's own would round its sums."""
    seen = []

    def watched(scores, mask):
        seen.append(scores.dtype)
        return torch.softmax(scores, -1) * mask

    layer = make_attention(name, 8, 8).float()
    monkeypatch.setattr(layer, "normalize", watched)
    states = torch.randn(2, 5, 8, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        layer(states[:, :3], layer.project(states, torch.ones(2, 5).bool()))
    half = layer.bfloat16()
    half(states[:, :3].bfloat16(), half.project(states.bfloat16(), torch.ones(2, 5).bool()))
    assert seen == [torch.float32] * 2


@pytest.mark.parametrize("kind", ["local_m", "local_p", "local_p_full"])
def test_a_window_needs_the_padding_after_the_positions(kind):
    attention, memory = make_attention(kind, 4, 4, window=1), torch.randn(2, 5, 4)
    attention.project(memory, torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]).bool())
    for row in ([0, 0, 1, 1, 1], [1, 0, 1, 0, 0]):
        with pytest.raises(ValueError, match="mask must be True on the first positions of each row: local attention"):
            attention.project(memory, torch.tensor([row, [1, 1, 1, 1, 1]]).bool())
