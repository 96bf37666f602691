"""Additional training texts in a user's own files, with a label each or with the probability of every label."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from zoo.data.classification.arrays import Example, quoted
from zoo.data.common.tables import has_column, read_table


def read_extra(
    file: Path, labels: Sequence[str], pair: bool, multi_label: bool, scored: bool = False
) -> Iterator[Example]:
    """The examples of one file, streamed.

    Args:
        file: a table with a header, see `zoo.data.common.tables`: the column text, for pairs also text2; and either
            label (joined by "|" if there are several), or one column for each of `labels` with its probability.
        labels: all labels.
        pair: examples have two texts.
        multi_label: a text may have several labels; else its probabilities must sum to 1, to about two digits.
        scored: the column score, if there is one, has numbers from 1 to 5.

    Raises:
        ValueError: a column is missing, a label is unknown, or the probabilities are none.
    """
    texts = ["text", *["text2"] * pair]
    scores = ["score"] if scored and has_column(file, "score") else []
    bounds: dict[str, tuple[float, float]] = dict.fromkeys(scores, (1, 5))
    if has_column(file, "label"):
        columns = [*texts, "label", *scores]
        for row in read_table(file, columns, lists=["label"] * multi_label, numbers=bounds):
            given, label, score = row[: len(texts)], row[len(texts)], row[len(texts) + 1 :]
            names = tuple(name.strip() for name in (label if multi_label else [label]))
            if unknown := [name for name in names if name not in labels]:
                raise ValueError(f"{file}: label {unknown[0]!r} is none of the data, which has {quoted(labels)}")
            yield Example(given[0], given[1] if pair else None, names, *score)
        return
    bounds |= dict.fromkeys(labels, (0, 1))
    for row in read_table(file, [*texts, *labels, *scores], numbers=bounds):
        given, values, score = row[: len(texts)], row[len(texts) :][: len(labels)], row[len(texts) + len(labels) :]
        total = math.fsum(values)
        if not multi_label and abs(total - 1) > 0.02:
            raise ValueError(f"{file}: the probabilities of a text must sum to 1; got {total:.3g} of {given[0]!r:.60}")
        scale = 1.0 if multi_label else total
        second = given[1] if pair else None
        yield Example(given[0], second, (), score[0] if score else None, tuple(value / scale for value in values))
