"""More training texts: lines are classified by several models, which gives the mean probability of each label.

    python -m zoo.rebuilding.labelling JOB      JOB: a JSON file with the keyword arguments of `label_file`

A model that learns them learns what the models have in common (distillation: Hinton, Vinyals and Dean 2015,
https://arxiv.org/abs/1503.02531), also from texts that nobody has labelled.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from zoo import registry
from zoo.bundles.files import LOCAL_DIR
from zoo.rebuilding.encoder import Text, is_encoder, load_encoder
from zoo.rebuilding.lines import answers, read_lines, run_job
from zoo.utils.atomic import write_text


class Model(NamedTuple):
    """A classifier of texts or of pairs.

    Attributes:
        labels: names of its labels.
        pair: it reads pairs.
        scored: it predicts a score as well.
        ask: texts or pairs -> for each the probability of each label, and the score if any, rounded.
    """

    labels: list[str]
    pair: bool
    scored: bool
    ask: Callable[[Sequence[Text]], list[list[float]]]


def label_file(source: str, target: str, models: Sequence[str], min_probability: float = 0.0) -> None:
    """Writes a table of texts and the mean probability of each label. What each model has answered is saved.

    Args:
        source: file of lines; for models of pairs each has two texts with a tab between them.
        target: file for the columns text (and text2), one for each label, and score if each model predicts one,
            separated by tabs, as `extra_examples` reads it.
        models: names of `zoo list`, or local-dir:FOLDER, of weights or of a sentence encoder, with the same labels.
        min_probability: lines whose most probable label has less are left out.

    Raises:
        ValueError: a model does not classify such lines, or has other labels; or no line is left.
    """
    file = Path(target)
    lines = read_lines(Path(source).read_text(encoding="utf-8"))
    found: list[Model] = []
    columns = []
    for number, name in enumerate(models, 1):
        model = _model(name)
        found.append(model)
        if model.labels != found[0].labels:
            theirs = ", ".join(found[0].labels)
            raise ValueError(f"{name} has the labels {', '.join(model.labels)}, {models[0]} has {theirs}")
        if model.pair != found[0].pair:
            raise ValueError(f"{name} and {models[0]}: one reads pairs of texts, the other one single texts")
        texts = _pairs(source, lines) if model.pair else [line.replace("\t", " ") for line in lines]
        columns.append(answers(file.with_name(f"model{number}"), name, texts, model.ask))
    labels, scored = found[0].labels, all(model.scored for model in found)
    rows = ["\t".join(["text", *["text2"] * found[0].pair, *labels, *["score"] * scored])]
    for line, *given in zip(lines, *columns, strict=True):
        means = [sum(values) / len(given) for values in zip(*(row[: len(labels) + scored] for row in given))]
        if max(means[: len(labels)]) >= min_probability:
            text = line if found[0].pair else line.replace("\t", " ")
            rows.append("\t".join([text, *(f"{value:.4f}" for value in means)]))
    if len(rows) == 1:
        raise ValueError(f"{source}: the models give no label of {len(lines):,} lines {min_probability:g} or more")
    write_text(file, "\n".join(rows) + "\n")
    print(f"{len(rows) - 1:,} of {len(lines):,} lines were labelled")


def _pairs(source: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """The two texts of each line."""
    found = []
    for line in lines:
        first, tab, second = line.partition("\t")
        if not tab or "\t" in second:
            raise ValueError(f"{source}: a pair is two texts with a tab between them; got {line!r:.80}")
        found.append((first, second))
    return found


def _model(name: str) -> Model:
    folder = Path(name.removeprefix(LOCAL_DIR))
    if name.startswith(LOCAL_DIR) and is_encoder(folder):
        encoder = load_encoder(folder)
        return Model(encoder.labels, encoder.pair, encoder.scored, lambda texts: _rounded(encoder.answers(texts)))
    model = registry.load(name)
    if model.task.verb != "classify":
        raise ValueError(f"{name} does not classify texts; it is a model for {model.task.name}")
    scored = bool(model.config.get("relatedness"))

    def ask(texts: Sequence[Text]) -> list[list[float]]:
        results = model.classify(list(texts))  # pyright: ignore[reportCallIssue]
        return _rounded(
            [*result.probabilities.values(), *([result.relatedness] if scored else [])] for result in results
        )

    return Model(list(model.label_names), bool(model.config.get("pair")), scored, ask)  # pyright: ignore[reportArgumentType]


def _rounded(rows: Iterable[list[float]]) -> list[list[float]]:
    return [[round(value, 5) for value in row] for row in rows]


def main(arguments: Sequence[str]) -> int:
    """Runs one job; the exit code is that of `run_job`."""
    return run_job(label_file, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
