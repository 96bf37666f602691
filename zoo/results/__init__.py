"""What the verbs of the models answer: the text or label, and where the model looked."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.results.alignment import Alignment
    from zoo.results.base import Result
    from zoo.results.captioning import Caption
    from zoo.results.classification import Classification, DocumentClassification
    from zoo.results.language_modelling import Completion
    from zoo.results.reading import Reading
    from zoo.results.several import page
    from zoo.results.translation import Look, Translation

__all__ = [
    "Alignment",
    "Caption",
    "Classification",
    "Completion",
    "DocumentClassification",
    "Look",
    "Reading",
    "Result",
    "Translation",
    "page",
]

_HOME = {  # imported when used: a translation needs no images
    "Alignment": "alignment",
    "Caption": "captioning",
    "Classification": "classification",
    "Completion": "language_modelling",
    "DocumentClassification": "classification",
    "Look": "translation",
    "Reading": "reading",
    "Result": "base",
    "Translation": "translation",
    "page": "several",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'zoo.results' has no attribute '{name}'")
    return getattr(importlib.import_module(f"zoo.results.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
