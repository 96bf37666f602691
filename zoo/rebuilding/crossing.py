"""More texts of the kind at hand: the beginning of one and the end of another that share a word.

    python -m zoo.rebuilding.crossing JOB      JOB: a JSON file with the keyword arguments of `cross_file`

"What is the capital of Yugoslavia ?" and "Who is the author of Dracula ?" make "What is the capital of Dracula ?". It
need not make sense: a model labels it, and another one learns that, with many more kinds of sentences than the texts
have.
"""

import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from zoo.rebuilding.lines import read_lines, run_job
from zoo.utils.atomic import write_text

_TRIES = 20  # for each line that is wanted


def cross_file(source: str, target: str, count: int = 60_000, longest: int = 22, seed: int = 1) -> None:
    """Writes crossings of lines, each once, and none of the lines themselves.

    Args:
        source: file of lines whose words have spaces between them.
        target: file to write.
        count: at most so many; fewer where the lines share few words.
        longest: words of a crossing.
        seed: selects lines and words.

    Raises:
        ValueError: no two lines share a word, so that there is none.
    """
    lines = [line.split() for line in read_lines(Path(source).read_text(encoding="utf-8"))]
    places = defaultdict(list)  # word -> lines that it is in, and where; a crossing has a word before and two after it
    for number, line in enumerate(lines):
        for at, word in enumerate(line[1:-2], 1):
            places[word.lower()].append((number, at))
    draws, seen, found = random.Random(seed), {" ".join(line).lower() for line in lines}, []
    candidates = [place for there in places.values() for place in there if len(there) > 1]
    for _ in range(count * _TRIES if candidates else 0):
        number, at = draws.choice(candidates)
        other, there = draws.choice(places[lines[number][at].lower()])
        crossed = [*lines[number][:at], *lines[other][there:]]
        if len(crossed) <= longest and (text := " ".join(crossed)).lower() not in seen:
            seen.add(text.lower())
            found.append(text)
            if len(found) == count:
                break
    if not found:
        raise ValueError(f"{source}: no two lines share a word within them, so that nothing can be crossed")
    write_text(Path(target), "\n".join(found) + "\n")
    print(f"{len(found):,} crossings of {len(lines):,} lines")


def main(arguments: Sequence[str]) -> int:
    """Runs one job; the exit code is that of `run_job`."""
    return run_job(cross_file, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
