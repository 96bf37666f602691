"""Attention over windows against loops over time."""

import pytest
import torch

from zoo.layers.window import window_mask, window_score, window_sum

pytestmark = pytest.mark.usefixtures("float64")

T, B, L, K = 6, 3, 4, 5


def memory():
    torch.manual_seed(0)
    return torch.randn(L + T - 1, B, K, dtype=torch.float64, requires_grad=True)


def seen(sequence, t, d):
    """The step that lies d before query t."""
    return sequence[L + t - d]


def test_scores_and_gradients_equal_a_loop():
    keys, query = memory(), torch.randn(T, B, K, dtype=torch.float64, requires_grad=True)
    v = torch.randn(K, dtype=torch.float64, requires_grad=True)
    rows = [
        torch.stack([torch.tanh(query[t] + seen(keys, t, d)) @ v for d in range(1, L + 1)], dim=-1) for t in range(T)
    ]
    want, got = torch.stack(rows), window_score(query, keys, v)
    torch.testing.assert_close(got, want)
    grad = torch.randn_like(want)
    for a, b in zip(
        torch.autograd.grad(got, [query, keys, v], grad), torch.autograd.grad(want, [query, keys, v], grad), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_sums_and_gradients_equal_a_loop():
    values, weights = memory(), torch.randn(T, B, L, dtype=torch.float64, requires_grad=True)
    want = torch.stack(
        [sum(weights[t, :, d - 1, None] * seen(values, t, d) for d in range(1, L + 1)) for t in range(T)]
    )
    got = window_sum(weights, values)
    torch.testing.assert_close(got, want)
    grad = torch.randn_like(want)
    for a, b in zip(
        torch.autograd.grad(got, [weights, values], grad),
        torch.autograd.grad(want, [weights, values], grad),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_a_window_holds_what_was_read():
    mask = window_mask(torch.tensor([0, 2, 4]), 3, 4)
    assert mask.sum(-1).tolist() == [[0, 2, 4], [1, 3, 4], [2, 4, 4]]
    assert mask[1, 1].tolist() == [True, True, True, False]  # the nearest first
    assert window_mask(torch.zeros(1, dtype=torch.int64), 5, 1).flatten().tolist() == [False, True, True, True, True]


def test_autocast_changes_no_score():
    keys, query, v = (torch.randn(*shape, dtype=torch.float32) for shape in ((5, 2, 8), (3, 2, 8), (8,)))
    want = window_score(query, keys, v)
    with torch.autocast("cpu", torch.bfloat16):
        got = window_score(query, keys, v)
    assert torch.equal(got, want) and got.dtype == torch.float32
