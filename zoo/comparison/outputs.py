"""The outputs of the trainings, counted for the bootstrap."""

from collections.abc import Sequence
from typing import Any

from zoo.comparison.results import Row
from zoo.comparison.tasks.base import ComparedTask, Counts


def output_counts(rows: Sequence[Row], task: ComparedTask, data: Any) -> dict[str, list[Counts]]:
    """Counts of the first test set: mechanism -> one array for each seed.

    Mechanisms whose outputs are missing, or are of another test set, are left out.

    Args:
        rows: the mechanisms.
        task: their task.
        data: the data module, which has the references.
    """
    count = task.counter(data)
    found = {}
    for row in rows:
        counted = [count(run.outputs()) for run in row.runs if run.has_outputs]
        fitting = [counts for counts in counted if counts is not None]
        if len(fitting) == len(row.runs):
            found[row.name] = fitting
    return found
