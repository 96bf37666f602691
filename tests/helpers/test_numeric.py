"""What the numeric tests are held against can fail."""

import pytest
import torch
from numeric import agree
from processors import PROCESSORS, abilities
from torch import nn


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return nn.Linear(8, 8)


@pytest.fixture
def x():
    return torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


def test_the_same_agrees_and_a_slightly_different_one_does_not(layer, x):
    inputs = lambda model: x.to(model.weight.dtype)  # noqa: E731
    agree(layer, lambda model: [(model(inputs(model).flip(0)).flip(0), model(inputs(model)))])
    with pytest.raises(AssertionError, match="pair 0, float64: 1e-07 apart"):
        agree(layer, lambda model: [(model(inputs(model)) + 1e-7, model(inputs(model)))])
    with pytest.raises(AssertionError, match="pair 0, float32: .* apart; rounding explains"):
        agree(layer, lambda m: [(m(inputs(m)) * (1.001 if m.weight.dtype == torch.float32 else 1), m(inputs(m)))])


def test_words_must_be_equal(layer):
    with pytest.raises(AssertionError, match="pair 1: \\[1\\] for \\[2\\]"):
        agree(layer, lambda model: [(model.weight, model.weight), (torch.tensor([1]), torch.tensor([2]))])


def test_a_model_that_is_not_exact_is_found(layer, x):
    with pytest.raises(AssertionError, match="pair 0, float64"):
        agree(layer, lambda model: [(model.float()(x).to(torch.float64), model.double()(x.double()))])


def test_six_processors_at_least_on_one_with_avx2():
    assert sum(p.needs in {"", "SSE4", "AVX", "AVX2"} for p in PROCESSORS) >= 6 and "" in abilities()
    assert (
        len({tuple(p.environment.items()) for p in PROCESSORS}) == len({p.name for p in PROCESSORS}) == len(PROCESSORS)
    )
