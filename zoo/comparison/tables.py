"""The tables of the page, in Markdown, and as CSV files."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from zoo.comparison.budgets import best_by
from zoo.comparison.jobs import label
from zoo.comparison.results import FEEDING, NONE, Row
from zoo.comparison.significance import Bootstrap, half_interval
from zoo.data.common.files import write_atomically

Column = tuple[str, Callable[[Row], str]]


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table, with the first columns aligned to the left."""
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    return "".join(f"| {' | '.join(line)} |\n" for line in [heads, rule, *rows])


def names(rows: Sequence[Row], every: Sequence[str], links: Mapping[str, str]) -> list[Column]:
    """The first columns of each table: the mechanism, and whether it has input feeding.

    Args:
        rows: the mechanisms of the table.
        every: the names of all recipes; one that has a twin with input feeding says "no".
        links: name -> address of its recipe.
    """
    known = {*every, *(row.name for row in rows)}

    def name(row: Row) -> str:
        plain = f"`{row.name.removesuffix(FEEDING)}`"
        return f"[{plain}]({links[row.name]})" if row.name in links else plain

    def feeding(row: Row) -> str:
        return "yes" if row.name.endswith(FEEDING) else "no" if row.name + FEEDING in known else NONE

    return [("mechanism", name), ("input feeding", feeding)]


def main_table(rows: Sequence[Row], first: Sequence[Column], found: Bootstrap | None) -> str:
    """Scores, sizes, attention and speed.

    Args:
        rows: in the order of the table.
        first: columns that name the mechanism.
        found: the bootstrap, if there is one.
    """
    bins = list(
        dict.fromkeys(words for row in rows for result in row.results for words in result["test"]["bleu_by_length"])
    )
    best = {} if found is None else dict(zip(found.names, found.ranks()[:, 0]))
    columns: list[Column] = [
        *first,
        ("seeds", lambda row: str(len(row.results))),
        ("validation BLEU", lambda row: row.show(1, "validation", "bleu", interval=True)),
        ("test BLEU", lambda row: row.show(1, "test", "bleu", interval=True)),
        *([("best (%)", lambda row: percent(best.get(row.name)))] if best else []),
        *(
            (f"{words} words", lambda row, words=words: row.show(1, "test", "bleu_by_length", words, "bleu"))
            for words in bins
        ),
        ("parameters", lambda row: f"{row.results[0]['parameters'] / 1e6:.2f} M"),
        ("steps", lambda row: row.show(0, "training", "steps")),
        ("entropy (nats)", lambda row: row.show(2, "validation", "attention", "entropy")),
        ("relative", lambda row: row.show(2, "validation", "attention", "relative_entropy")),
        ("diagonal", lambda row: row.show(2, "validation", "attention", "band")),
        ("tokens/s", lambda row: row.show(0, "training", "tokens_per_second")),
        ("sentences/s", lambda row: row.show(0, "decoding_sentences_per_second")),
        ("memory (MB)", lambda row: row.show(0, "training", "peak_memory_mb")),
    ]
    return of_columns(columns, rows)


def of_columns(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """A table from columns; the first two are aligned to the left."""
    return markdown([head for head, _ in columns], [[cell(row) for _, cell in columns] for row in rows], left=2)


def percent(share: float | None) -> str:
    return NONE if share is None else "<1" if 0 < share < 0.01 else f"{100 * share:.0f}"


def rank_table(rows: Sequence[Row], first: Sequence[Column], found: Bootstrap) -> str:
    """The probability of being best, and the ranks that hold 95 % of the probability."""
    ranks = dict(zip(found.names, found.ranks()))

    def span(row: Row) -> str:
        sums = np.cumsum(ranks[row.name])
        low, high = (int(np.searchsorted(sums, share)) + 1 for share in (0.025, 0.975))
        return f"{low}–{high}" if low < high else str(low)

    columns: list[Column] = [
        *first,
        ("test BLEU", lambda row: f"{found.means[found.names.index(row.name)]:.1f}"),
        ("best (%)", lambda row: percent(ranks[row.name][0])),
        ("ranks", span),
    ]
    return of_columns(columns, [row for row in rows if row.name in ranks])


def against(own: Sequence[Row], others: Sequence[Row], found: Bootstrap) -> str:
    """The difference of each own mechanism to each published one, with its interval and p."""
    lines = []
    for row in own:
        for other in others:
            difference, low, high = found.difference(row.name, other.name)
            p = f"{found.p_value(row.name, other.name):.3f}"
            lines.append([f"`{row.name}`", f"`{other.name}`", f"{difference:+.1f}", f"{low:+.1f} to {high:+.1f}", p])
    return markdown(["mechanism", "against", "difference", "95 %", "p"], lines, left=2)


def time_table(rows: Sequence[Row], first: Sequence[Column], seconds: float) -> str:
    """Validation BLEU after equal training time, the best first."""
    reached = {row.name: [best for run in row.runs if (best := best_by(run, seconds)) is not None] for row in rows}

    def bleu(row: Row) -> str:
        values = reached[row.name]
        if not values:
            return NONE
        half = half_interval(values)
        return f"{statistics.fmean(values):.1f}" + ("" if half is None else f" ± {half:.1f}")

    def final(row: Row) -> str:
        values = [max(bleu for _, bleu in run.curve) for run in row.runs if run.curve]
        return f"{statistics.fmean(values):.1f}" if values else NONE

    def minutes(row: Row) -> str:
        ends = [run.curve[-1][0] / 60 for run in row.runs if run.curve]
        return f"{statistics.fmean(ends):.1f}" if ends else NONE

    columns = [*first, ("BLEU by then", bleu), ("BLEU at the end", final), ("minutes to the end", minutes)]
    ordered = sorted(rows, key=lambda row: -statistics.fmean(reached[row.name] or [-1.0]))
    return of_columns(columns, ordered)


def size_table(sizes: Mapping[int, Sequence[Row]], first: Callable[[Sequence[Row]], Sequence[Column]]) -> str:
    """Test BLEU by the number of training pairs; the best on the most pairs first."""
    found = {(row.name, size): row for size, rows in sizes.items() for row in rows}
    rows = list({row.name: row for size in sorted(sizes, reverse=True) for row in sizes[size]}.values())

    def cell(size: int) -> Callable[[Row], str]:
        def text(row: Row) -> str:
            there = found.get((row.name, size))
            return NONE if there is None else there.show(1, "test", "bleu", interval=True)

        return text

    columns = [*first(rows), *((f"{size:,} pairs", cell(size)) for size in sorted(sizes))]
    return of_columns(columns, rows)


def search_table(choices: Mapping[str, Mapping[str, Any]]) -> str:
    """What the search has chosen for each mechanism, with the validation BLEU of all its trials."""
    lines = []
    for name, choice in sorted(choices.items()):
        trials = ", ".join(f"{label(trial['options'])}: {trial['bleu']:.1f}" for trial in choice["trials"])
        lines.append([f"`{name}`", label(choice["options"]), trials])
    return markdown(["mechanism", "choice", "validation BLEU of the trials"], lines, left=3)


def write_pairs(found: Bootstrap, path: Path) -> Path:
    """Writes a CSV file with a line for each ordered pair: difference, its 95 % interval, and p."""
    lines = ["mechanism,other,difference,low,high,p"]
    for first, second in permutations(found.names, 2):
        numbers = ",".join(f"{value:.2f}" for value in found.difference(first, second))
        lines.append(f"{first},{second},{numbers},{found.p_value(first, second):.4f}")
    write_atomically(path, "".join(f"{line}\n" for line in lines))
    return path


def write_ranks(found: Bootstrap, path: Path) -> Path:
    """Writes a CSV file with the probability of each rank, a line for each mechanism."""
    lines = [",".join(["mechanism", *(str(rank + 1) for rank in range(len(found.names)))])]
    lines += [
        ",".join([name, *(f"{share:.3f}" for share in shares)]) for name, shares in zip(found.names, found.ranks())
    ]
    write_atomically(path, "".join(f"{line}\n" for line in lines))
    return path
