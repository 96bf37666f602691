"""Exercises of lesson 4, local attention (Luong et al. 2015, section 3.2).

Shapes: T queries, S memory positions, H query size.
"""

import torch
from torch import Tensor

from zoo.layers.attention import LocalPredictiveAttention
from zoo.layers.masking import lengths_to_mask, masked_softmax
from zoo.lessons.exercises import Exercise, normal


def _window(length: int, size: int, centre: float, window: int) -> Tensor:
    places = torch.arange(size)
    return ((places - int(centre // 1)).abs() <= window) & (places < length)


def _window_cases() -> list[tuple[int, int, float, int]]:
    return [(5, 10, 4.0, 2), (9, 9, 4.7, 3), (6, 6, 0.9, 1)]


def _position(query: Tensor, w_p: Tensor, v_p: Tensor, length: int) -> Tensor:
    attention = LocalPredictiveAttention(query.size(-1), 2, score="general").double()
    memory = attention.project(query.new_zeros(1, length, 2), lengths_to_mask(torch.tensor([length]), length))
    with torch.no_grad():
        attention.w_p.weight.copy_(w_p)
        attention.v_p.weight.copy_(v_p.unsqueeze(0))
        return attention.aligned_position(query.unsqueeze(0), memory)[0]


def _position_cases() -> list[tuple[Tensor, Tensor, Tensor, int]]:
    return [(normal(t, 4, seed=t), normal(4, 4, seed=2), normal(4, seed=3), length) for t, length in ((1, 7), (5, 20))]


def _near(scores: Tensor, position: Tensor, window: int) -> Tensor:
    return _window(len(scores), len(scores), float(position), window)


def _gaussian(scores: Tensor, position: Tensor, window: int) -> Tensor:
    return torch.exp(-2 * (torch.arange(len(scores)) - position) ** 2 / window**2)


def _local_p(scores: Tensor, position: Tensor, window: int) -> Tensor:
    return masked_softmax(scores, _near(scores, position, window)) * _gaussian(scores, position, window)


def _everywhere(scores: Tensor, position: Tensor, window: int) -> Tensor:
    """The softmax over all positions."""
    return scores.softmax(-1) * _gaussian(scores, position, window)


def _unfloored(scores: Tensor, position: Tensor, window: int) -> Tensor:
    """The window around the real position."""
    near = (torch.arange(len(scores)) - position).abs() <= window
    return masked_softmax(scores, near) * _gaussian(scores, position, window)


def _gaussian_on_scores(scores: Tensor, position: Tensor, window: int) -> Tensor:
    return masked_softmax(scores * _gaussian(scores, position, window), _near(scores, position, window))


def _zeros(scores: Tensor, position: Tensor, window: int) -> Tensor:
    """Masked scores of 0 instead of -inf."""
    return (scores * _near(scores, position, window)).softmax(-1) * _gaussian(scores, position, window)


def _rounded(scores: Tensor, position: Tensor, window: int) -> Tensor:
    """The Gaussian around the rounded position."""
    return _local_p(scores, position.floor(), window)


def _local_cases() -> list[tuple[Tensor, Tensor, int]]:
    return [(normal(12, seed=n), torch.tensor(p, dtype=torch.float64), n) for p, n in ((5.3, 2), (0.6, 3), (11.2, 4))]


def _computed(source: int, target: int, window: int) -> tuple[int, int]:
    places, steps = torch.arange(source), torch.arange(target).unsqueeze(1)
    return source * target, int(((places - steps).abs() <= window).sum())


EXERCISES = {
    "4.1": Exercise(
        "window_mask",
        _window_cases,
        _window,
        [
            (
                "positions beyond the length are padding: False",
                lambda length, size, centre, window: _window(size, size, centre, window),
            ),
            (
                "the window has D positions on both ends of the centre: 2 D + 1 in all",
                lambda length, size, centre, window: _window(length, size, centre, window - 1),
            ),
            (
                "the window is around the whole number at or below the centre",
                lambda length, size, centre, window: _window(length, size, float(round(centre)), window),
            ),
            (
                "the window is around the whole number at or below the centre, not around the centre",
                lambda length, size, centre, window: (
                    ((torch.arange(size) - centre).abs() <= window) & (torch.arange(size) < length)
                ),
            ),
            (
                "positions count from 0: that of number `length` is padding",
                lambda length, size, centre, window: _window(length + 1, size, centre, window),
            ),
        ],
    ),
    "4.2": Exercise(
        "predicted_position",
        _position_cases,
        _position,
        [
            ("the sigmoid is a share: times the length it is a position", lambda h, w, v, n: _position(h, w, v, 1)),
            ("W_p h of each row h is h @ w_p.T", lambda h, w, v, n: _position(h, w.T, v, n)),
            ("apply tanh to W_p h", lambda h, w, v, n: n * torch.sigmoid(h @ w.T @ v)),
            ("positions count from 0 up to the length", lambda h, w, v, n: _position(h, w, v, n) * (n - 1) / n),
        ],
    ),
    "4.3": Exercise(
        "local_p",
        _local_cases,
        _local_p,
        [
            ("take the softmax in the window only", _everywhere),
            ("the window is around the whole number at or below the position", _unfloored),
            ("the Gaussian is missing", lambda e, p, d: masked_softmax(e, _near(e, p, d))),
            ("the Gaussian multiplies the weights, not the scores", _gaussian_on_scores),
            ("a score outside the window is -inf; with 0 it still gets weight", _zeros),
            (
                "sigma is D / 2, and the Gaussian has its square",
                lambda e, p, d: masked_softmax(e, _near(e, p, d)) * torch.exp(-((torch.arange(len(e)) - p) ** 2) / d),
            ),
            (
                "after the Gaussian the weights are not divided by their sum again",
                lambda e, p, d: _local_p(e, p, d) / _local_p(e, p, d).sum(),
            ),
            ("the Gaussian is around the real position; only the window is around the whole number", _rounded),
            (
                "sigma is D / 2, so 1 / (2 sigma^2) is 2 / D^2",
                lambda e, p, d: _local_p(e, p, d) * torch.exp(1.5 * (torch.arange(len(e)) - p) ** 2 / d**2),
            ),
        ],
    ),
    "4.4": Exercise(
        "scores_computed",
        lambda: [(10, 10, 2), (30, 20, 5), (4, 3, 10)],
        _computed,
        [
            (
                "the window ends where the sentence ends: at its edges there are fewer scores",
                lambda source, target, window: (source * target, target * (2 * window + 1)),
            ),
        ],
    ),
}
