"""The translations of the trainings, counted for the bootstrap."""

from collections.abc import Sequence
from typing import Any

from zoo.comparison.bleu import Counts, Tokens, sentence_counts
from zoo.comparison.results import Row


def output_counts(rows: Sequence[Row], data: Any) -> dict[str, list[Counts]]:
    """Counts of the sentences of the first test set: mechanism -> one array for each seed.

    Mechanisms whose translations are missing, or are of another test set, are left out.

    Args:
        rows: the mechanisms.
        data: the data module, which has the references.
    """
    tokens = Tokens(data.tgt_lang, data.tokenized)
    references = tokens([reference for _, reference in data.test_sets()[0]])
    found = {}
    for row in rows:
        texts = [run.translations() for run in row.runs if run.has_translations]
        fitting = [lines for lines in texts if len(lines) == len(references)]
        if len(fitting) == len(row.runs):
            found[row.name] = [sentence_counts(tokens(lines), references) for lines in fitting]
    return found
