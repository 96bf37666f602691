"""What several results share."""

import math
from typing import Any


def finite(score: float) -> float | None:
    """The score, or None (for JSON) if it is not finite: that of a hypothesis that does not exist."""
    return score if math.isfinite(score) else None


def existing(hypotheses: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The (text, score) pairs that have a score: there may be fewer than requested."""
    return [(text, score) for text, score in hypotheses if math.isfinite(score)]


def trust(result: Any) -> dict[str, Any]:
    """`confidence` and `warnings` of a result, as JSON-able values."""
    confidence = result.confidence
    return {"confidence": None if confidence is None else round(confidence, 4), "warnings": result.warnings}
