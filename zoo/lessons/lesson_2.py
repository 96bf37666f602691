"""Exercises of lesson 2, additive attention (Bahdanau et al. 2015).

Shapes: B batch, T queries, S memory positions, H query, M memory, K attention size.
"""

import torch
from torch import Tensor

from zoo.layers.attention import GlobalAttention
from zoo.layers.masking import masked_softmax
from zoo.layers.scores import ConcatScore, additive_score
from zoo.lessons.exercises import Exercise, normal


def _score_cases() -> list[tuple[Tensor, ...]]:
    return [
        (normal(b, t, k, seed=1), normal(b, s, k, seed=2), normal(k, seed=3))
        for b, t, s, k in [(1, 1, 4, 3), (2, 3, 5, 4)]
    ]


def _softmax_cases() -> list[tuple[Tensor, Tensor]]:
    mask = torch.tensor([[True, True, True, False], [True, False, False, False], [True, True, True, True]])
    some = [(3 * normal(3, 4, seed=4), mask), (1000 * normal(3, 4, seed=5), mask)]
    return [*some, (normal(2, 3, seed=6), torch.tensor([[True, True, False], [False, False, False]]))]


def _split(w: Tensor, query_size: int) -> tuple[Tensor, Tensor]:
    return w[:, :query_size], w[:, query_size:]


def _entropy(weights: Tensor) -> Tensor:
    return torch.special.entr(weights).sum(-1)


def _entropy_cases() -> list[tuple[Tensor]]:
    return [(normal(2, 5, seed=7).softmax(-1),), (torch.eye(3, dtype=torch.float64),)]


def _attend(query: Tensor, memory: Tensor, mask: Tensor, w: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    attention = GlobalAttention(w.size(1), u.size(1), "concat", attention_size=len(v)).double()
    score = attention.score
    assert isinstance(score, ConcatScore)
    with torch.no_grad():
        for parameter, value in zip((score.w_query.weight, score.w_memory.weight, score.v), (w, u, v), strict=True):
            parameter.copy_(value)
        return attention(query, attention.project(memory, mask))


def _attend_cases() -> list[tuple[Tensor, ...]]:
    mask = torch.tensor([[True, True, True, False, False], [True] * 5])
    weights = normal(6, 4, seed=10), normal(6, 3, seed=11), normal(6, seed=12)
    return [(normal(2, 2, 4, seed=8), normal(2, 5, 3, seed=9), mask, *weights)]


EXERCISES = {
    "2.1": Exercise(
        "additive_scores",
        _score_cases,
        additive_score,
        [
            ("apply tanh to the sum of query and key", lambda q, k, v: (q.unsqueeze(2) + k.unsqueeze(1)) @ v),
            (
                "apply tanh once, to the sum of query and key, not to each of them",
                lambda q, k, v: (q.tanh().unsqueeze(2) + k.tanh().unsqueeze(1)) @ v,
            ),
            ("multiply by v after tanh, not before", lambda q, k, v: ((q.unsqueeze(2) + k.unsqueeze(1)) @ v).tanh()),
        ],
    ),
    "2.2": Exercise(
        "softmax_of_real",
        _softmax_cases,
        masked_softmax,
        [
            ("a masked score that is set to 0 still gets weight: exp(0) = 1", lambda s, m: (s * m).softmax(-1)),
            ("the weights of the real positions must sum to 1 again", lambda s, m: s.softmax(-1) * m),
            ("a row without a real position has only zeros", lambda s, m: s.masked_fill(~m, -1e9).softmax(-1)),
            (
                "take the softmax over the positions, the last axis",
                lambda s, m: s.masked_fill(~m, -1e300).softmax(0) * m,
            ),
        ],
    ),
    "2.3": Exercise(
        "split",
        lambda: [(normal(3, 6, seed=13), 2), (normal(5, 7, seed=14), 4)],
        _split,
        [
            ("the query comes first in [s; h], so its columns are the first", lambda w, n: (w[:, n:], w[:, :n])),
            ("split the columns of W, not its rows", lambda w, n: (w[:n], w[n:])),
        ],
    ),
    "2.4": Exercise(
        "entropy",
        _entropy_cases,
        _entropy,
        [
            ("use the natural logarithm", lambda a: _entropy(a) / torch.log(torch.tensor(2.0, dtype=a.dtype))),
            ("the entropy is -sum a log a: mind the sign", lambda a: -_entropy(a)),
            ("sum over the positions, do not take the mean", lambda a: _entropy(a) / a.size(-1)),
        ],
    ),
    "2.5": Exercise(
        "attend",
        _attend_cases,
        _attend,
        [
            (
                "positions where the mask is False must get weight 0",
                lambda q, m, mask, w, u, v: _attend(q, m, torch.ones_like(mask), w, u, v),
            ),
            ("return the context first, then the weights", lambda *arguments: _attend(*arguments)[::-1]),
        ],
    ),
}
