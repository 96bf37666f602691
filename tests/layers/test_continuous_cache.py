"""The continuous cache against loops over time."""

import math

import pytest
import torch

from zoo.layers import continuous_cache
from zoo.layers.continuous_cache import appended, empty_memory, interpolate, latest, lookup, lookup_labels

pytestmark = pytest.mark.usefixtures("float64")

B, T, N, D, V, THETA = 3, 11, 4, 5, 7, 0.8


def text(steps=T):
    """States (B, T, D) and the words that follow them (B, T), some of them more than once in each cache."""
    torch.manual_seed(0)
    return torch.randn(B, steps, D), torch.randint(1, V, (B, steps))


def by_loop(states, following, size=N, theta=THETA):
    """p_cache of all words at each step (B, T, V), from the paper, one step after the other."""
    found = torch.zeros(*following.shape, V)
    for b in range(len(states)):
        for t in range(states.size(1)):
            total = 0.0
            for i in range(max(0, t - size), t):
                weight = math.exp(theta * float(states[b, t] @ states[b, i]))
                found[b, t, following[b, i]] += weight
                total += weight
            if total:
                found[b, t] /= total
    return found


def everything(states, following, size=N):
    return appended(empty_memory(states, size), states, following)


@pytest.mark.parametrize("size", [1, N, T + 5])
def test_the_distribution_equals_a_loop(size):
    states, following = text()
    cached, is_filled = lookup(states, everything(states, following, size), THETA, V)
    torch.testing.assert_close(cached, by_loop(states, following, size))
    assert is_filled.squeeze(-1).tolist() == [[False] + [True] * (T - 1)] * B


@pytest.mark.parametrize("rows", [1, 3, 128])
@pytest.mark.parametrize("size", [1, N, T + 5])
def test_the_fast_form_equals_the_distribution(size, rows, monkeypatch):
    monkeypatch.setattr(continuous_cache, "_ROWS", rows)
    states, following = text()
    pairs = everything(states, following, size)
    whole, is_filled = lookup(states, pairs, THETA, V)
    for labels in (following, following.flip(1)):
        cached, filled = lookup_labels(states, pairs, THETA, labels)
        torch.testing.assert_close(cached, whole.gather(-1, labels.unsqueeze(-1)).squeeze(-1))
        assert torch.equal(filled, is_filled.squeeze(-1))
    assert (cached > 0).any() and (cached == 0).any()


@pytest.mark.parametrize("pieces", [[1] * T, [4, 7], [2, 3, 1, 5]])
def test_segments_of_any_length_are_one_text(pieces):
    states, following = text()
    whole = lookup_labels(states, everything(states, following), THETA, following)[0]
    memory, found = empty_memory(states, N), []
    for h, x in zip(states.split(pieces, 1), following.split(pieces, 1), strict=True):
        pairs = appended(memory, h, x)
        found.append(lookup_labels(h, pairs, THETA, x)[0])
        memory = latest(pairs, N, torch.full((B,), x.size(1)))
    torch.testing.assert_close(torch.cat(found, 1), whole)
    assert torch.equal(memory[0], states[:, -N:]) and torch.equal(memory[1], following[:, -N:])


def test_the_memory_of_texts_of_different_length():
    states, following = text()
    lengths = torch.tensor([T, 2, 0])
    following[torch.arange(T) >= lengths.unsqueeze(1)] = 0  # PAD
    keys, words = latest(everything(states, following), N, lengths)
    assert words[1].tolist() == [0, 0, *following[1, :2].tolist()] and words[2].tolist() == [0] * N
    assert torch.equal(keys[0], states[0, -N:]) and torch.equal(keys[1, 2:], states[1, :2])
    later, word = torch.randn(B, 1, D), torch.ones(B, 1, dtype=torch.int64)
    cached, is_filled = lookup(later, appended((keys, words), later, word), THETA, V)
    alone = by_loop(torch.cat([states[1:2, :2], later[1:2]], 1), torch.cat([following[1:2, :2], word[1:2]], 1))
    torch.testing.assert_close(cached[1], alone[0, -1:])
    assert is_filled.flatten().tolist() == [True, True, False] and not cached[2].any()


def test_the_mixture_sums_to_one_and_is_the_model_where_the_cache_is_empty():
    states, following = text()
    log_probs = torch.randn(B, T, V).log_softmax(-1)
    cached, is_filled = lookup(states, everything(states, following), THETA, V)
    mixed = interpolate(log_probs, cached, is_filled, 0.3)
    torch.testing.assert_close(mixed.exp().sum(-1), torch.ones(B, T))
    assert torch.equal(mixed[:, 0], log_probs[:, 0])
    torch.testing.assert_close(mixed[:, 1:].exp(), 0.7 * log_probs[:, 1:].exp() + 0.3 * cached[:, 1:])
    assert torch.equal(interpolate(log_probs, cached, is_filled, 0.0), log_probs)


def test_later_words_and_states_change_nothing_before():
    states, following = text()
    changed_states, changed = states.clone(), following.clone()
    changed_states[:, 6:] += 1
    changed[:, 5:] = changed[:, 5:] % (V - 1) + 1  # another word follows step 5, which step 6 reads
    whole = [lookup(h, everything(h, x), THETA, V)[0] for h, x in ((states, following), (changed_states, changed))]
    fast = [
        lookup_labels(h, everything(h, x), THETA, following)[0]
        for h, x in ((states, following), (changed_states, changed))
    ]
    for before, after in (whole, fast):
        assert torch.equal(before[:, :6], after[:, :6])
        assert not torch.equal(before[:, 6:], after[:, 6:])


def test_large_scores_and_low_precision():
    states, following = text()
    for sharp in (1e4, 1e5):
        cached, is_filled = lookup_labels(
            sharp * states.float(), everything(sharp * states.float(), following), 1.0, following
        )
        whole, _ = lookup(sharp * states.float(), everything(sharp * states.float(), following), 1.0, V)
        assert cached.isfinite().all() and is_filled[:, 1:].all() and (whole.sum(-1)[:, 1:] - 1).abs().max() < 1e-5
    exact = lookup_labels(states, everything(states, following), THETA, following)[0]
    low = states.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        near = lookup_labels(low, everything(low, following), THETA, following)[0]
    assert near.dtype == torch.float32 and (near - exact).abs().max() < 0.02


def test_empty_batches():
    states, following = text(0)
    cached, is_filled = lookup_labels(states, everything(states, following), THETA, following)
    assert cached.shape == is_filled.shape == (B, 0)
