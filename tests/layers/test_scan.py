"""The recurrence from a given state against torch's LSTM."""

import pytest
import torch
from torch import nn

from zoo.layers.scan import lstm_scan


def twin(size, hidden):
    """torch's own layer in float64."""
    torch.manual_seed(0)
    return nn.LSTM(size, hidden).double()


def test_outputs_states_and_all_gradients_equal_torch():
    lstm, double = twin(5, 4), {"dtype": torch.float64, "requires_grad": True}
    x, h, c = torch.randn(6, 3, 5, **double), torch.randn(3, 4, **double), torch.randn(3, 4, **double)
    theirs, (_, last) = lstm(x, (h.unsqueeze(0), c.unsqueeze(0)))
    gates = nn.functional.linear(x, lstm.weight_ih_l0, lstm.bias_ih_l0 + lstm.bias_hh_l0)
    states, cells = lstm_scan(gates, lstm.weight_hh_l0, h, c)
    torch.testing.assert_close(states, theirs)
    torch.testing.assert_close(cells[-1], last[0])
    inputs = [x, h, c, *lstm.parameters()]
    grads = [torch.randn_like(states), torch.randn_like(last[0])]
    got = torch.autograd.grad([states, cells[-1]], inputs, grads)
    want = torch.autograd.grad([theirs, last[0]], inputs, grads)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_pieces_of_a_sequence_equal_the_whole():
    torch.manual_seed(1)
    gates, weight, zeros = torch.randn(9, 2, 12), torch.randn(12, 3), torch.zeros(2, 3)
    whole, whole_cells = lstm_scan(gates, weight, zeros, zeros)
    h, c, found = zeros, zeros, []
    for piece in gates.split([1, 5, 3]):
        states, cells = lstm_scan(piece, weight, h, c)
        found.append(states)
        h, c = states[-1], cells[-1]
    assert torch.equal(torch.cat(found), whole) and torch.equal(c, whole_cells[-1])


def test_the_input_is_left_alone():
    gates = torch.randn(2, 3, 8)
    before = gates.clone()
    lstm_scan(gates, torch.randn(8, 2), torch.zeros(3, 2), torch.zeros(3, 2))
    assert torch.equal(gates, before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_near(dtype):
    torch.manual_seed(2)
    gates, weight = torch.randn(7, 4, 32), (torch.randn(32, 8) * 0.3).requires_grad_()
    zeros = torch.zeros(4, 8)
    exact, _ = lstm_scan(gates, weight, zeros, zeros)
    (want,) = torch.autograd.grad(exact.square().sum(), weight)
    with torch.autocast("cpu", dtype):
        states, _ = lstm_scan(gates, weight, zeros, zeros)
    (got,) = torch.autograd.grad(states.square().sum(), weight)
    assert states.dtype == torch.float32 and got.dtype == torch.float32
    torch.testing.assert_close(states, exact, rtol=0, atol=0.02)
    assert (got - want).norm() < 0.02 * want.norm()
