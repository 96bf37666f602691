"""Published metrics of translations, alignments, classifiers and captions."""

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
