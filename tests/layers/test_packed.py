"""Flat sequences against torch's packed ones and against naive loops."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from zoo.layers.packed import pack, segment_ids, segment_softmax, segment_sum
from zoo.layers.recurrent import CELLS, RecurrentEncoder

pytestmark = pytest.mark.usefixtures("float64")

TORCH = {"lstm": nn.LSTM, "gru": nn.GRU}


def torch_twin(encoder, name, size, hidden, bidirectional):
    """torch's own layer with the weights of a one-layer encoder."""
    twin = TORCH[name](size, hidden, bidirectional=bidirectional, batch_first=True)
    with torch.no_grad():
        for cell, suffix in zip(encoder.layers[0], ("", "_reverse")):
            getattr(twin, "weight_ih_l0" + suffix).copy_(cell.weight_input)
            getattr(twin, "weight_hh_l0" + suffix).copy_(cell.weight_hidden)
            getattr(twin, "bias_ih_l0" + suffix).copy_(cell.bias)
            getattr(twin, "bias_hh_l0" + suffix).zero_()
    return twin.double()


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_encoder_and_all_its_gradients_equal_torch(name, bidirectional):
    torch.manual_seed(0)
    encoder = RecurrentEncoder(name, 5, 4, bidirectional=bidirectional).double()
    for cell in encoder.layers[0]:
        nn.init.normal_(cell.bias)
    twin = torch_twin(encoder, name, 5, 4, bidirectional)
    lengths = torch.tensor([3, 6, 1, 6, 2])
    x = torch.randn(5, 8, 5, dtype=torch.float64, requires_grad=True)
    ours, (final,) = encoder(x, lengths)
    packed, states = twin(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    theirs, _ = pad_packed_sequence(packed, batch_first=True, total_length=8)
    states = [torch.cat([*s], dim=-1) for s in (states if name == "lstm" else (states,))]
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(list(final), states)

    grads = [torch.randn_like(t) for t in (ours, *final)]
    suffixes = ("", "_reverse")[: len(encoder.layers[0])]
    got = [x, *(getattr(c, n) for c in encoder.layers[0] for n in ("weight_input", "weight_hidden", "bias"))]
    want = [x, *(getattr(twin, n + s) for s in suffixes for n in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"))]
    got = torch.autograd.grad([ours, *final], got, grads)
    want = torch.autograd.grad([theirs, *states], want, grads)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", CELLS)
def test_repeated_items_are_the_same_as_copies(name):
    torch.manual_seed(1)
    encoder = RecurrentEncoder(name, 5, 4, num_layers=2).double()
    table, lengths = torch.randn(3, 5, dtype=torch.float64, requires_grad=True), torch.tensor([4, 0, 2, 1])
    rows = torch.tensor([0, 2, 2, 1, 0, 0, 2])
    short, finals = encoder.flat(table, lengths, rows)
    long, long_finals = encoder.flat(table[rows], lengths)
    torch.testing.assert_close(short, long)
    torch.testing.assert_close(finals[-1][0], long_finals[-1][0])
    assert (finals[-1][0][1] == 0).all()  # of the empty sequence
    grad = torch.randn_like(short)
    (a,), (b,) = torch.autograd.grad(short, [table], grad), torch.autograd.grad(long, [table], grad)
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", CELLS)
def test_nothing_at_all_is_encoded_as_nothing(name):
    encoder = RecurrentEncoder(name, 5, 4)
    memory, finals = encoder.flat(torch.zeros(0, 5), torch.tensor([0, 0]))
    assert memory.shape == (0, 8) and all((part == 0).all() and part.shape == (2, 8) for part in finals[0])
    memory, _ = encoder(torch.zeros(2, 3, 5), torch.tensor([0, 0]))
    assert (memory == 0).all() and memory.shape == (2, 3, 8)


def test_steps_run_the_longest_first_and_read_both_ends():
    packing = pack(torch.tensor([1, 3, 0, 2]))
    assert packing.counts == [3, 2, 1] and packing.ranks.tolist() == [1, 3, 0, 2]
    # flat items: 0 | 1 2 3 | | 4 5; the order of the sequences is 1, 3, 0
    assert packing.order.tolist() == [[1, 4, 0, 2, 5, 3], [3, 5, 0, 2, 4, 1]]
    for order, places in zip(packing.order, packing.places, strict=True):
        assert order[places].tolist() == list(range(6))
    assert packing.last.tolist() == [2, 5, -1, 4]


@pytest.mark.parametrize("name", CELLS)
def test_lower_precision_is_close(name):
    torch.manual_seed(2)
    encoder = RecurrentEncoder(name, 16, 16).float()
    x, lengths = torch.randn(4, 9, 16, dtype=torch.float32), torch.tensor([9, 3, 5, 1])
    exact, _ = encoder(x, lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near, _ = encoder(x, lengths)
    assert 0 < (near - exact).abs().max() < 0.05


def test_segments_equal_a_loop():
    torch.manual_seed(3)
    lengths = torch.tensor([2, 0, 3, 1])
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(6, dtype=torch.float64, requires_grad=True)
    parts = (x * weights.unsqueeze(-1)).split(lengths.tolist())
    want = torch.stack([part.sum(0) for part in parts])
    got = segment_sum(x, weights, lengths)
    torch.testing.assert_close(got, want)
    assert segment_ids(lengths).tolist() == [0, 0, 2, 2, 2, 3]
    grad = torch.randn_like(want)
    for mine, autograds in zip(*(torch.autograd.grad(y, (x, weights), grad) for y in (got, want)), strict=True):
        torch.testing.assert_close(mine, autograds)
    assert segment_sum(x[:0], weights[:0], lengths[:0]).shape == (0, 4)


def test_segment_softmax_equals_a_loop_however_far_apart_the_scores_are():
    torch.manual_seed(4)
    lengths = torch.tensor([3, 0, 1, 2])
    scores = torch.tensor([100.0, 99.0, -100.0, -500.0, 3.0, 3.0], requires_grad=True)
    want = torch.cat([part.softmax(0) for part in scores.split(lengths.tolist())])
    got = segment_softmax(scores, lengths)
    torch.testing.assert_close(got, want)
    grad = torch.randn(6)
    torch.testing.assert_close(torch.autograd.grad(got, scores, grad), torch.autograd.grad(want, scores, grad))
