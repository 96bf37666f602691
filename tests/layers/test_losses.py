import pytest
import torch
from torch import nn

from zoo.layers import losses
from zoo.layers.losses import linear_cross_entropy


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
