"""Published metrics of translations, alignments, classifiers and captions.

Each is imported when it is first used: torchmetrics takes a second, and a prediction needs no metric.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.metrics.alignments import GoldAlignment, alignment_error_rate, diagonal_links, read_gold_alignments
    from zoo.metrics.captions import CaptionScores, CiderD, caption_tokens, meteor, right_words
    from zoo.metrics.classes import ClassScores
    from zoo.metrics.corpus import CorpusScore, ExactMatch, moses_lowercase
    from zoo.metrics.gather import Mean

__all__ = [
    "CaptionScores",
    "CiderD",
    "ClassScores",
    "CorpusScore",
    "ExactMatch",
    "GoldAlignment",
    "Mean",
    "alignment_error_rate",
    "caption_tokens",
    "diagonal_links",
    "meteor",
    "moses_lowercase",
    "read_gold_alignments",
    "right_words",
]

_NAMES = {
    "zoo.metrics.alignments": ["GoldAlignment", "alignment_error_rate", "diagonal_links", "read_gold_alignments"],
    "zoo.metrics.captions": ["CaptionScores", "CiderD", "caption_tokens", "meteor", "right_words"],
    "zoo.metrics.classes": ["ClassScores"],
    "zoo.metrics.corpus": ["CorpusScore", "ExactMatch", "moses_lowercase"],
    "zoo.metrics.gather": ["Mean"],
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'zoo.metrics' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
