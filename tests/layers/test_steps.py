"""Products inside a loop: what is packed equals what is not, and without a gradient nothing is kept for one."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.layers import scan
from zoo.layers.losses import linear_cross_entropy
from zoo.layers.packed import pack, packed_recurrence
from zoo.layers.scan import lstm_scan
from zoo.layers.steps import row_product, wants_gradient


class Elements(TorchDispatchMode):
    """Counts the elements of the tensors that are made new."""

    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if "empty" in str(func) or "softmax" in str(func):
            self.total += found.numel()
        return found


def elements(function):
    with Elements() as made:
        function()
    return made.total


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("turned", [False, True])
def test_packed_product_equals_the_plain_one(dtype, turned):
    torch.manual_seed(0)
    weight, x = torch.randn(24, 40).to(dtype), torch.randn(5, 40).to(dtype)
    weight = weight.t().contiguous().t() if turned else weight
    want = x.double() @ weight.double().t()
    for packed in (False, True):
        got = row_product(weight, packed)(x)
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), want, rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=1e-4)


def test_gradient_is_wanted_only_where_one_may_follow():
    parameter, other = torch.nn.Parameter(torch.ones(1)), torch.ones(1)
    assert wants_gradient(other, parameter)
    assert not wants_gradient(other)
    with torch.no_grad():
        assert not wants_gradient(other, parameter)


def test_loss_without_a_gradient_makes_none():
    x, weight, bias = torch.randn(300, 4), torch.nn.Parameter(torch.randn(50, 4)), torch.zeros(50)
    with torch.no_grad():
        without = elements(lambda: linear_cross_entropy(x, weight, bias, torch.zeros(300, dtype=torch.int64)))
    with_it = elements(lambda: linear_cross_entropy(x, weight, bias, torch.zeros(300, dtype=torch.int64)))
    assert with_it - without >= 300 * 50


def test_recurrence_without_a_gradient_keeps_less():
    table, weight, packing = torch.randn(6, 12), torch.nn.Parameter(torch.randn(1, 12, 4)), pack(torch.tensor([4, 2]), 1)
    with torch.no_grad():
        without = elements(lambda: packed_recurrence(table, weight, packing))
    assert elements(lambda: packed_recurrence(table, weight, packing)) - without >= 6 * 4


def test_scan_packs_its_weight_only_for_training(monkeypatch):
    asked, plain = [], scan.row_product
    monkeypatch.setattr(scan, "row_product", lambda weight, pack: asked.append(pack) or plain(weight, pack))
    gates, weight, zeros = torch.randn(3, 2, 8), torch.nn.Parameter(torch.randn(8, 2)), torch.zeros(2, 2)
    with torch.no_grad():
        lstm_scan(gates, weight, zeros, zeros)
    assert asked == [False]
    lstm_scan(gates, weight, zeros, zeros)
    assert asked == [False, True]
