"""Scores of classifiers against loops over the texts, whatever the batches."""

import pytest
import torch

from zoo.metrics import ClassScores

TEXTS, CLASSES = 60, 4


def f1(given, wanted):
    """Of two sets of decisions."""
    return 2 * len(given & wanted) / (len(given) + len(wanted))


def scored(scores, logits, labels, **measures):
    """The scores of texts that come in batches of different size."""
    for rows in torch.arange(len(logits)).split([1, 17, 2, 40]):
        scores.update(logits[rows], labels[rows], **{name: values[rows] for name, values in measures.items()})
    return scores.compute()


def test_one_label():
    torch.manual_seed(0)
    labels = torch.randint(CLASSES, (TEXTS,)).clamp(max=2) + torch.randint(2, (TEXTS,))  # some are more frequent
    logits = torch.randn(TEXTS, CLASSES) + torch.nn.functional.one_hot(labels, CLASSES)
    chosen = [row.index(max(row)) for row in logits.tolist()]
    decisions = [(n, label) for n, label in enumerate(labels.tolist())], list(enumerate(chosen))
    by_class = [[{n for n, found in side if found == label} for side in decisions] for label in range(CLASSES)]
    right = sum(label == found for label, found in zip(labels.tolist(), chosen, strict=True))
    found = scored(ClassScores(CLASSES), logits, labels)
    assert found == pytest.approx(
        {"accuracy": 100 * right / TEXTS, "macro_f1": 100 * sum(f1(*both) for both in by_class) / CLASSES}, rel=1e-6
    )
    assert abs(found["accuracy"] - found["macro_f1"]) > 0.5, "the case says nothing"


def test_any_number_of_labels():
    torch.manual_seed(0)
    labels = (torch.rand(TEXTS, CLASSES) < torch.tensor([0.9, 0.5, 0.4, 0.1])).float()
    logits = torch.randn(TEXTS, CLASSES) + 2 * labels - 1
    assert (labels.sum(1) == 0).any() and (labels.sum(1) > 1).any()
    chosen = [[value > 0 for value in row] for row in logits.tolist()]  # a probability above 0.5
    wanted = [[value == 1 for value in row] for row in labels.tolist()]
    places = [(n, label) for n in range(TEXTS) for label in range(CLASSES)]
    decisions = [{(n, label) for n, label in places if side[n][label]} for side in (wanted, chosen)]
    by_class = [[{place for place in side if place[1] == label} for side in decisions] for label in range(CLASSES)]
    assert scored(ClassScores(CLASSES, multi_label=True), logits, labels) == pytest.approx(
        {
            "micro_f1": 100 * f1(*decisions),
            "macro_f1": 100 * sum(f1(*both) for both in by_class) / CLASSES,
            "exact_match": 100 * sum(a == b for a, b in zip(wanted, chosen, strict=True)) / TEXTS,
        },
        rel=1e-6,
    )


def test_one_label_or_none():
    labels, logits = torch.tensor([[1.0], [1], [0], [0], [1]]), torch.tensor([[2.0], [-1], [3], [-2], [0.5]])
    found = ClassScores(1, multi_label=True)
    found.update(logits[:3], labels[:3])
    found.update(logits[3:], labels[3:])
    f1_of_two_of_three = 100 * 2 / 3  # 2 right of 3 chosen, and of 3 wanted
    assert found.compute() == pytest.approx(
        {"micro_f1": f1_of_two_of_three, "macro_f1": f1_of_two_of_three, "exact_match": 60.0}
    )


def test_further_measures_are_means_over_texts_not_over_batches():
    values = torch.rand(TEXTS, generator=torch.Generator().manual_seed(0))
    found = scored(
        ClassScores(2, measures=["overlap"]), torch.eye(2)[[0] * TEXTS], torch.zeros(TEXTS).long(), overlap=values
    )
    assert found["overlap"] == pytest.approx(values.mean().item(), rel=1e-6)
