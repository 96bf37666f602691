"""Pairs of sentences that share rare words, for a model of pairs to label.

python -m zoo.rebuilding.pairing JOB      JOB: a JSON file with the keyword arguments of `pair_file`
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoo.rebuilding.lines import read_lines, run_job
from zoo.utils.atomic import write_text

_BATCH = 256  # lines compared together


def pair_file(source: str, target: str, similar: int = 14, others: int = 2, seed: int = 1) -> None:
    """Writes pairs of lines with a tab between them, in random order.

    Args:
        source: file of lines, each once, whose words have spaces between them.
        target: file to write.
        similar: each line is paired with so many most similar ones: those whose words, weighted by the logarithm of
            their inverse frequency, have the largest cosine.
        others: and with so many random ones.
        seed: selects these, and the order.

    Raises:
        ValueError: there are too few lines.
    """
    lines = list(
        dict.fromkeys(line.replace("\t", " ") for line in read_lines(Path(source).read_text(encoding="utf-8")))
    )
    if len(lines) <= similar:
        raise ValueError(f"{source}: more than {similar} different lines are needed; got {len(lines)}")
    vectors, draws, found = _vectors(lines), random.Random(seed), []
    for start in range(0, len(lines), _BATCH):
        likeness = vectors[start : start + _BATCH] @ vectors.T
        likeness[range(len(likeness)), range(start, start + len(likeness))] = -1
        best = np.argsort(-likeness, axis=1, kind="stable")[:, :similar]
        for i, row in enumerate(best.tolist(), start):
            drawn = (draws.randrange(len(lines)) for _ in range(others))
            found += [f"{lines[i]}\t{lines[j]}" for j in dict.fromkeys([*row, *drawn]) if i != j]
    draws.shuffle(found)
    write_text(Path(target), "\n".join(found) + "\n")
    print(f"{len(found):,} pairs of {len(lines):,} lines")


def _vectors(lines: Sequence[str]) -> np.ndarray:
    """A vector of length 1 for each line: which words it has, the rarer the heavier."""
    words = [set(line.lower().split()) for line in lines]
    ids = {word: i for i, word in enumerate(sorted(set().union(*words)))}
    has = np.zeros((len(lines), len(ids)), np.float32)
    for row, there in zip(has, words, strict=True):
        row[[ids[word] for word in there]] = 1
    has *= np.log(len(lines) / has.sum(axis=0))
    return has / np.linalg.norm(has, axis=1, keepdims=True).clip(1e-9)


def main(arguments: Sequence[str]) -> int:
    """Runs one job; the exit code is that of `run_job`."""
    return run_job(pair_file, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
