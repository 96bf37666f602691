"""What the mechanisms reach with the same training time."""

from collections import Counter
from collections.abc import Sequence

from zoo.comparison.results import Row, Run


def of_one_machine(rows: Sequence[Row]) -> list[Row]:
    """The rows whose times can be compared: those of the processor or GPU and number of threads that most have."""
    settings = [{(result["hardware"], result["threads"]) for result in row.results} for row in rows]
    counts = Counter(setting for found in settings if len(found) == 1 for setting in found)
    usual = {setting for setting, _ in counts.most_common(1)}  # of equally many the first
    return [row for row, found in zip(rows, settings, strict=True) if found == usual]


def common_seconds(rows: Sequence[Row]) -> float | None:
    """The time after which the fastest mechanism stopped, mean over its seeds: the longest that all have used."""
    ends = [sum(run.curve[-1][0] for run in row.runs) / len(row.runs) for row in rows if all(x.curve for x in row.runs)]
    return min(ends, default=None)


def best_by(run: Run, seconds: float) -> float | None:
    """The best validation score that a run has reached by then; None before its first validation."""
    return run.task.score.best(value for time, value in run.curve if time <= seconds)


def best_so_far(run: Run) -> list[tuple[float, float]]:
    """The validation curve of a run, with the best score so far."""
    return [(time, best) for time, _ in run.curve if (best := best_by(run, time)) is not None]
