"""More training pairs: lines are translated by several models, and the translation is kept that the others agree with.

    python -m zoo.rebuilding.consensus JOB      JOB: a JSON file with the keyword arguments of `translate_file`

What two translations have in common is the Dice coefficient of their character n-grams (n = 2 to 6, lower case); the
first model counts 1.15 times. Lines on which the models do not agree are left out. With one model all of its
translations are kept.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from zoo import registry
from zoo.rebuilding.lines import answers, read_lines, run_job
from zoo.utils.atomic import write_text

FIRST = 1.15  # weight of the first model
BEAM_SIZE, MIN_AGREEMENT, LENGTH_PENALTY = 5, 0.5, 1.2


def ngrams(text: str) -> Counter[str]:
    """What two texts can have in common."""
    text = text.lower()
    return Counter(text[i : i + n] for n in range(2, 7) for i in range(len(text) - n + 1))


def agreement(a: Counter[str], b: Counter[str]) -> float:
    """From 0 (nothing in common) to 1 (the same)."""
    return 2 * sum((a & b).values()) / max(1, sum(a.values()) + sum(b.values()))


def chosen(translations: Sequence[str]) -> tuple[str, float]:
    """The translation that is most like all of them, and its mean likeness to the others (1 if there are none)."""
    found = [ngrams(text) for text in translations]
    table = [[agreement(a, b) for b in found] for a in found]
    totals = [FIRST * row[0] + sum(row[1:]) for row in table]
    best = totals.index(max(totals))
    others = [value for n, value in enumerate(table[best]) if n != best]
    return translations[best], sum(others) / len(others) if others else 1.0


def agreed(
    lines: Sequence[str], columns: Sequence[Sequence[str]], min_agreement: float = MIN_AGREEMENT
) -> Iterator[tuple[str, str]]:
    """Lines and their chosen translations, without those on which the models do not agree.

    Args:
        lines: the source.
        columns: of each model the translations of all lines.
        min_agreement: least agreement of a translation with the others.
    """
    for line, *translations in zip(lines, *columns, strict=True):
        best, value = chosen(translations)
        if best and value >= min_agreement:
            yield line, best


def translations(name: str, lines: Sequence[str], beam_size: int, length_penalty: float) -> list[str]:
    """What a model makes of lines.

    Raises:
        ValueError: the model does not translate.
    """
    model = registry.load(name)
    if model.task.verb != "translate":
        raise ValueError(f"{name} does not translate; it is a model for {model.task.name}")
    found = model.translate(lines, beam_size=beam_size, length_penalty=length_penalty, split_sentences=False)  # pyright: ignore[reportCallIssue]
    return [translation.text for translation in found]


def translate_file(
    source: str,
    target: str,
    models: Sequence[str],
    length_penalties: Sequence[float] = (),
    beam_size: int = BEAM_SIZE,
    min_agreement: float = MIN_AGREEMENT,
) -> None:
    """Writes the pairs on which several models agree. What each has translated is saved, so that it can be resumed.

    Args:
        source: file of lines; a tab in one becomes a space.
        target: file for source and translation, with a tab between them.
        models: names of `zoo list`, or local-dir:FOLDER.
        length_penalties: one for each model; 1.2 if there are none.
        beam_size: of the search.
        min_agreement: least agreement of a translation with the others.
    """
    file = Path(target)
    lines = [line.replace("\t", " ") for line in read_lines(Path(source).read_text(encoding="utf-8"))]
    columns = []
    for number, name in enumerate(models):
        penalty = length_penalties[number] if length_penalties else LENGTH_PENALTY
        columns.append(_column(file.with_name(f"model{number + 1}"), name, lines, beam_size, penalty))
    found = list(agreed(lines, columns, min_agreement))
    if not found:
        raise ValueError(f"{source}: the models agree on none of {len(lines):,} lines")
    write_text(file, "".join(f"{line}\t{best}\n" for line, best in found))
    print(f"{len(found):,} of {len(lines):,} lines were translated alike")


def _column(folder: Path, name: str, lines: Sequence[str], beam_size: int, penalty: float) -> list[str]:
    """The translations by one model."""
    return answers(folder, name, lines, lambda wanted: translations(name, wanted, beam_size, penalty))


def main(arguments: Sequence[str]) -> int:
    """Runs one job; the exit code is that of `run_job`."""
    return run_job(translate_file, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
