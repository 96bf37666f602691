"""Drawn positions, and logarithms of weights of which some are 0."""

import pytest
import torch

from zoo.layers.hard_attention import draw, log_weights


@pytest.mark.parametrize("total", [1.0, 0.3])
def test_positions_are_drawn_as_often_as_their_weights_say(total):
    torch.manual_seed(0)
    weights = torch.tensor([[0.0, 0.2, 0.0, 0.8, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]], requires_grad=True)
    found = draw((total * weights).expand(4000, -1, -1))
    assert found.unique().tolist() == [0, 1] and (found.sum(-1) == 1).all() and not found.requires_grad
    shares = found.mean(0)
    assert (shares[weights == 0] == 0).all() and shares[0, 1].item() == pytest.approx(0.2, abs=0.03)


def test_the_logarithm_of_a_weight_of_zero_is_finite_and_so_is_its_gradient():
    """The entropy of weights with a zero, and its gradient, are those without this position."""
    scores = torch.tensor([2.0, 0.5, -200.0], requires_grad=True)
    weights = scores.softmax(-1)
    assert weights[2] == 0
    entropy = -(weights * log_weights(weights)).sum()
    entropy.backward()
    known = scores.detach()[:2].clone().requires_grad_()
    of_both = torch.distributions.Categorical(logits=known).entropy()
    of_both.backward()
    torch.testing.assert_close(entropy, of_both)
    torch.testing.assert_close(scores.grad, torch.cat([known.grad, torch.zeros(1)]))


def test_the_logarithm_is_finite_in_half_precision_too():
    assert log_weights(torch.zeros(2, dtype=torch.float16)).isfinite().all()
