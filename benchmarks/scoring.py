"""The examples of a weight's recipe for its verb, and what the answers to them score by the metrics of its card."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import yaml

import zoo.data
from zoo.commands.cards import CARDS
from zoo.data.translation.base import PairData
from zoo.metrics import CaptionScores, ClassScores, CorpusScore, ExactMatch

RECIPES = Path(__file__).parents[1] / "recipes"
# of the scores of a card those that a product in 8 bits could change; the others say the same in another way
MAIN = "bleu", "exact_match", "bleu_4", "cider_d", "accuracy", "micro_f1", "relatedness_pearson", "perplexity"
AT_ONCE = 500  # examples whose results, which hold attention and images, are in memory
Example = tuple[tuple[Any, ...], Any]  # arguments of the verb, and the right answer


def data_of(name: str) -> Any:
    """The data module of a weight's recipe."""
    settings = yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))["data"]
    return getattr(zoo.data, settings["class_path"].rpartition(".")[2])(**settings.get("init_args", {}))


def examples_of(data: Any, model: Any, validation: bool = False) -> dict[str, Iterator[Example]]:
    """The examples of each test set, or those of "validation"."""
    split = "val" if validation else "test"
    if isinstance(data, PairData):
        sets = [data.val_pairs()] if validation else data.test_sets()
        found = [(((source,), target) for source, target in pairs) for pairs in sets]
    elif model.task.name == "captioning":
        files = data.images(split)
        found = [(((content(files, x.image),), x.captions) for x in data.records(split))]
    elif model.task.name == "language modelling":
        found = [iter([(("\n".join(data.lines(split)),), None)])]
    elif model.task.name == "reading":
        found = [(((" ".join(x.document), x.query, x.candidates), x.answer) for x in data.examples(split))]
    else:
        found = [(_classified(x) for x in data.examples_of(split))]
    return dict(zip(["validation"] if validation else data.test_names, found, strict=True))


def content(files: Any, image: str) -> bytes:
    with files.open(image) as file:
        return file.read()


def _classified(example: Any) -> Example:
    given = example.text if example.text2 is None else (example.text, example.text2)
    return (given,), example


# ---- answers: what of a result the metrics need ----


def answers(model: Any, examples: Iterator[Example]) -> tuple[list[Any], list[Any]]:
    """Answers to examples, and the right ones."""
    found, wanted = [], []
    while part := list(islice(examples, AT_ONCE)):
        found += ANSWERS[model.task.name](model, [given for given, _ in part])
        wanted += [right for _, right in part]
    return found, wanted


def _translated(model: Any, given: list[tuple[Any, ...]]) -> list[str]:
    # as for the scores of a card, a text is read as one
    return [found.text for found in model.translate([text for (text,) in given], split_sentences=False)]


def _captioned(model: Any, given: list[tuple[Any, ...]]) -> list[str]:
    return [found.text for found in model.caption([image for (image,) in given])]


def _classes(model: Any, given: list[tuple[Any, ...]]) -> list[tuple[list[float], float | None]]:
    """Probabilities of the labels in the model's order, and the relatedness."""
    return [
        ([found.probabilities[name] for name in model.label_names], getattr(found, "relatedness", None))
        for found in model.classify([text for (text,) in given])
    ]


def _perplexities(model: Any, given: list[tuple[Any, ...]]) -> list[float]:
    return model.perplexity([text for (text,) in given])


def _read(model: Any, given: list[tuple[Any, ...]]) -> list[str | None]:
    """Answers; None for a question that the verb does not take, as its candidates are not in the document."""
    taken = [n for n, question in enumerate(given) if _is_answerable(model, question)]
    found = model.answer(*(list(column) for column in zip(*(given[n] for n in taken))))
    answered = dict(zip(taken, found, strict=True))
    return [answered[n].answer if n in answered else None for n in range(len(given))]


def _is_answerable(model: Any, question: tuple[Any, ...]) -> bool:
    try:
        model.read_question(*question)
    except ValueError:
        return False
    return True


ANSWERS: dict[str, Callable[[Any, list[tuple[Any, ...]]], list[Any]]] = {
    "translation": _translated,
    "captioning": _captioned,
    "classification": _classes,
    "language modelling": _perplexities,
    "reading": _read,
}


# ---- scores ----


def scores(model: Any, data: Any, found: list[Any], wanted: list[Any]) -> dict[str, float]:
    """All scores of answers, by the names of the card."""
    task = model.task.name
    if task == "translation":
        metric = ExactMatch() if data.exact_only else CorpusScore(data.tgt_lang, data.tokenized)
    elif task == "captioning":
        metric = CaptionScores()
    elif task == "classification":
        return _class_scores(model, found, wanted)
    elif task == "language modelling":
        return {"perplexity": found[0]}
    else:
        return {"accuracy": 100 * sum(map(str.__eq__, map(str, found), wanted)) / len(found)}
    metric.update(found, wanted)
    return metric.compute()


def _class_scores(model: Any, found: list[Any], wanted: list[Any]) -> dict[str, float]:
    several, names = model.config["multi_label"], model.label_names
    related = [relatedness for _, relatedness in found if relatedness is not None]
    metric = ClassScores(len(names), several, related=bool(related))
    probabilities = torch.tensor([p for p, _ in found], dtype=torch.float64)
    if several:
        labels = torch.tensor([[float(name in example.labels) for name in names] for example in wanted])
        metric.update(probabilities.logit(), labels)  # the metric takes logits of several labels
    else:
        metric.update(probabilities, torch.tensor([names.index(example.labels[0]) for example in wanted]))
    if metric.relatedness is not None:
        metric.relatedness.update(torch.tensor(related), torch.tensor([example.score for example in wanted]))
    return metric.compute()


# ---- cards ----

HEADING = "### As graphs"
LABELS = {
    "bleu": "BLEU",
    "exact_match": "exact match, %",
    "bleu_4": "BLEU-4",
    "cider_d": "CIDEr-D",
    "accuracy": "accuracy, %",
    "micro_f1": "micro F1, %",
    "relatedness_pearson": "Pearson correlation",
    "perplexity": "perplexity",
}


def shown(metric: str, value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if metric == "relatedness_pearson" else f"{value:.2f}"


def section(
    name: str,
    on_card: Sequence[tuple[str, str, float]],
    found: Mapping[str, tuple[float, Mapping[tuple[str, str], float]]],
    machine: str,
) -> str:
    """The section of a card about the graphs.

    Args:
        name: of the weight.
        on_card: test set, metric and value of the scores above it.
        found: "fp32" and "int8" -> size of the graphs in MB, and (test set, metric) -> value.
        machine: what computed them.
    """
    heads = [LABELS[metric] + ("" if split == "test" else f", {split}") for split, metric, _ in on_card]
    rows = [["", "MB", *heads], ["---", *["---:"] * (len(heads) + 1)]]
    for engine, (size, values) in found.items():
        export = f"`zoo export {name} DIR --format onnx{' --int8' if engine == 'int8' else ''}`"
        of_graphs = [shown(metric, values.get((split, metric))) or "not scored" for split, metric, _ in on_card]
        rows.append([f"{engine}, {export}", f"{size:.1f}", *of_graphs])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    command = f"python benchmarks/runtime.py --scores --int8 --root DATA {name}"
    text = f"{HEADING}\n\nThe same test sets, answered without torch:\n\n{table}\n\n`{command}`\n({machine}).\n"
    return text + "".join(f"\n{line}\n" for line in _moved(on_card, found))


def _moved(
    on_card: Sequence[tuple[str, str, float]], found: Mapping[str, tuple[float, Mapping[tuple[str, str], float]]]
) -> list[str]:
    """A line for each score that 8 bits move by more than a card may keep quiet about."""
    lines = []
    for split, metric, value in on_card:
        of_int8 = found["int8"][1].get((split, metric)) if "int8" in found else None
        change = 0.0 if of_int8 is None else round(of_int8, 2) - value
        if abs(change) > (0.6 if metric == "cider_d" else 0.2):
            lines.append(f"8 bits move {LABELS[metric]} on {split} by {change:+.2f}: see docs/guides/onnx.md.")
    return lines


def write_on_card(name: str, *of_section: Any) -> None:
    """Puts `section` at the end of the scores of a card."""
    path = CARDS / f"{name}.md"
    card = re.sub(rf"(?s){HEADING}\n.*?\n(?=## )", "", path.read_text(encoding="utf-8"))
    before, scores, after = re.split(r"(?s)(\n## Scores\n.*?\n)(?=## )", card, maxsplit=1)
    path.write_text(f"{before}{scores}{section(name, *of_section)}\n{after}", encoding="utf-8")
