"""The outputs of the trainings, counted for the bootstrap."""

from collections.abc import Callable, Sequence

from zoo.comparison.files import RESULT
from zoo.comparison.results import Row, Run
from zoo.comparison.tasks.base import Counts

ROUNDED = 0.02  # scores are stored with two digits


def output_counts(rows: Sequence[Row], count: Callable[[Sequence[str]], Counts | None]) -> dict[str, list[Counts]]:
    """Counts of the first test set: mechanism -> one array for each seed.

    Mechanisms whose outputs are missing, or are of another test set, are left out.

    Args:
        rows: the mechanisms.
        count: counts the lines of a training, see `ComparedTask.counter`.

    Raises:
        ValueError: outputs are damaged, or have another score than the result says.
    """
    found = {}
    for row in rows:
        counted = [count(run.outputs()) for run in row.runs if run.has_outputs]
        fitting = [counts for counts in counted if counts is not None]
        if len(fitting) == len(row.runs):
            for run, counts in zip(row.runs, fitting, strict=True):
                _check_score(run, counts)
            found[row.name] = fitting
    return found


def _check_score(run: Run, counts: Counts) -> None:
    score = run.task.score
    stored, computed = run.result["test"][score.key], float(run.task.total(counts.sum(0)))
    if abs(stored - computed) > ROUNDED:
        raise ValueError(
            f"{run.folder / RESULT} has {stored:.2f} {score.name} on the test set, the outputs beside it have "
            f"{computed:.2f}: one of the two was changed; take both from the same training"
        )
