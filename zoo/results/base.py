"""What all results share: one line, a picture, a page, JSON-able values, a table, and a view in a notebook.

Their weights are tensors, or NumPy arrays from `zoo.runtime`, which works without torch: nothing here may import it.
"""

import math
import os
from abc import ABC, abstractmethod
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np

from zoo.plots.html import Section, fragment, page
from zoo.plots.style import Drawn, footnote, shortened
from zoo.plots.weights import as_array
from zoo.utils.atomic import write_text
from zoo.utils.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from torch import Tensor
    from typing_extensions import Self

LONGEST = 80  # letters of an answer in `repr`


class ByValue:
    """A dataclass (with `eq=False`) of texts, numbers, arrays, and lists and dicts of these, compared by its values."""

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal, arrays value by value."""
        if type(other) is not type(self):
            return NotImplemented
        return all(
            _equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)  # pyright: ignore[reportArgumentType]
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # its lists and arrays can change


class Result(ByValue, ABC):
    """What a verb answers for one input. As the last line of a notebook's cell it shows where the model looked.

    Attributes:
        confidence: Calibrated probability that the answer is good; None without a calibration.
        warnings: Reasons to doubt the answer.
        explains: Whether the attention explains the answer, as measured for the weight; None if it was not measured.
    """

    confidence: float | None
    warnings: list[str]
    explains: ClassVar[str | None] = None  # no field: verbs set it on what they answer (zoo/verbs/base.py)

    @abstractmethod
    def line(self) -> str:
        """The answer as one line."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""

    @abstractmethod
    def _section(self) -> Section:
        """The answer and the words of `section`."""

    @abstractmethod
    def _drawn(self, path: str | os.PathLike | None, title: str | None) -> Drawn:
        """Draws the picture; see `plot`."""

    @abstractmethod
    def _columns(self) -> dict[str, list]:
        """The columns of `to_pandas`."""

    def to(self, device: Any) -> "Self":
        """This result itself: its arrays stay on the CPU. `Trainer.predict` calls this on what it collects."""
        return self

    def section(self, title: str | None = None) -> Section:
        """This result as a part of a page, see `zoo.page`; without attention it has only its texts.

        Its confidence and its warnings stand below the answer, and whether the attention explains it at the end.

        Args:
            title: What stands above the answer, e.g. the name of the model.
        """
        check_title(title)
        confidence, warnings = self.confidence, self.warnings
        return self._section()._replace(
            above=title or "", confidence=confidence, warnings=tuple(warnings), explains=self.explains
        )

    @overload
    def plot(self, path: None = None, title: str | None = None) -> "Figure": ...
    @overload
    def plot(self, path: str | os.PathLike, title: str | None = None) -> Path: ...
    def plot(self, path: str | os.PathLike | None = None, title: str | None = None) -> "Figure | Path":
        """Draws where the model looked.

        Args:
            path: Image file to write; its suffix gives the format (png, pdf, svg, ...).
            title: What stands above the picture, e.g. the names of the model and of the input.

        Returns:
            `path`; without it the figure of matplotlib, which a notebook shows. No window opens.

        Raises:
            ValueError: There is no attention to draw, or matplotlib is missing.
        """
        check_title(title)
        with footnote(self.explains):
            return self._drawn(path, title)

    @overload
    def to_html(self, path: None = None, title: str | None = None) -> str: ...
    @overload
    def to_html(self, path: str | os.PathLike, title: str | None = None) -> Path: ...
    def to_html(self, path: str | os.PathLike | None = None, title: str | None = None) -> str | Path:
        """Makes a web page that needs no network and no script; `zoo.page` makes one of several results.

        Args:
            path: HTML file to write.
            title: What stands above the answer, e.g. the name of the model.

        Returns:
            `path`; without it the text of the page.
        """
        return written(page([self.section(title)]), path)

    def to_pandas(self) -> "DataFrame":
        """All weights as a tidy table: a row for each pair of words, with their places, or for each weighted word.

        Places count from 0, so that words that occur twice stay apart. A matrix with the words of a translation as
        labels: `table.pivot(index=["target_position", "target"], columns=["source_position", "source"],
        values="weight")`.

        Raises:
            ValueError: There is no attention, or pandas is missing.
        """
        require("tables", "to_pandas()")
        from pandas import DataFrame

        return DataFrame(self._columns())

    def __repr__(self) -> str:
        """The answer without its weights, which would fill the screen; `to_dict` has all fields."""
        confidence, warnings = self.confidence, self.warnings
        parts = [repr(shortened(self.line(), LONGEST))]
        if confidence is not None:
            parts.append(f"confidence={confidence:.2f}")
        if warnings:
            parts.append(f"warnings={warnings!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return fragment(self.section())


def check_title(title: str | None) -> None:
    """Raises TypeError for a title that is no string."""
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be a string; got {type(title).__name__}")


def written(text: str, path: str | os.PathLike | None) -> str | Path:
    """Writes a text into a file and returns its path; without one, returns the text."""
    if path is None:
        return text
    write_text(path, text)
    return Path(path)


def headed(title: str | None, answer: str) -> str:
    """The heading of a picture that does not show the answer itself."""
    return answer if title is None else f"{title} → {answer}"


def attended(attention: "Tensor | None", example: str) -> "Tensor":
    """The attention.

    Raises:
        ValueError: the model has none; names the `example` of one that has.
    """
    if attention is None:
        raise ValueError(f"this model has no attention to plot; load one that has, e.g. {example}")
    return attention


def columns_of_pairs(source: list[str], target: list[str], attention: "Tensor") -> dict[str, list]:
    """Columns of a table with a row for each target word and each source word.

    Args:
        source: S words.
        target: T words.
        attention: (T, S) weights.
    """
    pairs = [(t, s) for t in range(len(target)) for s in range(len(source))]
    return {
        "target_position": [t for t, _ in pairs],
        "target": [target[t] for t, _ in pairs],
        "source_position": [s for _, s in pairs],
        "source": [source[s] for _, s in pairs],
        "weight": as_array(attention).flatten().tolist(),
    }


def rounded(weights: "Tensor", digits: int = 4) -> list:
    """Weights as nested lists of numbers with so many decimals."""
    return (np.rint(as_array(weights) * 10**digits) / 10**digits).tolist()


def finite(score: float) -> float | None:
    """The score, or None (for JSON) if it is not finite: that of a hypothesis that does not exist."""
    return score if math.isfinite(score) else None


def alternatives(n_best: list[tuple[str, float]]) -> dict[str, Any]:
    """`n_best` as JSON-able values, empty unless there are several; those without a score do not exist."""
    if len(n_best) < 2:
        return {}
    return {"n_best": [{"text": text, "score": score} for text, score in n_best if math.isfinite(score)]}


def trust(result: Any) -> dict[str, Any]:
    """`confidence` and `warnings` of a result, as JSON-able values."""
    confidence = result.confidence
    return {"confidence": None if confidence is None else round(confidence, 4), "warnings": result.warnings}


def _equal(one: Any, other: Any) -> bool:
    """Whether two fields of results are equal, arrays and what holds them value by value."""
    if type(one) is not type(other):
        return False
    if hasattr(one, "shape"):
        return one.dtype == other.dtype and np.array_equal(as_array(one), as_array(other), equal_nan=True)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return bool(one == other)
