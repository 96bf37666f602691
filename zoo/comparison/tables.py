"""The tables of the page, in Markdown, and as CSV files."""

import math
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
from zoo.comparison.tasks.base import Score, Shown
from zoo.utils.atomic import write_text

Column = tuple[str, Callable[[Row], str]]


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table, with the first columns aligned to the left."""
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    return "".join(f"| {' | '.join(line)} |\n" for line in [heads, rule, *rows])


def names(
    rows: Sequence[Row], every: Sequence[str], links: Mapping[str, str], has_feeding: bool = True
) -> list[Column]:
    """The first columns of each table: the mechanism, and whether it has input feeding.

    Args:
        rows: the mechanisms of the table.
        every: the names of all recipes; one that has a twin with input feeding says "no".
        links: name -> address of its recipe.
        has_feeding: whether the task has mechanisms with input feeding.
    """
    known = {*every, *(row.name for row in rows)}

    def name(row: Row) -> str:
        plain = f"`{row.name.removesuffix(FEEDING)}`"
        return f"[{plain}]({links[row.name]})" if row.name in links else plain

    def feeding(row: Row) -> str:
        return "yes" if row.name.endswith(FEEDING) else "no" if row.name + FEEDING in known else NONE

    return [("mechanism", name), *([("input feeding", feeding)] if has_feeding else [])]


def main_table(rows: Sequence[Row], timed: Sequence[Row], first: Sequence[Column], found: Bootstrap | None) -> str:
    """Scores, sizes, attention and speed.

    Args:
        rows: in the order of the table.
        timed: those whose speed and memory are shown, with the runs that are compared.
        first: columns that name the mechanism.
        found: the bootstrap, if there is one.
    """
    task = rows[0].task
    parts = task.part_columns([result for row in rows for result in row.results])
    best = {} if found is None or len(found.names) < 2 else dict(zip(found.names, found.ranks()[:, 0]))
    means = {} if found is None else dict(zip(found.names, map(float, found.means)))  # not rounded before
    compared = {row.name: row for row in timed}

    def cell_of_timed(cell: Callable[[Row], str]) -> Callable[[Row], str]:
        return lambda row: cell(compared[row.name]) if row.name in compared else NONE

    speeds: list[Column] = [
        ("tokens/s", lambda row: row.show(0, "training", "tokens_per_second")),
        _shown(task.speed),
        ("memory (MB)", lambda row: row.show(0, "training", "peak_memory_mb")),
    ]
    columns: list[Column] = [
        *first,
        ("seeds", lambda row: str(len(row.results))),
        (f"validation {task.score.name}", lambda row: row.score("validation")),
        (f"test {task.score.name}", lambda row: row.score("test", means.get(row.name))),
        *([("best (%)", lambda row: percent(best.get(row.name)))] if best else []),
        *map(_shown, parts),
        ("parameters", lambda row: f"{row.results[0]['parameters'] / 1e6:.2f} M"),
        ("steps", lambda row: row.show(0, "training", "steps")),
        *map(_shown, task.attention),
        *((head, cell_of_timed(cell)) for head, cell in speeds),
    ]
    return of_columns(columns, rows, len(first))


def _shown(column: Shown) -> Column:
    return column.head, lambda row: row.show(column.digits, *column.keys)


def of_columns(columns: Sequence[Column], rows: Sequence[Row], left: int) -> str:
    """A table from columns; the first ones are aligned to the left."""
    return markdown([head for head, _ in columns], [[cell(row) for _, cell in columns] for row in rows], left)


def percent(share: float | None) -> str:
    return NONE if share is None else "<1" if 0 < share < 0.01 else f"{100 * share:.0f}"


def rank_table(rows: Sequence[Row], first: Sequence[Column], found: Bootstrap) -> str:
    """The standard deviation of the seeds, the share of samples where it is best, and the ranks of 95 % of them."""
    ranks, score = dict(zip(found.names, found.ranks())), rows[0].task.score

    def span(row: Row) -> str:
        sums = np.cumsum(ranks[row.name])
        low, high = (int(np.searchsorted(sums, share)) + 1 for share in (0.025, 0.975))
        return f"{low}–{high}" if low < high else str(low)

    def deviation(row: Row) -> str:
        values = row.scores("test")
        return f"{statistics.stdev(values):.{score.digits}f}" if len(values) > 1 else NONE

    columns: list[Column] = [
        *first,
        (f"test {score.name}", lambda row: f"{found.means[found.names.index(row.name)]:.{score.digits}f}"),
        *([("SD of the seeds", deviation)] if any(len(row.runs) > 1 for row in rows) else []),
        ("best (%)", lambda row: percent(ranks[row.name][0])),
        ("ranks", span),
    ]
    return of_columns(columns, [row for row in rows if row.name in ranks], len(first))


def against(own: Sequence[Row], others: Sequence[Row], found: Bootstrap) -> str:
    """The difference of each own mechanism to each published one, its interval, p, and p corrected for these pairs."""
    lines, digits = [], own[0].task.score.digits
    corrected = found.corrected(pairs=[(row.name, other.name) for row in own for other in others])
    for row in own:
        for other in others:
            difference, low, high = (f"{x:+.{digits}f}" for x in found.difference(row.name, other.name))
            p = [
                f"{x:.3f}" if x >= 0.0005 else "<0.001"
                for x in (found.p_value(row.name, other.name), corrected[row.name, other.name])
            ]
            lines.append([f"`{row.name}`", f"`{other.name}`", difference, f"{low} to {high}", *p])
    return markdown(["mechanism", "against", "difference", "95 %", "p", "p, corrected"], lines, left=2)


def _unordered(known: Mapping[tuple[str, str], float], first: str, second: str) -> tuple[str, str]:
    """The key of a pair where each pair is there once."""
    return (first, second) if (first, second) in known else (second, first)


def time_table(rows: Sequence[Row], first: Sequence[Column], seconds: float) -> str:
    """Validation score after a quarter, half and all of equal training time (the order), and at the end."""
    score = rows[0].task.score

    def reached(row: Row, limit: float) -> list[float]:
        """The best score of each seed by then; [] if one was not validated before."""
        values = [best for run in row.runs if (best := best_by(run, limit)) is not None]
        return values if len(values) == len(row.runs) else []

    def after(limit: float, interval: bool = False) -> Callable[[Row], str]:
        def text(row: Row) -> str:
            if not (values := reached(row, limit)):
                return NONE
            half = half_interval(values) if interval else None
            spread = "" if half is None else f" ± {half:.{score.digits}f}"
            return f"{statistics.fmean(values):.{score.digits}f}{spread}"

        return text

    def order(row: Row) -> tuple[bool, float]:
        values = reached(row, seconds)
        return (not values, score.order(statistics.fmean(values)) if values else 0.0)

    def minutes(row: Row) -> str:
        ends = [run.curve[-1][0] / 60 for run in row.runs if run.curve]
        return f"{statistics.fmean(ends):.1f}" if ends else NONE

    columns = [
        *first,
        *((f"after {limit / 60:.1f} min", after(limit)) for limit in (seconds / 4, seconds / 2)),
        (f"{score.name} after {seconds / 60:.1f} min", after(seconds, interval=True)),
        (f"{score.name} at the end", after(math.inf)),
        ("minutes to the end", minutes),
    ]
    return of_columns(columns, sorted(rows, key=order), len(first))


def size_table(sizes: Mapping[int, Sequence[Row]], first: Callable[[Sequence[Row]], Sequence[Column]]) -> str:
    """Test score by the number of training pairs; the best on the most pairs first."""
    found = {(row.name, size): row for size, rows in sizes.items() for row in rows}
    rows = list({row.name: row for size in sorted(sizes, reverse=True) for row in sizes[size]}.values())

    def cell(size: int) -> Callable[[Row], str]:
        def text(row: Row) -> str:
            there = found.get((row.name, size))
            return NONE if there is None else there.score("test")

        return text

    named = first(rows)
    columns = [*named, *((f"{size:,} pairs", cell(size)) for size in sorted(sizes))]
    return of_columns(columns, rows, len(named))


def search_table(choices: Mapping[str, Mapping[str, Any]], score: Score) -> str:
    """What the search has chosen for each mechanism, with the validation score of all its trials."""
    lines = []
    for name, choice in sorted(choices.items()):
        trials = ", ".join(
            f"{label(trial['options'])}: {NONE if (best := trial[score.key]) is None else f'{best:.{score.digits}f}'}"
            for trial in choice["trials"]
        )
        lines.append([f"`{name}`", label(choice["options"]), trials])
    return markdown(["mechanism", "choice", f"validation {score.name} of the trials"], lines, left=3)


def write_pairs(found: Bootstrap, path: Path) -> Path:
    """Writes a CSV file with a line for each ordered pair: difference, its 95 % interval, p, and p by Holm's method.

    If some have several seeds, also both p with the variance between seeds of each mechanism alone.
    """
    lines, corrected = ["mechanism,other,difference,low,high,p,p_holm"], found.corrected()
    apart = {} if found.apart is None else found.corrected(apart=True)
    lines[0] += ",p_own_variance,p_own_variance_holm" * bool(apart)
    for first, second in permutations(found.names, 2):
        numbers = ",".join(f"{value:.2f}" for value in found.difference(first, second))
        pair = _unordered(corrected, first, second)
        p = [found.p_value(*pair), corrected[pair], *([found.p_value(*pair, apart=True), apart[pair]] if apart else [])]
        lines.append(f"{first},{second},{numbers},{','.join(f'{value:.6f}' for value in p)}")
    write_text(path, "".join(f"{line}\n" for line in lines))
    return path


def write_ranks(found: Bootstrap, path: Path) -> Path:
    """Writes a CSV file with the share of the samples with each rank, a line for each mechanism."""
    lines = [",".join(["mechanism", *(str(rank + 1) for rank in range(len(found.names)))])]
    lines += [
        ",".join([name, *(f"{share:.3f}" for share in shares)]) for name, shares in zip(found.names, found.ranks())
    ]
    write_text(path, "".join(f"{line}\n" for line in lines))
    return path
