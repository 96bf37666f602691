"""Products of a search with packed weights, against plain torch."""

import pytest
import torch
from torch import nn, ops
from torch.nn.functional import linear

from zoo.layers import kernels
from zoo.layers.kernels.packing import PackedProducts
from zoo.layers.kernels.recurrence import packable
from zoo.layers.search import search

SIZES = dict(in_features=512, out_features=600)  # a weight that is worth it

needs_packing = pytest.mark.skipif(not packable(), reason="oneDNN packs no weights on this processor")


@pytest.fixture
def packed(monkeypatch):
    """Counts the weights that are packed."""
    found = []
    monkeypatch.setattr(ops.mkldnn, "_reorder_linear_weight", _counted(ops.mkldnn._reorder_linear_weight, found))
    return found


def _counted(function, found):
    def counted(weight):
        found.append(weight.dtype)
        return function(weight)

    return counted


@needs_packing
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7,), (5, 3), (1, 4)])
def test_equals_the_plain_product(packed, bias, shape):
    layer, x = nn.Linear(**SIZES, bias=bias), torch.randn(*shape, 512)
    with torch.no_grad(), PackedProducts():
        found, again = layer(x), layer(x)
    want = linear(x.double(), layer.weight.double(), layer.bias.double() if bias else None)
    assert torch.equal(found, again) and packed == [torch.float32]
    torch.testing.assert_close(found.double(), want, rtol=1e-5, atol=1e-5)


@needs_packing
def test_in_bf16_where_autocast_says_so(packed):
    if torch.bfloat16 not in packable():
        pytest.skip("oneDNN packs no bf16 here")
    layer, x = nn.Linear(**SIZES), torch.randn(6, 512)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        want = layer(x)
        with PackedProducts():
            found = layer(x)
    assert found.dtype == want.dtype == torch.bfloat16 and packed == [torch.bfloat16]
    torch.testing.assert_close(found, want, rtol=2**-6, atol=2**-6)


def test_what_is_not_packed(packed):
    layer, x = nn.Linear(**SIZES), torch.randn(6, 512)
    small = nn.Linear(512, 8)
    with torch.no_grad(), PackedProducts():
        layer(x[:3]), small(x), layer.double()(x.double()), linear(x, torch.randn(600, 512))
        with kernels.plain("packing"):
            layer.float()(x)
    assert not packed


@needs_packing
def test_a_search_packs_once_and_sees_new_weights(packed):
    torch.manual_seed(0)
    layer, table = nn.Linear(**SIZES), torch.randn(600, 512)

    def step(tokens, state, memory, t):
        return layer(table[tokens]), state, None

    def run(size):
        state = torch.zeros(6, 1)
        return search(step, state, torch.zeros(6), beam_size=size, max_length=5, length_penalty=1.0)

    for size in (1, 5):
        packed.clear()
        found = run(size)
        assert packed == [torch.float32]
        with kernels.plain("packing"):
            plain = run(size)
        assert torch.equal(found.tokens, plain.tokens)
        torch.testing.assert_close(found.scores, plain.scores)
    layer.weight.detach().neg_()
    assert not torch.equal(run(5).tokens, found.tokens)
