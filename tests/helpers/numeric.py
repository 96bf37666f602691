"""Two ways to compute the same must agree: in float64 to 1e-9, in float32 as far as rounding lets them, on every
processor.
"""

import copy
import itertools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

FLOAT32_EPS = torch.finfo(torch.float32).eps
EXACT = 1e-9  # of the largest value, or of 1: float64 leaves a tiny model six digits more
DEPTH = 64  # operations in a row of the deepest model of the tests

Pairs = Callable[[nn.Module], Iterable[tuple[Tensor, Tensor]]]


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference; equal infinities are none, and nothing is as far as not a number."""
    if found.shape != expected.shape:
        raise AssertionError(f"shape {tuple(found.shape)} for {tuple(expected.shape)}")
    difference = (found.double() - expected.double()).abs().masked_fill(found == expected, 0.0)
    return difference.max().nan_to_num(torch.inf).item() if difference.numel() else 0.0


def largest(x: Tensor) -> float:
    """The largest finite value."""
    return x.double().nan_to_num(0.0, 0.0, 0.0).abs().max().item() if x.numel() else 0.0


def agree(model: nn.Module, pairs: Pairs) -> None:
    """Raises AssertionError unless the two tensors of each pair are the same.

    In float64 they must be within 1e-9, and whole numbers (the words that a search found) equal. The scores of a search
    are float32 even if the model is float64, and may differ by `DEPTH` roundings.

    In float32 two ways may round differently, and so may another processor, library or number of threads. The allowed
    difference is measured: each weight is moved at random by up to one rounding (eps), in float64. How far the values
    then move is what one rounding everywhere can do; `DEPTH` times as much is allowed. A fault moves values by
    thousands of times as much.

    Args:
        model: of float32; it is left as it is.
        pairs: computes, with the model that it is given, the same in two ways: any number of (found, expected).
    """
    exact = copy.deepcopy(model).double()
    for number, (found, expected) in enumerate(pairs(exact)):
        if not expected.is_floating_point():
            assert torch.equal(found, expected), f"pair {number}: {found.tolist()} for {expected.tolist()}"
            continue
        assert found.dtype == expected.dtype, f"pair {number}: {found.dtype} and {expected.dtype}"
        limit = EXACT if expected.dtype == torch.float64 else DEPTH * FLOAT32_EPS
        away, bound = distance(found, expected), limit * max(1.0, largest(expected))
        assert away <= bound, f"pair {number}, float64: {away:.2g} apart; allowed are {bound:.2g}"
    moved: list[float] = []
    for number, (found, expected) in enumerate(pairs(model)):
        if not expected.is_floating_point():  # two words of equal probability may change places
            continue
        assert found.dtype == expected.dtype == torch.float32, f"pair {number}: {found.dtype} from weights in float32"
        away, bound = distance(found, expected), DEPTH * FLOAT32_EPS * largest(expected)
        if away > bound:
            moved = moved or rounding(exact, pairs)
            bound += DEPTH * moved[number]
        assert away <= bound, f"pair {number}, float32: {away:.2g} apart; rounding explains {bound:.2g}"


def rounding(exact: nn.Module, pairs: Pairs, draws: int = 2) -> list[float]:
    """How far the expected values of each pair move when each weight is rounded at random by up to `FLOAT32_EPS`."""
    values, found = [expected for _, expected in pairs(exact)], []
    for seed in range(draws):
        generator, near = torch.Generator().manual_seed(seed), copy.deepcopy(exact)
        with torch.no_grad():
            for p in near.parameters():
                p.mul_(1 + FLOAT32_EPS * torch.empty_like(p).uniform_(-1, 1, generator=generator))
        found.append([distance(expected, value) for (_, expected), value in zip(pairs(near), values, strict=True)])
    return list(itertools.starmap(max, zip(*found, strict=True)))
