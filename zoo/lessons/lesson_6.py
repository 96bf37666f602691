"""Exercises of lesson 6, documents and sentences (Yang et al. 2016, Lin et al. 2017).

Shapes: S words or sentences, D size of a state, K attention size, r hops.
"""

import torch
from torch import Tensor

from zoo.lessons.exercises import Exercise, normal
from zoo.models.han import ContextAttention
from zoo.models.structured_self_attention import HopAttention


def _context_vector(states: Tensor, w: Tensor, b: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    attention = ContextAttention(states.size(1), len(u)).double()
    with torch.no_grad():
        for parameter, value in zip(
            (attention.project.weight, attention.project.bias, attention.context), (w, b, u), strict=True
        ):
            parameter.copy_(value)
        found, weights = attention(states, torch.tensor([len(states)]))
    return found[0], weights


def _context_cases() -> list[tuple[Tensor, ...]]:
    parameters = normal(5, 4, seed=1), normal(5, seed=2), normal(5, seed=3)
    return [(normal(n, 4, seed=n), *parameters) for n in (3, 7)]


def _no_tanh(states: Tensor, w: Tensor, b: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    weights = ((states @ w.T + b) @ u).softmax(0)
    return weights @ states, weights


def _word_importance(sentence_weights: Tensor, word_weights: list[Tensor]) -> Tensor:
    return torch.cat([share * words for share, words in zip(sentence_weights, word_weights, strict=True)])


def _importance_cases() -> list[tuple[Tensor, list[Tensor]]]:
    return [
        (normal(len(sizes), seed=4).softmax(0), [normal(n, seed=n).softmax(0) for n in sizes])
        for sizes in ([3, 1, 5], [2, 2])
    ]


def _hops(states: Tensor, w_s1: Tensor, w_s2: Tensor) -> tuple[Tensor, Tensor]:
    attention = HopAttention(states.size(1), len(w_s1), len(w_s2), dropout=0.0).double()
    with torch.no_grad():
        attention.w_s1.weight.copy_(w_s1)
        attention.w_s2.weight.copy_(w_s2)
        matrix, weights = attention(states, torch.ones(1, len(states), dtype=torch.bool))
    return matrix[0], weights[0]


def _hop_cases() -> list[tuple[Tensor, Tensor, Tensor]]:
    return [(normal(6, 4, seed=5), normal(7, 4, seed=6), normal(3, 7, seed=7))]


def _over_hops(states: Tensor, w_s1: Tensor, w_s2: Tensor) -> tuple[Tensor, Tensor]:
    """The softmax over the wrong axis."""
    weights = (w_s2 @ torch.tanh(w_s1 @ states.T)).softmax(0)
    return weights @ states, weights


def _penalty(a: Tensor) -> float:
    return (a @ a.transpose(-1, -2) - torch.eye(len(a), dtype=a.dtype)).square().sum().item()


def _weight_cases() -> list[tuple[Tensor]]:
    return [(normal(r, 6, seed=r).softmax(-1),) for r in (1, 4)]


def _overlap(a: Tensor) -> float:
    i, j = torch.triu_indices(len(a), len(a), 1)
    return torch.minimum(a[i], a[j]).sum(-1).mean().item()


EXERCISES = {
    "6.1": Exercise(
        "context_vector_attention",
        _context_cases,
        _context_vector,
        [
            ("apply tanh to W h + b", _no_tanh),
            ("return the vector first, then the weights", lambda *given: _context_vector(*given)[::-1]),
        ],
    ),
    "6.2": Exercise(
        "word_importance",
        _importance_cases,
        _word_importance,
        [
            ("multiply each word's weight by that of its sentence", lambda shares, words: torch.cat(words)),
            (
                "a sentence's weight belongs to all of its words; do not divide it by their number",
                lambda shares, words: torch.cat([share * w / len(w) for share, w in zip(shares, words, strict=True)]),
            ),
        ],
    ),
    "6.3": Exercise(
        "hop_attention",
        _hop_cases,
        _hops,
        [
            ("each hop is a distribution over the words: take the softmax over the words", _over_hops),
            ("return M first, then A", lambda *given: _hops(*given)[::-1]),
        ],
    ),
    "6.4": Exercise(
        "penalty",
        _weight_cases,
        _penalty,
        [
            ("the norm is squared: no square root, no absolute values", lambda a: _penalty(a) ** 0.5),
            (
                "the norm is squared: no square root, no absolute values",
                lambda a: (a @ a.T - torch.eye(len(a), dtype=a.dtype)).abs().sum(),
            ),
            ("subtract the identity from A A^T", lambda a: (a @ a.T).square().sum()),
            ("sum over the entries, do not take the mean", lambda a: _penalty(a) / len(a) ** 2),
            (
                "A A^T compares the hops; A^T A compares the words",
                lambda a: (a.T @ a - torch.eye(a.size(1), dtype=a.dtype)).square().sum(),
            ),
        ],
    ),
    "6.5": Exercise(
        "overlap",
        lambda: [(normal(r, 6, seed=r).softmax(-1),) for r in (2, 4)],
        _overlap,
        [
            (
                "take each pair of different hops once, and the mean over these pairs",
                lambda a: _overlap(a) * len(a) * (len(a) - 1) / 2,
            ),
            (
                "leave out the pairs of a hop with itself",
                lambda a: torch.minimum(a[:, None], a[None]).sum(-1).mean(),
            ),
        ],
    ),
}
