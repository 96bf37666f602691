"""More texts of the kind at hand: words are replaced by others with similar word vectors.

    python -m zoo.rebuilding.variants JOB      JOB: a JSON file with the keyword arguments of `vary_file`

A variant may mean something else than its text ("the capital of Serbia" for "the capital of Yugoslavia"), and need not
make sense: a model labels it, and another one learns that, with many more words than the texts have (TinyBERT: Jiao et
al. 2020, https://arxiv.org/abs/1909.10351).
"""

import random
import re
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from zoo.data.common.files import decompressed
from zoo.rebuilding.lines import read_lines, run_job
from zoo.utils.atomic import write_text

_WORDS = re.compile(r"[a-z][a-z'.-]*|\d[\d.,]*")
_BATCH = 256  # words compared together


def vary_file(
    source: str,
    target: str,
    vectors: str,
    copies: int = 10,
    share: float = 0.5,
    common: int = 150,
    near: int = 15,
    words: int = 80_000,
    seed: int = 1,
) -> None:
    """Writes variants of lines, each once, and none of the lines themselves.

    Args:
        source: file of lines whose words have spaces between them.
        target: file to write.
        vectors: file of word vectors with lower-case words, the frequent ones first, as those of GloVe.
        copies: variants drawn for each line.
        share: probability that a word is replaced.
        common: the most frequent words of the vectors stay.
        near: each of so many nearest words, by cosine, is as likely to replace a word.
        words: the first ones of the vectors are used.
        seed: selects words and their replacements.

    Raises:
        ValueError: the vectors are none, or no word of the lines has one.
    """
    lines = read_lines(Path(source).read_text(encoding="utf-8"))
    nearest = _nearest(lines, *_read(Path(vectors), words), common, near)
    if not nearest:
        raise ValueError(f"{vectors}: none of its first {words:,} words is a word of {source} that may be replaced")
    draws, seen, found = random.Random(seed), {line.lower() for line in lines}, []
    for line in lines:
        for _ in range(copies):
            drawn = [_varied(word, nearest, share, draws) for word in line.split(" ")]
            if (variant := " ".join(drawn)).lower() not in seen:
                seen.add(variant.lower())
                found.append(variant)
    if not found:
        raise ValueError(f"{source}: no variant of a line differs from all lines; give a larger share or more copies")
    write_text(Path(target), "\n".join(found) + "\n")
    print(f"{len(found):,} variants of {len(lines):,} lines")


def _varied(word: str, nearest: dict[str, list[str]], share: float, draws: random.Random) -> str:
    near = nearest.get(word.lower())
    return draws.choice(near) if near and draws.random() < share else word


def _read(file: Path, words: int) -> tuple[list[str], np.ndarray]:
    """The first words of a text file of vectors, and these of length 1."""
    listed, rows = [], []
    with decompressed(file) as content:
        for number, line in enumerate(islice(content, words), 1):
            word, *values = line.decode("utf-8").split()
            try:
                rows.append(np.array(values, np.float32))
                if not values or len(values) != len(rows[0]):
                    raise ValueError(f"{len(values)} numbers, and line 1 has {len(rows[0])}")
            except ValueError as error:
                raise ValueError(f"{file}, line {number}: expected a word and its vector; {error}") from error
            listed.append(word)
    if not rows:
        raise ValueError(f"{file} has no word vectors")
    vectors = np.stack(rows)
    return listed, vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9)


def _nearest(
    lines: Sequence[str], words: list[str], vectors: np.ndarray, common: int, near: int
) -> dict[str, list[str]]:
    """The nearest words of each word of the lines that may be replaced."""
    ids = {word: i for i, word in enumerate(words)}
    there = {word for line in lines for word in line.lower().split(" ")}
    asked = sorted(i for word in there if _WORDS.fullmatch(word) and (i := ids.get(word, -1)) >= common)
    found = {}
    for start in range(0, len(asked), _BATCH):
        some = asked[start : start + _BATCH]
        similar = vectors[some] @ vectors.T
        similar[range(len(some)), some] = -2
        best = np.argpartition(-similar, min(near, len(words) - 1), axis=1)[:, :near]
        for i, row in zip(some, best, strict=True):
            found[words[i]] = [words[j] for j in sorted(row) if _WORDS.fullmatch(words[j])]
    return {word: others for word, others in found.items() if others}


def main(arguments: Sequence[str]) -> int:
    """Runs one job; the exit code is that of `run_job`."""
    return run_job(vary_file, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
