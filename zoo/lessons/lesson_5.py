"""Exercises of lesson 5, looking at pictures (Xu et al. 2015, Williams 1992).

Shapes: L places of a photo, D size of a feature, T words of a caption.
"""

import torch
from torch import Tensor

from zoo.lessons.exercises import Exercise, normal


def _soft(scores: Tensor, features: Tensor) -> Tensor:
    return scores.softmax(-1) @ features


def _exact(scores: Tensor, rewards: Tensor) -> Tensor:
    alpha = scores.softmax(-1)
    return alpha * (rewards - alpha @ rewards)


def _reward_cases() -> list[tuple[Tensor, Tensor]]:
    return [(normal(n, seed=n), 3 * normal(n, seed=n + 1) - 5) for n in (2, 6)]


def _estimate(scores: Tensor, reward: float, place: int, baseline: float) -> Tensor:
    gradient = -scores.softmax(-1)
    gradient[place] += 1
    return (reward - baseline) * gradient


def _best_baseline(scores: Tensor, rewards: Tensor) -> float:
    """sum_i alpha_i f_i |g_i|^2 / sum_i alpha_i |g_i|^2, g_i = onehot_i - alpha."""
    alpha = scores.softmax(-1)
    weight = alpha * (torch.eye(len(alpha), dtype=alpha.dtype) - alpha).square().sum(-1)
    return ((weight * rewards).sum() / weight.sum()).item()


def _doubly_stochastic(weights: Tensor) -> float:
    return (1 - weights.sum(0)).square().sum().item()


EXERCISES = {
    "5.1": Exercise(
        "soft_context",
        lambda: [(normal(n, seed=n), normal(n, 3, seed=n + 1)) for n in (4, 9)],
        _soft,
        [
            ("take the softmax of the scores first", lambda e, a: e @ a),
            ("sum over the places, do not take the mean of the products", lambda e, a: _soft(e, a) / len(e)),
        ],
    ),
    "5.2": Exercise(
        "exact_gradient",
        _reward_cases,
        _exact,
        [
            (
                "the softmax has a second part: raising one score lowers all other weights",
                lambda e, f: e.softmax(-1) * f,
            ),
            ("subtract the expected reward, the mean with the weights", lambda e, f: e.softmax(-1) * (f - f.mean())),
            ("that is the gradient with respect to the weights, not the scores", lambda e, f: f),
        ],
    ),
    "5.3": Exercise(
        "estimate",
        lambda: [(normal(5, seed=1), -3.0, 2, -4.0), (normal(3, seed=2), 1.5, 0, 0.0)],
        _estimate,
        [
            ("subtract the baseline from the reward", lambda e, reward, place, b: _estimate(e, reward, place, 0.0)),
            (
                "the gradient of log alpha is onehot - alpha, not onehot alone",
                lambda e, reward, place, b: (reward - b) * torch.eye(len(e), dtype=e.dtype)[place],
            ),
            ("that goes downhill: the reward is to grow", lambda *given: -_estimate(*given)),
            (
                "take the gradient of log alpha, not of alpha",
                lambda e, reward, place, b: _estimate(e, reward, place, b) * e.softmax(-1)[place],
            ),
        ],
    ),
    "5.4": Exercise(
        "best_baseline",
        _reward_cases,
        _best_baseline,
        [
            (
                "the expected reward is nearly the best, but not quite: places with a large gradient count more",
                lambda e, f: e.softmax(-1) @ f,
            ),
            ("the places are drawn with their weights; take the means with these", lambda e, f: f.mean()),
        ],
    ),
    "5.5": Exercise(
        "doubly_stochastic",
        lambda: [(normal(t, 4, seed=t).softmax(-1),) for t in (3, 6)],
        _doubly_stochastic,
        [
            ("sum the weights over the words, the first axis", lambda a: (1 - a.sum(-1)).square().sum()),
            ("sum over the places, do not take the mean", lambda a: (1 - a.sum(0)).square().mean()),
            ("square each difference, then sum", lambda a: (1 - a.sum(0)).sum() ** 2),
        ],
    ),
}
