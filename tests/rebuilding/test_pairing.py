"""Pairs of similar and of random lines."""

import math

import pytest

from zoo.rebuilding.pairing import pair_file

LINES = [
    "a man plays a red guitar",
    "A man is playing the guitar",
    "the dog runs",
    "a dog runs in the park",
    "a cat sleeps",
    "the cat eats",
]


def pairs(tmp_path, lines=LINES, **options):
    (tmp_path / "lines").write_text("\n".join([*lines, "", lines[0]]) + "\n")
    pair_file(str(tmp_path / "lines"), str(tmp_path / "pairs"), **options)
    return [tuple(line.split("\t")) for line in (tmp_path / "pairs").read_text().splitlines()]


def naive_likeness(first, second):
    """Cosine of the shared words, each with the logarithm of its inverse frequency."""
    words = [set(line.lower().split()) for line in LINES]
    weight = {word: math.log(len(LINES) / sum(word in line for line in words)) for word in set().union(*words)}
    one, two = set(first.lower().split()), set(second.lower().split())
    norm = math.prod(math.sqrt(sum(weight[word] ** 2 for word in line)) for line in (one, two))
    return sum(weight[word] ** 2 for word in one & two) / norm


def test_the_most_similar_lines(tmp_path, capsys):
    found = pairs(tmp_path, similar=2, others=0)
    assert capsys.readouterr().out == "12 pairs of 6 lines\n"
    for line in LINES:
        best = sorted((other for other in LINES if other != line), key=lambda other: -naive_likeness(line, other))
        assert {second for first, second in found if first == line} == set(best[:2])


def test_random_ones_too(tmp_path):
    found = pairs(tmp_path, similar=1, others=50)
    assert len(found) == len(set(found)) == 30, "each with each other one"
    assert found != pairs(tmp_path, similar=1, others=50, seed=2), "in random order"
    assert found == pairs(tmp_path, similar=1, others=50)


def test_too_few_lines(tmp_path):
    with pytest.raises(ValueError, match="more than 6 different lines are needed; got 6"):
        pairs(tmp_path, similar=6)
