"""What the mechanisms reach with the same training time."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from zoo.comparison.results import Row, Run


def of_one_machine(rows: Sequence[Row]) -> list[Row]:
    """The rows with the runs whose times can be compared: those on the processor or GPU, and with the number of
    threads, that occur in most rows. Rows without such a run are left out.
    """
    settings = [[(run.result["hardware"], run.result["threads"]) for run in row.runs] for row in rows]
    counts = Counter(setting for found in settings for setting in dict.fromkeys(found))
    usual = next((setting for setting, _ in counts.most_common(1)), None)  # of equally many the first
    there = [
        Row(row.name, [run for run, setting in zip(row.runs, found, strict=True) if setting == usual])
        for row, found in zip(rows, settings, strict=True)
    ]
    return [row for row in there if row.runs]


def common_seconds(rows: Sequence[Row]) -> float | None:
    """The time after which the fastest mechanism stopped, mean over its seeds: the longest that all have used."""
    ends = [sum(run.curve[-1][0] for run in row.runs) / len(row.runs) for row in rows if all(x.curve for x in row.runs)]
    return min(ends, default=None)


def best_by(run: Run, seconds: float) -> float | None:
    """The best validation score that a run has reached by then; None before its first validation."""
    return run.task.score.best(value for time, value in run.curve if time <= seconds)


def best_so_far(run: Run, place: str = "seconds") -> list[tuple[float, float]]:
    """The validation curve of a run, with the best score so far; see `Run.validations` for the place."""
    found = run.validations(place)
    best = accumulate((score for _, score in found), lambda *two: min(two, key=run.task.score.order))
    return [(where, score) for (where, _), score in zip(found, best, strict=True)]
