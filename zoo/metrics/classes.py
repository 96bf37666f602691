"""Metrics of classifiers; torchmetrics does the counting."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from zoo.metrics.gather import Mean, gathered

if TYPE_CHECKING:
    from torchmetrics import Metric


class Relatedness:
    """Pearson correlation and mean squared error of predicted and human scores, over all texts of all processes."""

    def __init__(self) -> None:
        self._pairs: list[tuple[float, float]] = []

    def update(self, predicted: Tensor, wanted: Tensor) -> None:
        """Adds texts: (B,) each; those whose target is NaN are skipped."""
        known = ~wanted.isnan()
        self._pairs += zip(predicted[known].tolist(), wanted[known].tolist(), strict=True)

    def compute(self) -> dict[str, float]:
        """`relatedness_pearson` (NaN if a side is constant), `relatedness_mse`; {} without texts. Collective call."""
        from torchmetrics.functional import mean_squared_error, pearson_corrcoef  # late: takes a second

        pairs = sorted(gathered(self._pairs))  # sorted: the sum does not depend on the sharding
        if not pairs:
            return {}
        predicted, wanted = torch.tensor(pairs, dtype=torch.float64).T.contiguous()
        varies = all(len(set(side)) > 1 for side in zip(*pairs, strict=True))
        pearson = pearson_corrcoef(predicted, wanted).item() if varies else math.nan
        return {"relatedness_pearson": pearson, "relatedness_mse": mean_squared_error(predicted, wanted).item()}


class ClassScores(nn.Module):
    """Scores of a classifier on a scale of 0 to 100, over all texts of all processes.

    Single label: `accuracy` and `macro_f1` (mean of the classes' F1). Multi-label: `micro_f1` (over all decisions),
    `macro_f1`, and `exact_match`, the share of the texts whose set of labels is exactly right; a label is chosen if its
    probability is above 0.5.

    Args:
        num_classes: C.
        multi_label: a text may have several labels, or none.
        measures: names of further statistics of each text; their means are reported unscaled.
        related: the texts may have a relatedness, too.

    Attributes:
        relatedness: its metric, updated separately; None if not `related`.
    """

    def __init__(
        self, num_classes: int, multi_label: bool = False, measures: Sequence[str] = (), related: bool = False
    ) -> None:
        super().__init__()
        from torchmetrics import classification as metrics  # late: takes a second

        if multi_label and num_classes == 1:
            found = {
                "micro_f1": metrics.BinaryF1Score(),
                "macro_f1": metrics.BinaryF1Score(),
                "exact_match": metrics.BinaryAccuracy(),
            }
        elif multi_label:
            found = {
                "micro_f1": metrics.MultilabelF1Score(num_classes, average="micro"),
                "macro_f1": metrics.MultilabelF1Score(num_classes, average="macro"),
                "exact_match": metrics.MultilabelExactMatch(num_classes),
            }
        else:
            found = {
                "accuracy": metrics.MulticlassAccuracy(num_classes, average="micro"),
                "macro_f1": metrics.MulticlassF1Score(num_classes, average="macro"),
            }
        self.metrics = nn.ModuleDict(found)
        self.measures = {name: Mean() for name in measures}
        self.relatedness = Relatedness() if related else None

    def update(self, logits: Tensor, labels: Tensor, **measures: Tensor) -> None:
        """Adds texts: logits (B, C), labels (B,) ids or (B, C) zeros and ones, further measures (B,)."""
        if labels.dim() == 2:
            logits, labels = logits.sigmoid(), labels.long()
        for metric in self._metrics().values():
            metric.update(logits, labels)
        for name, values in measures.items():
            self.measures[name].update(math.fsum(values.tolist()), len(values))

    def _metrics(self) -> "dict[str, Metric]":
        return cast("dict[str, Metric]", dict(self.metrics.items()))  # declared as modules of any kind

    def compute(self) -> dict[str, float]:
        """The scores and mean measures of all texts so far."""
        scores = {name: 100 * metric.compute().item() for name, metric in self._metrics().items()}
        scores |= {name: mean.compute() for name, mean in self.measures.items()}
        return scores | (self.relatedness.compute() if self.relatedness else {})
