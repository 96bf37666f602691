"""What `zoo compare` must know of a task: its models, its score, and what its tables and pages say.

Lines are the outputs of a model for the examples of a split, as they are stored in validation.txt.gz and test.txt.gz.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zoo.data.common.base import Split

Counts = np.ndarray  # (N, K) float64: what of each of N units of the test set its score is computed from


@dataclass(frozen=True)
class Score:
    """The score by which models are chosen and compared.

    Attributes:
        key: in results and validation curves, e.g. "bleu".
        name: on the page, e.g. "BLEU".
        digits: after the point.
        falls: lower is better.
    """

    key: str
    name: str
    digits: int = 1
    falls: bool = False

    def order(self, value: float) -> float:
        """A sorting key that puts the best first."""
        return value if self.falls else -value

    def best(self, values: Iterable[float]) -> float | None:
        """The best of some values; None if there are none."""
        return min(values, key=self.order, default=None)


class Shown(NamedTuple):
    """A column of the main table: mean of a number of the results over the seeds."""

    head: str
    digits: int
    keys: tuple[str, ...]  # where it is in a result


ENTROPY = (
    Shown("entropy (nats)", 2, ("validation", "attention", "entropy")),
    Shown("relative", 2, ("validation", "attention", "relative_entropy")),
)


class ComparedTask(ABC):
    """A task whose models can be compared.

    Attributes:
        name: as of its models and data modules.
        kinds: what the models are called.
        module: their base class.
        score: see `Score`.
        shape: of what results have besides the common parts, see `check_shape` of zoo/comparison/files.py.
        while_training: how validation in training differs from the evaluation, e.g. " (greedy)".
        has_feeding: some mechanisms are others with input feeding.
        counted: what `tokens` counts.
        unit: what the bootstrap draws.
        attention: columns about the attention.
        speed: column with the speed on the test set.
        cost: the same as a time, e.g. "milliseconds to decode a sentence".
        head: how the page begins, with {data} and {base}.
        legend: lines of the page about the columns, with {uniform}.
        speed_note: line of the page about the two speeds.
    """

    name: ClassVar[str]
    kinds: ClassVar[str]
    module: ClassVar[type]
    score: ClassVar[Score]
    shape: ClassVar[Mapping[str, Any]]
    while_training: ClassVar[str] = ""
    has_feeding: ClassVar[bool] = False
    counted: ClassVar[str]
    unit: ClassVar[str]
    attention: ClassVar[Sequence[Shown]]
    speed: ClassVar[Shown]
    cost: ClassVar[str]
    head: ClassVar[str]
    legend: ClassVar[str]
    speed_note: ClassVar[str]

    def compares(self, cls: Any, options: Mapping[str, Any]) -> bool:
        """Whether models of a class, with these arguments, are of this task."""
        return isinstance(cls, type) and issubclass(cls, self.module)

    # ---- data ----

    def prepare(self, data: Any) -> None:
        """Puts the files of a data module in place, or raises OSError or ValueError."""
        for split in ("train", "val", "test"):
            data.signature(split)  # finds the files

    @abstractmethod
    def examples(self, data: Any, split: Split) -> tuple[list[Any], list[Any]]:
        """Inputs and references of the validation set, or of the first test set."""

    @abstractmethod
    def training_size(self, data: Any) -> int:
        """Number of training examples."""

    @abstractmethod
    def tokens(self, batch: Any) -> int:
        """What a training batch counts for the speed."""

    # ---- a trained model ----

    @abstractmethod
    def answer(self, model: Any, inputs: Sequence[Any]) -> list[Any]:
        """The model's answers, in fp32."""

    @abstractmethod
    def line(self, answer: Any) -> str:
        """An answer as a line."""

    @abstractmethod
    def scores(self, lines: Sequence[str], references: Sequence[Any], data: Any) -> dict[str, float]:
        """The scores of a split, rounded; one is `score`."""

    @abstractmethod
    def attention_measures(self, answers: Sequence[Any]) -> dict[str, float] | None:
        """Means over the answers, rounded; None for a model without attention."""

    def amount(self, answers: Sequence[Any]) -> int:
        """How much was read, in the unit of `speed`."""
        return len(answers)

    def parts(
        self, lines: Sequence[str], inputs: Sequence[Any], references: Sequence[Any], data: Any
    ) -> dict[str, Any]:
        """Further scores of the test set, such as those of parts of it."""
        return {}

    def settings(self, model: Any, data: Any) -> dict[str, Any]:
        """What else belongs into a result: how the model was used, and the version of the score."""
        return {}

    # ---- significance ----

    @abstractmethod
    def counter(self, data: Any) -> Callable[[Sequence[str]], Counts | None]:
        """A function of the lines of a test set that counts each unit; None for those of another test set.

        Args:
            data: the data module, which has the references.
        """

    @abstractmethod
    def total(self, sums: Counts) -> np.ndarray:
        """The score of summed counts: (..., K) -> (...)."""

    # ---- the page ----

    @abstractmethod
    def scored(self, result: Mapping[str, Any]) -> str:
        """How the score was measured, as a line of the page."""

    def part_columns(self, results: Sequence[Mapping[str, Any]]) -> list[Shown]:
        """Columns with the scores of parts of the test set."""
        return []


class RightOrWrong(ComparedTask):
    """A task whose answers are right or wrong: the line of a right one is its reference."""

    def scores(self, lines: Sequence[str], references: Sequence[Any], data: Any) -> dict[str, float]:
        return {self.score.key: round(float(self.total(self.counts(lines, references).sum(0))), 2)}

    def counter(self, data: Any) -> Callable[[Sequence[str]], Counts | None]:
        _, references = self.examples(data, "test")
        return lambda lines: self.counts(lines, references) if len(lines) == len(references) else None

    def counts(self, lines: Sequence[str], references: Sequence[str]) -> Counts:
        """(N, 2): whether the answer is right, and 1."""
        right = [float(line == reference) for line, reference in zip(lines, references, strict=True)]
        return np.stack([np.array(right), np.ones(len(right))], axis=1)

    def total(self, sums: Counts) -> np.ndarray:
        return 100 * sums[..., 0] / np.maximum(sums[..., 1], 1)
