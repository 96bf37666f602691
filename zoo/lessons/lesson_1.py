"""Exercises of lesson 1, why one vector is not enough (Sutskever et al. 2014, Luong et al. 2015).

Shapes: B batch, T queries, S memory positions, H size of all vectors.
"""

import torch
from torch import Tensor

from zoo.layers.attention import GlobalAttention
from zoo.layers.masking import lengths_to_mask
from zoo.lessons.exercises import Exercise, normal


def _by_length(lengths: list[int], right: list[bool]) -> dict[int, float]:
    found: dict[int, list[bool]] = {}
    for length, is_right in zip(lengths, right, strict=True):
        found.setdefault(length, []).append(is_right)
    return {length: sum(rights) / len(rights) for length, rights in found.items()}


def _length_cases() -> list[tuple[list[int], list[bool]]]:
    return [([7, 7, 9, 7, 9], [True, False, True, True, True]), ([3, 12], [False, False])]


def _last(memory: Tensor, lengths: Tensor) -> Tensor:
    return memory[torch.arange(len(memory)), lengths - 1]


def _memory_cases() -> list[tuple[Tensor, Tensor]]:
    return [(normal(3, 5, 4, seed=1), torch.tensor([5, 2, 1])), (normal(2, 6, 2, seed=2), torch.tensor([3, 4]))]


def _attend(hidden: Tensor, memory: Tensor, lengths: Tensor) -> Tensor:
    attention = GlobalAttention(hidden.size(-1), memory.size(-1), "dot")
    return attention(hidden, attention.project(memory, lengths_to_mask(lengths, memory.size(1))))[0]


def _attend_cases() -> list[tuple[Tensor, Tensor, Tensor]]:
    return [(normal(len(lengths), 4, memory.size(-1), seed=3), memory, lengths) for memory, lengths in _memory_cases()]


def _plain(hidden: Tensor, memory: Tensor, lengths: Tensor, dim: int = -1) -> Tensor:
    """Without the mask."""
    return (hidden @ memory.transpose(1, 2)).softmax(dim) @ memory


def _zeroed(hidden: Tensor, memory: Tensor, lengths: Tensor) -> Tensor:
    mask = lengths_to_mask(lengths, memory.size(1)).unsqueeze(1)
    return (hidden @ memory.transpose(1, 2) * mask).softmax(-1) @ memory


EXERCISES = {
    "1.1": Exercise(
        "accuracy_by_length",
        _length_cases,
        _by_length,
        [
            (
                "divide by the number of answers of that length, not by the number of all",
                lambda lengths, right: {
                    n: share * lengths.count(n) / len(lengths) for n, share in _by_length(lengths, right).items()
                },
            ),
        ],
    ),
    "1.2": Exercise(
        "last_states",
        _memory_cases,
        _last,
        [
            ("the last column is padding in a short row", lambda memory, lengths: memory[:, -1]),
            (
                "positions count from 0: the last real one is lengths - 1",
                lambda m, n: m[torch.arange(len(m)), n % m.size(1)],
            ),
        ],
    ),
    "1.3": Exercise(
        "attend_by_lengths",
        _attend_cases,
        _attend,
        [
            ("positions from lengths on are padding and must get weight 0", _plain),
            ("a masked score that is set to 0 still gets weight; set it to -inf before the softmax", _zeroed),
            ("there is no square root in this score", lambda h, m, n: _attend(h / h.size(-1) ** 0.5, m, n)),
        ],
    ),
    "1.4": Exercise(
        "numbers_kept",
        lambda: [(96, 4), (512, 50)],
        lambda hidden_size, length: (hidden_size, hidden_size * length),
        [("the model without attention comes first", lambda size, length: (size * length, size))],
    ),
}
