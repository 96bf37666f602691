import pytest
import torch
from torch import nn

from zoo.layers import losses
from zoo.layers.losses import linear_cross_entropy, sampled_linear_cross_entropy


@pytest.mark.parametrize("rows", [3, 256])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_equal_torch(smoothing, rows, monkeypatch):
    monkeypatch.setattr(losses, "_ROWS", rows)
    torch.manual_seed(0)
    layer = nn.Linear(4, 5)
    x, labels = (torch.randn(7, 4) * 30).requires_grad_(), torch.tensor([0, 4, 1, 2, 3, 3, 0])
    ours = linear_cross_entropy(x, layer.weight, layer.bias, labels, smoothing)
    theirs = nn.functional.cross_entropy(layer(x), labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    parameters = [x, layer.weight, layer.bias]
    for a, b in zip(torch.autograd.grad(ours * 3, parameters), torch.autograd.grad(theirs * 3, parameters)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_under_autocast_and_without_gradient():
    layer, labels = nn.Linear(4, 5), torch.tensor([0, 4, 1])
    x = torch.randn(3, 4)
    want = linear_cross_entropy(x, layer.weight, layer.bias, labels)
    with torch.autocast("cpu", torch.bfloat16):
        got = linear_cross_entropy(x.bfloat16(), layer.weight, layer.bias, labels)
    got.backward()
    assert got.dtype == layer.weight.grad.dtype == torch.float32
    torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)
    with torch.no_grad():
        torch.testing.assert_close(linear_cross_entropy(x, layer.weight, layer.bias, labels), want)


def test_no_rows():
    assert linear_cross_entropy(torch.empty(0, 4), torch.randn(5, 4), torch.zeros(5), torch.empty(0, dtype=torch.long)) == 0


def test_sampled_softmax_is_right_on_average():
    torch.manual_seed(0)
    x, weight, bias, labels = torch.randn(3, 4), torch.randn(50, 4), torch.randn(50), torch.tensor([0, 33, 49])
    scores = x @ weight.t() + bias

    def norms(**chosen):  # the sum of the softmax of each row: exp(loss) times the exponential of its label's score
        draws = torch.stack([sampled_linear_cross_entropy(x[n : n + 1], weight, bias, labels[n : n + 1], **chosen) for n in range(3)])
        return draws.exp() * scores.gather(1, labels[:, None]).squeeze(1).exp()

    want = scores.exp().sum(1)
    draws = torch.stack([norms(sampled=10) for _ in range(2000)])
    assert (draws.std(0) > 0.05 * want).all()  # it is a sample
    torch.testing.assert_close(draws.mean(0), want, rtol=0.05, atol=0)


@pytest.mark.parametrize("sampled", [9, 10, 100])
def test_sampled_softmax_of_all_words_is_the_whole_one(sampled):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(7, 4, requires_grad=True), torch.randn(10, 4, requires_grad=True), torch.randn(10, requires_grad=True)
    labels = torch.tensor([0, 9, 5, 6, 7, 8, 4])  # with the first four words there is one left, which is drawn
    got, want = sampled_linear_cross_entropy(x, weight, bias, labels, sampled), linear_cross_entropy(x, weight, bias, labels)
    torch.testing.assert_close(got, want)
    for a, b in zip(torch.autograd.grad(got, [x, weight, bias]), torch.autograd.grad(want, [x, weight, bias])):
        torch.testing.assert_close(a, b)


def test_words_outside_the_sample_get_no_gradient():
    weight = torch.randn(1000, 4, requires_grad=True)
    sampled_linear_cross_entropy(torch.randn(5, 4), weight, torch.zeros(1000), torch.tensor([7, 999, 500, 7, 3]), 20).backward()
    seen = weight.grad.abs().sum(1) > 0
    assert seen[:10].all() and seen[[500, 999]].all() and seen.sum() == 10 + 2 + 10
