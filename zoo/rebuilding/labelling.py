"""More training texts: lines are classified by several models, which gives the mean probability of each label.

    python -m zoo.rebuilding.labelling JOB      JOB: a JSON file with the keyword arguments of `label_file`

A model that learns them learns what the models have in common (distillation: Hinton, Vinyals and Dean 2015,
https://arxiv.org/abs/1503.02531), also from texts that nobody has labelled.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from zoo import registry
from zoo.rebuilding.lines import answers, read_lines, run_job
from zoo.utils.atomic import write_text


def label_file(source: str, target: str, models: Sequence[str], min_probability: float = 0.0) -> None:
    """Writes a table of texts and the mean probability of each label. What each model has answered is saved.

    Args:
        source: file of lines.
        target: file for the columns text and one for each label, separated by tabs, as `extra_examples` reads it.
        models: names of `zoo list`, or local-dir:FOLDER, with the same labels.
        min_probability: lines whose most probable label has less are left out.

    Raises:
        ValueError: a model does not classify texts, or has other labels; or no line is left.
    """
    file = Path(target)
    lines = read_lines(Path(source).read_text(encoding="utf-8").replace("\t", " "))
    labels: list[str] = []
    columns = []
    for number, name in enumerate(models, 1):
        names, ask = _classifier(name)
        if labels and names != labels:
            raise ValueError(f"{name} has the labels {', '.join(names)}, {models[0]} has {', '.join(labels)}")
        labels = names
        columns.append(answers(file.with_name(f"model{number}"), name, lines, ask))
    rows = ["\t".join(["text", *labels])]
    for line, *found in zip(lines, *columns, strict=True):
        means = [sum(values) / len(found) for values in zip(*found, strict=True)]
        if max(means) >= min_probability:
            rows.append("\t".join([line, *(f"{value:.4f}" for value in means)]))
    if len(rows) == 1:
        raise ValueError(f"{source}: the models give no label of {len(lines):,} lines {min_probability:g} or more")
    write_text(file, "\n".join(rows) + "\n")
    print(f"{len(rows) - 1:,} of {len(lines):,} lines were labelled")


def _classifier(name: str) -> tuple[list[str], Callable[[Sequence[str]], list[list[float]]]]:
    """The labels of a model, and what gives their probabilities for texts."""
    model = registry.load(name)
    if model.task.verb != "classify" or model.config.get("pair"):
        raise ValueError(f"{name} does not classify single texts; it is a model for {model.task.name}")

    def ask(texts: Sequence[str]) -> list[list[float]]:
        results = model.classify(list(texts))  # pyright: ignore[reportCallIssue]
        return [[round(value, 5) for value in result.probabilities.values()] for result in results]

    return list(model.label_names), ask  # pyright: ignore[reportArgumentType]


def main(arguments: Sequence[str]) -> int:
    """Runs one job; the exit code is that of `run_job`."""
    return run_job(label_file, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
