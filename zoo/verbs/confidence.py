"""Confidence and warnings: how far an answer can be trusted, as measured on validation data.

A calibration belongs to a weight and is saved beside it as calibration.json. It turns the evidence for an answer, such
as the mean log-probability of its words, into the probability of an event: that a label or a date is right, that a
translation has a chrF of 50. The map is a logistic regression (Platt 1999), which one half of the validation data fits;
the other half measures its expected calibration error (Naeini et al. 2015).
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from zoo.text import Tokenizer
from zoo.text.dates import NO_DATE, tells
from zoo.text.familiar import NAMES, languages_of, other_language
from zoo.utils import strict_json

CALIBRATION = "calibration.json"  # its file name in a folder of weights
BINS = 10  # of the expected calibration error
NO_WORDS = "the text has no words"
LOW_CONFIDENCE = "low confidence"  # so begins the warning
UNUSUAL = 0.005  # share of the validation inputs that have a lower confidence, or fewer known words, than the limits
DOUBTFUL = 0.5  # a higher confidence is never called low
MOST_KNOWN = 0.9  # a higher share of known words is never called low
LEAST_KNOWN = 0.6  # share of known words, without a calibration: two words of which none is known have 0.5
MOST_EVIDENCE = 8  # kinds of evidence in a file
_STUTTER = re.compile(r"(\S{1,12}?)\1{19}")
_SMOOTHING = 1e-3  # weight of the penalty that keeps the regression finite where the classes are separable
_STEPS = 100  # of Newton's method, which converges in about ten

Answers = Literal["text", "date"]
R = TypeVar("R")


@dataclass(frozen=True)
class Evidence:
    """What is known of an answer without its reference.

    Attributes:
        values: numbers that tell good answers from bad ones, e.g. `{"score": -0.2}`.
        known: share of the words of the input that the vocabulary has; None if there are none, as in images.
        text: the input as text, for its language.
        answer: the output as text; None if it was given.
        notes: warnings that do not depend on a calibration.
        vocabulary: tokenizer of the input; without a calibration its words tell which languages the model reads.
    """

    values: dict[str, float]
    known: float | None = None
    text: str | None = None
    answer: str | None = None
    notes: tuple[str, ...] = ()
    vocabulary: Tokenizer | None = None


@dataclass(frozen=True)
class Calibration:
    """The map from evidence to a probability, and what is usual for the validation data of a weight.

    Attributes:
        event: what the confidence is the probability of, as part of a sentence.
        bias: of the logistic regression.
        weights: of the logistic regression, by the name of the evidence.
        low_confidence: a lower confidence gets a warning.
        least_known: a smaller share of known words gets a warning.
        language: ISO 639 code of the input; None if there is none to tell.
        answers: "date": an output has confidence 0 unless it is a date of the form YYYY-MM-DD whose day, month and year
            are in the input, as numbers or in words.
        exact: the event is that the answer is exactly right.
        examples: validation examples that the map was fitted on, and as many that it was measured on.
        error: expected calibration error on the latter.
    """

    event: str
    bias: float
    weights: dict[str, float]
    low_confidence: float
    least_known: float
    language: str | None = None
    answers: Answers = "text"
    exact: bool = False
    examples: int = 0
    error: float = 0.0

    def confidence(self, evidence: Evidence) -> float | None:
        """The probability of the event; None if a value is missing or not finite, or the answer was given."""
        if self.answers == "date" and evidence.answer is None:
            return None
        if self.answers == "date" and _fault_of_date(evidence):
            return 0.0
        total = self.bias
        for name, weight in self.weights.items():
            total += weight * evidence.values.get(name, math.nan)
        return None if math.isnan(total) else _sigmoid(total)

    def to_json(self) -> str:
        """The text of calibration.json."""
        return json.dumps(asdict(self), indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """The inverse of `to_json`.

        Raises:
            ValueError: it is not JSON, or does not have exactly the fields with values of their types.
        """
        try:
            found = strict_json.loads(text, MOST_EVIDENCE)
        except ValueError as error:
            raise ValueError(f"{CALIBRATION} is not JSON: {error}") from error
        if not isinstance(found, dict) or found.keys() != set(_CHECKS):
            raise ValueError(f"{CALIBRATION} must have exactly the fields {', '.join(_CHECKS)}")
        if wrong := next((name for name, is_valid in _CHECKS.items() if not is_valid(found[name])), None):
            raise ValueError(f"{CALIBRATION}: {wrong} has a value that is not allowed: {found[wrong]!r:.100}")
        return cls(**found)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e6


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


_CHECKS = {
    "event": lambda value: isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable(),
    "bias": _is_number,
    "weights": lambda value: (
        isinstance(value, dict) and len(value) <= MOST_EVIDENCE and all(map(_is_number, value.values()))
    ),
    "low_confidence": _is_share,
    "least_known": _is_share,
    "language": lambda value: value is None or value in [*NAMES],
    "answers": lambda value: value in get_args(Answers),
    "exact": lambda value: isinstance(value, bool),
    "examples": lambda value: type(value) is int and 0 <= value < 1e9,
    "error": _is_share,
}


def trusted(result: R, calibration: Calibration | None, evidence: Evidence) -> R:
    """A result with its confidence (None without a calibration) and its warnings."""
    confidence = None if calibration is None else calibration.confidence(evidence)
    found = warnings_of(calibration, evidence)
    return replace(result, confidence=confidence, warnings=found)  # pyright: ignore[reportArgumentType,reportCallIssue]


def warnings_of(calibration: Calibration | None, evidence: Evidence) -> list[str]:
    """Reasons to doubt an answer, each a short phrase."""
    found = [*evidence.notes]
    if evidence.answer == "" and (evidence.text or "").strip():
        found.append("the answer is empty")
    if evidence.answer and _repeats(evidence.answer):
        found.append("the answer repeats itself")
    least = LEAST_KNOWN if calibration is None else calibration.least_known
    if evidence.known is not None and evidence.known < least:
        found.append("the model knows few of the words")
    if evidence.text and (fault := _fault_of_language(calibration, evidence.text, evidence.vocabulary)):
        found.append(fault)
    if calibration is None:
        return found
    confidence = calibration.confidence(evidence)
    if calibration.answers == "date" and evidence.answer is not None and (fault := _fault_of_date(evidence)):
        found.append(fault)
    elif confidence is not None and confidence < calibration.low_confidence:
        found.append(f"{LOW_CONFIDENCE} ({confidence:.2f})")
    return found


def _fault_of_language(calibration: Calibration | None, text: str, vocabulary: Tokenizer | None) -> str | None:
    """Why a text is not in the language that a model reads: that of its calibration, else one of its vocabulary."""
    if calibration is not None:
        read = [calibration.language] if calibration.language else []
    else:
        read = [] if vocabulary is None else languages_of(vocabulary)
    found = [other_language(text, language) for language in read]
    if not read or None in found:
        return None
    return f"the text looks {found[0]}; the model reads {' and '.join(NAMES[language] for language in read)}"


def _repeats(answer: str) -> bool:
    """Whether some four words stand in a text four times or more, or the same few characters twenty times in a row."""
    if _STUTTER.search(answer):
        return True
    words = answer.split()
    counts = Counter(zip(words, words[1:], words[2:], words[3:]))
    return max(counts.values(), default=0) >= 4


def is_withheld(calibration: Calibration | None, confidence: float | None) -> bool:
    """Whether `zoo predict` shows no answer: one that should be exactly right, such as a date, has a low confidence."""
    if calibration is None or confidence is None:
        return False
    return calibration.exact and confidence < calibration.low_confidence


# ---- fitting ----


@dataclass
class Judged:
    """Answers whose references are known."""

    evidence: list[Evidence] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)

    def add(self, evidence: Evidence, right: bool) -> None:
        """Adds an answer; `right` says whether the event happened."""
        self.evidence.append(evidence)
        self.right.append(right)

    def halves(self) -> tuple["Judged", "Judged"]:
        """Two random halves, always the same."""
        order = np.random.default_rng(0).permutation(len(self.right)).tolist()
        middle = len(order) // 2
        first, second = (
            Judged([self.evidence[n] for n in rows], [self.right[n] for n in rows])
            for rows in (order[:middle], order[middle:])
        )
        return first, second


def fitted(judged: Judged, event: str, **facts: Any) -> Calibration:
    """The map that explains answers best, without limits.

    Args:
        judged: answers with their references; of both kinds, right and wrong.
        event: what is right about the right ones.
        **facts: other fields of the calibration.

    Raises:
        ValueError: there are no right or no wrong answers.
    """
    if len(set(judged.right)) < 2:
        raise ValueError(
            f"a calibration needs right and wrong answers; of {len(judged.right):,} answers {sum(judged.right):,} are "
            "right"
        )
    plain = Calibration(event, 0.0, {}, 0.0, 0.0, examples=len(judged.right), **facts)
    pairs = [
        (found, ok) for found, ok in zip(judged.evidence, judged.right, strict=True) if plain.confidence(found) != 0
    ]  # the rules of dates need no map
    right = np.array([ok for _, ok in pairs], np.float64)
    names = list(judged.evidence[0].values)
    while names and 0 < right.sum() < len(right):
        bias, *weights = _regression(np.array([[found.values[name] for name in names] for found, _ in pairs]), right)
        kept = [name for name, weight in zip(names, weights, strict=True) if weight > 0]
        if kept == names:
            return replace(plain, bias=bias, weights=dict(zip(names, weights, strict=True)))
        names = kept  # all evidence speaks for an answer; one whose weight says otherwise has learnt noise
    return replace(plain, bias=math.log((right.sum() + 1) / (len(right) - right.sum() + 1)))


def with_limits(calibration: Calibration, usual: Sequence[Evidence]) -> Calibration:
    """The calibration with the limits of warnings, which few of the usual inputs fall below.

    The confidence of answers that should be exactly right has a fixed limit: below it they are not printed, and if a
    model says of a few dates that they are none, with confidence 0, that must not let all other answers pass.

    Args:
        calibration: the fitted map.
        usual: evidence for ordinary inputs, such as those of the validation data.
    """
    confidences = [found for found in map(calibration.confidence, usual) if found is not None]
    shares = [found.known for found in usual if found.known is not None]
    return replace(
        calibration,
        low_confidence=DOUBTFUL if calibration.exact else min(_limit(confidences), DOUBTFUL),
        least_known=min(_limit(shares), MOST_KNOWN) if shares else 0.0,
    )


def calibration_error(confidences: Sequence[float], right: Sequence[bool]) -> float:
    """Expected calibration error: |confidence - share of right answers| in ten bins, weighted by their sizes."""
    sure, happened = np.asarray(confidences, np.float64), np.asarray(right, np.float64)
    bins = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    gaps = (np.bincount(bins, sure, BINS) - np.bincount(bins, happened, BINS)) / max(1, len(sure))
    return float(np.abs(gaps).sum())


def _limit(values: Sequence[float]) -> float:
    """A value that few of the validation inputs are below."""
    return float(np.quantile(np.asarray(values, np.float64), UNUSUAL))


def _regression(rows: np.ndarray, right: np.ndarray) -> list[float]:
    """Bias and weights of a logistic regression of (N, F) values, by Newton's method on standardised values."""
    mean, std = rows.mean(0), rows.std(0) + 1e-9
    inputs = np.column_stack([np.ones(len(rows)), (rows - mean) / std])
    found = np.zeros(inputs.shape[1])
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(inputs @ found, -30, 30)))
        gradient = inputs.T @ (right - p) / len(rows) - _SMOOTHING * found
        curvature = (inputs * (p * (1 - p))[:, None]).T @ inputs / len(rows) + _SMOOTHING * np.eye(len(found))
        step = np.linalg.solve(curvature, gradient)
        found += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    weights = found[1:] / std
    return [float(found[0] - weights @ mean), *map(float, weights)]


def log_odds(log_probability: float) -> float:
    """log p / (1 - p), bounded."""
    log_p = min(log_probability, -1e-7)
    return log_p - math.log(-math.expm1(log_p))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -30 else math.exp(max(x, -700.0))


def _fault_of_date(evidence: Evidence) -> str | None:
    """Why an answer cannot be the date in a text; None if it can."""
    if evidence.answer == NO_DATE:
        return "the model sees no clear date in the text"
    try:
        found = date.fromisoformat(evidence.answer or "")
    except ValueError:
        return "the answer is not a date"
    return None if tells(evidence.text or "", found) else "the answer is a date that is not in the text"
