"""Scores as they are published: of translations, of classifiers and of captions."""

from zoo.metrics.captions import CaptionScores, CiderD, caption_tokens, meteor
from zoo.metrics.classes import ClassScores
from zoo.metrics.corpus import CorpusScore, moses_lowercase

__all__ = ["CaptionScores", "CiderD", "ClassScores", "CorpusScore", "caption_tokens", "meteor", "moses_lowercase"]
