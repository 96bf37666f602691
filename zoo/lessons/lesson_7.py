"""Exercises of lesson 7, from attention to the Transformer (Vaswani et al. 2017).

Shapes: B batch, H heads, N positions, D model size, d size of a head.
"""

import torch
from torch import Tensor

from zoo.layers.attention import dot_product_attention
from zoo.layers.masking import masked_softmax
from zoo.layers.positions import positions
from zoo.lessons.exercises import Exercise, difference, error_hint, normal


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _causal(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return dot_product_attention(queries, keys, values, None, 0.0, causal=True)


def _everywhere(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return dot_product_attention(queries, keys, values, None, 0.0, causal=False)


def _scores(queries: Tensor, keys: Tensor) -> Tensor:
    return queries @ keys.transpose(-1, -2) * keys.size(-1) ** -0.5


def _weights_cut(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The mask after the softmax."""
    return _scores(queries, keys).softmax(-1).tril() @ values


def _zeros(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Masked scores of 0 instead of -inf."""
    return _scores(queries, keys).tril().softmax(-1) @ values


def _backwards(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Each position attends to itself and to later ones."""
    scores = _scores(queries, keys)
    return masked_softmax(scores, torch.ones_like(scores, dtype=torch.bool).triu()) @ values


def _head_cases() -> list[tuple[Tensor, Tensor, Tensor]]:
    sizes = ((1, 4), (5, 4), (4, 9))  # T and d
    return [tuple(normal(2, 3, n, d, seed=n + part) for part in range(3)) for n, d in sizes]  # type: ignore[misc]


def _alternating(count: int, size: int) -> Tensor:
    return positions(count, size).double()


def _own_rates(count: int, size: int) -> Tensor:
    """Each column has a rate of its own."""
    places = torch.arange(size)
    angles = torch.arange(count, dtype=torch.float64).unsqueeze(1) * 10000.0 ** (-places / size)
    return torch.where(places % 2 == 0, angles.sin(), angles.cos())


ANY = 1e9  # a tolerance that only looks at types and shapes


class _Shift(Exercise):
    """Any matrix is right that maps each position to the one after it by the distance."""

    def judge(self, answer):
        for size, distance in self.cases():
            try:
                matrix = answer(size, distance)
            except Exception as error:
                return error_hint(error)
            if hint := difference(matrix, torch.zeros(size, size), ANY):
                return hint
            table = _exact_positions(30 + distance, size)
            moved = table[:30] @ matrix.double().T
            if torch.allclose(moved, table[distance:], atol=self.tolerance):
                continue
            back = torch.allclose(moved[distance:], table[: 30 - distance], atol=self.tolerance)
            return "that turns the wrong way: it leads to earlier positions" if back else _far(moved, table[distance:])
        return None


def _far(moved: Tensor, wanted: Tensor) -> str:
    return f"the matrix times a position differs from the position wanted by up to {(moved - wanted).abs().max():.3g}"


def _exact_positions(count: int, size: int) -> Tensor:
    """In float64, so that a rotation can be compared exactly."""
    rates = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.arange(count, dtype=torch.float64).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


EXERCISES = {
    "7.1": Exercise(
        "split_heads",
        lambda: [(normal(2, 3, 8, seed=1), 4), (normal(1, 5, 6, seed=2), 2)],
        _split,
        [
            (
                "split the last axis into heads first, then swap two axes; a view alone mixes positions",
                lambda x, heads: x.reshape(len(x), heads, x.size(1), -1),
            ),
            (
                "neighbouring numbers belong to one head: the heads come before their size",
                lambda x, heads: x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2),
            ),
        ],
    ),
    "7.2": Exercise(
        "causal_attention",
        _head_cases,
        _causal,
        [
            ("no position may attend to later ones", _everywhere),
            ("each position attends to itself and to the ones before it, not to those after it", _backwards),
            ("a masked score is -inf; with 0 it still gets weight", _zeros),
            ("set the masked scores to -inf before the softmax, or the rest does not sum to 1", _weights_cut),
            ("divide by the square root of the size of a key", lambda q, k, v: _causal(q * k.size(-1) ** 0.5, k, v)),
        ],
    ),
    "7.3": Exercise(
        "positions",
        lambda: [(7, 8), (40, 4)],
        _alternating,
        [
            (
                "sines and cosines alternate: PE(p, 2i) and PE(p, 2i + 1)",
                lambda n, d: torch.cat([_alternating(n, d)[:, 0::2], _alternating(n, d)[:, 1::2]], dim=-1),
            ),
            ("both numbers of a pair have the same rate, of the exponent 2 i / D", _own_rates),
            ("positions count from 0", lambda n, d: _alternating(n + 1, d)[1:]),
        ],
        tolerance=1e-4,
    ),
    "7.4": _Shift("shift", lambda: [(4, 1), (8, 5)], _exact_positions, tolerance=1e-5),
    "7.5": Exercise(
        "parameters",
        lambda: [(256, 4), (64, 8)],
        lambda size, heads: 4 * size * size,
        [
            ("there is an output matrix too, W^O", lambda size, heads: 3 * size * size),
            (
                "the heads share the size of the model: each has only D / H rows",
                lambda size, heads: 4 * size * size * heads,
            ),
        ],
    ),
}
