"""Exercises of lesson 3, scores and what scaling does (Luong et al. 2015, Vaswani et al. 2017).

Shapes: B batch, T queries, S memory positions, H query, M memory.
"""

import math

import torch
from torch import Tensor

from zoo.layers.scores import GeneralScore, ScaledDotScore
from zoo.lessons.exercises import Exercise, difference, error_hint, normal


def _pairs() -> list[tuple[Tensor, Tensor]]:
    return [(normal(2, 3, 16, seed=1), normal(2, 5, 16, seed=2)), (normal(1, 1, 3, seed=3), normal(1, 4, 3, seed=4))]


def _scaled_dot(query: Tensor, keys: Tensor) -> Tensor:
    score = ScaledDotScore(query.size(-1), keys.size(-1))
    return score(query, score.project(keys))


def _general(query: Tensor, memory: Tensor, w_a: Tensor) -> Tensor:
    score = GeneralScore(query.size(-1), memory.size(-1)).double()
    with torch.no_grad():
        score.w_a.weight.copy_(w_a)
        return score(query, score.project(memory))


def _general_cases() -> list[tuple[Tensor, ...]]:
    square = normal(2, 3, 4, seed=5), normal(2, 5, 4, seed=6), normal(4, 4, seed=7)
    return [square, (normal(2, 3, 4, seed=8), normal(2, 5, 6, seed=9), normal(4, 6, seed=10))]


def _variance(size: int, std_query: float, std_key: float) -> float:
    return size * std_query**2 * std_key**2


def _entropy(scores: Tensor, factor: float) -> float:
    return torch.special.entr((factor * scores).softmax(-1)).sum().item()


def _factor(scores: Tensor, wanted: float) -> float:
    low, high = 0.0, 1.0
    while _entropy(scores, high) > wanted:  # it falls as the factor grows
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _entropy(scores, middle) > wanted else (low, middle)
    return high


def _pull(weights: Tensor, values: Tensor) -> Tensor:
    """d c / d e for c = sum_j alpha_j values_j: alpha_k (values_k - c)."""
    return weights * (values - (weights * values).sum(-1, keepdim=True))


def _pull_cases() -> list[tuple[Tensor, Tensor]]:
    return [(normal(n, seed=n).softmax(-1), normal(n, seed=2 * n)) for n in (3, 6)]


class _Temperature(Exercise):
    """The factor itself is compared roughly, because its digits depend on how it is searched for."""

    def judge(self, answer):
        for scores, wanted in self.cases():
            try:
                factor = answer(scores.clone(), wanted)
            except Exception as error:
                return error_hint(error)
            if hint := difference(factor, self.reference(scores, wanted), float("inf")):
                return hint
            if not 0 < float(factor) < math.inf:
                return f"the factor must be greater than 0 and finite; got {float(factor):.4g}"
            if abs(_entropy(scores, float(factor)) - wanted) > self.tolerance:
                got = _entropy(scores, float(factor))
                return f"with the factor {float(factor):.4g} the entropy is {got:.4f} instead of {wanted}"
        return None


EXERCISES = {
    "3.1": Exercise(
        "scaled_dot",
        _pairs,
        _scaled_dot,
        [
            ("divide by the square root of the size", lambda q, k: q @ k.transpose(1, 2)),
            ("divide by the square root of the size, not by the size", lambda q, k: q @ k.transpose(1, 2) / q.size(-1)),
            (
                "the size is that of a query, the last axis, not the number of positions",
                lambda q, k: q @ k.transpose(1, 2) / k.size(1) ** 0.5,
            ),
        ],
    ),
    "3.2": Exercise(
        "general",
        _general_cases,
        _general,
        [
            (
                "W_a acts on the memory: h_t^T W_a h_s, not h_s^T W_a h_t",
                lambda q, m, w: q @ (m @ w).transpose(1, 2) if w.size(0) == w.size(1) else _general(q, m, w),
            ),
            ("there is no square root in this score", lambda q, m, w: _general(q, m, w) / q.size(-1) ** 0.5),
        ],
    ),
    "3.3": Exercise(
        "variance_of_dot",
        lambda: [(64, 1.0, 1.0), (16, 0.5, 3.0), (7, 2.0, 0.1)],
        _variance,
        [
            ("that is the standard deviation; the variance is its square", lambda n, a, b: _variance(n, a, b) ** 0.5),
            ("the variance of a number with standard deviation s is s squared", lambda n, a, b: n * a * b),
            ("the sum has as many terms as the vectors have entries", lambda n, a, b: a**2 * b**2),
        ],
    ),
    "3.4": Exercise(
        "pull",
        _pull_cases,
        _pull,
        [
            ("the softmax has a second part: raising one score lowers all other weights", lambda a, x: a * x),
            ("subtract the weighted mean of the values, not the plain one", lambda a, x: a * (x - x.mean())),
        ],
    ),
    "3.5": _Temperature(
        "factor_for",
        lambda: [(normal(10, seed=11), 1.0), (5 * normal(6, seed=12), 1.5), (normal(20, seed=13), 0.2)],
        _factor,
        tolerance=1e-3,
    ),
}
