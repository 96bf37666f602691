"""Exercises of lesson 8, is attention an explanation? (Jain and Wallace 2019, Wiegreffe and Pinter 2019)."""

import torch
from torch import Tensor

from zoo.lessons.exercises import Exercise, normal


def _probability(words: list[str]) -> float:
    """A classifier for the tests: the parts of "good" and "bad" among the words, and where they stand."""
    value = sum({"good": 2.0, "bad": -1.5, "not": -0.5}.get(word, 0.01 * n) for n, word in enumerate(words))
    return torch.sigmoid(torch.tensor(value, dtype=torch.float64)).item()


def _leave_one_out(probability, words: list[str]) -> Tensor:
    whole = probability(words)
    rest = [probability(words[:n] + words[n + 1 :]) for n in range(len(words))]
    return torch.tensor([whole - one for one in rest], dtype=torch.float64)


def _word_cases() -> list[tuple]:
    return [(_probability, text.split()) for text in ("a good film", "bad , not good , bad", "good")]


def _kendall(a: Tensor, b: Tensor) -> float:
    i, j = torch.triu_indices(len(a), len(a), 1)
    return ((a[i] - a[j]).sign() * (b[i] - b[j]).sign()).double().mean().item()


def _number_cases() -> list[tuple[Tensor, Tensor]]:
    return [(normal(n, seed=n), normal(n, seed=n + 50)) for n in (2, 5, 9)]


def _total_variation(p: Tensor, q: Tensor) -> float:
    return (p - q).abs().sum().item() / 2


def _gain(weights: Tensor, drops: Tensor) -> float:
    return (drops[weights.argmax()] - drops.mean()).item()


def _permuted(weights: Tensor, states: Tensor, order: Tensor) -> Tensor:
    return weights[order] @ states


EXERCISES = {
    "8.1": Exercise(
        "leave_one_out",
        _word_cases,
        _leave_one_out,
        [
            (
                "the drop is what was before minus what is left after",
                lambda probability, words: -_leave_one_out(probability, words),
            ),
            (
                "keep the sign: a word may also speak against the class",
                lambda probability, words: _leave_one_out(probability, words).abs(),
            ),
            (
                "leave out one word at this position only, not each word that is the same",
                lambda probability, words: torch.tensor(
                    [probability(words) - probability([w for w in words if w != word]) for word in words],
                    dtype=torch.float64,
                ),
            ),
        ],
    ),
    "8.2": Exercise(
        "kendall",
        _number_cases,
        _kendall,
        [
            (
                "subtract the pairs in opposite order from those in the same order",
                lambda a, b: (_kendall(a, b) + 1) / 2,
            ),
            (
                "there are n (n - 1) / 2 pairs",
                lambda a, b: _kendall(a, b) / 2,
            ),
        ],
    ),
    "8.3": Exercise(
        "total_variation",
        lambda: [(normal(n, seed=n).softmax(-1), normal(n, seed=n + 1).softmax(-1)) for n in (2, 6)],
        _total_variation,
        [
            ("take half of the sum, so that it is at most 1", lambda p, q: 2 * _total_variation(p, q)),
            ("take the sizes of the differences; the differences themselves sum to 0", lambda p, q: (p - q).sum() / 2),
        ],
    ),
    "8.4": Exercise(
        "gain",
        lambda: [(normal(n, seed=n).softmax(-1), normal(n, seed=n + 9)) for n in (3, 8)],
        _gain,
        [
            ("the drops keep their signs", lambda weights, drops: _gain(weights, drops.abs())),
            (
                "a random word may be the one with the most weight: the mean is over all words",
                lambda weights, drops: _gain(weights, drops) * len(drops) / (len(drops) - 1),
            ),
            ("subtract what a random word gives on average", lambda weights, drops: drops[weights.argmax()]),
            (
                "the word is chosen by its weight, not by its drop",
                lambda weights, drops: drops.max() - drops.mean(),
            ),
        ],
    ),
    "8.5": Exercise(
        "permuted_context",
        lambda: [
            (normal(n, seed=n).softmax(-1), normal(n, 3, seed=n + 2), normal(n, seed=n + 4).argsort()) for n in (4, 7)
        ],
        _permuted,
        [
            ("permute the weights, not the states too: then nothing changes", lambda a, h, order: a @ h),
            (
                "position n gets the weight of position order[n]: index the weights",
                lambda a, h, order: a @ h[order],
            ),
        ],
    ),
}
