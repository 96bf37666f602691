"""BLEU from counts of each sentence, so that the BLEU of any sample of the sentences costs a sum.

The counts (…, 10) of a sentence, or their sums over sentences: length of the translation, length of the reference,
and for n = 1 to 4 the n-grams of the translation that the reference has, then all its n-grams. As sacrebleu with
`smooth:exp` and `eff:no` (Papineni et al. 2002; Chen and Cherry 2014, method 3).
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from zoo.comparison.tasks.base import Counts
from zoo.metrics.corpus import bleu_text

ORDER = 4


def sentence_counts(translations: Sequence[str], references: Sequence[str]) -> Counts:
    """Counts of each sentence.

    Args:
        translations: N texts of tokens, separated by spaces.
        references: one for each of them.

    Returns:
        (N, 10) float64.
    """
    rows = []
    for translation, reference in zip(translations, references, strict=True):
        given, wanted = translation.split(), reference.split()
        found, every = [], []
        for n in range(1, ORDER + 1):
            grams = _ngrams(given, n)
            found.append((grams & _ngrams(wanted, n)).total())
            every.append(max(0, len(given) - n + 1))
        rows.append([len(given), len(wanted), *found, *every])
    return np.array(rows, dtype=np.float64).reshape(-1, 2 + 2 * ORDER)


def _ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[i:] for i in range(n))))


def corpus_bleu(sums: Counts) -> np.ndarray:
    """BLEU from 0 to 100 of summed counts: (..., 10) -> (...)."""
    length, wanted, found, every = sums[..., 0], sums[..., 1], sums[..., 2 : 2 + ORDER], sums[..., 2 + ORDER :]
    empty = found == 0
    halvings = np.cumsum(empty, axis=-1)  # each order without a hit counts half of the one before
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(empty, 0.5**halvings, found) / every
        brevity = np.exp(np.minimum(0.0, 1 - wanted / length))
        scores = 100 * brevity * np.exp(np.log(precisions).mean(-1))
    return np.where(empty.all(-1) | (every == 0).any(-1), 0.0, scores)


class Tokens:
    """Splits texts as the metric `bleu` of zoo/metrics/corpus.py does; each different text once.

    Args:
        lang: language of the texts.
        tokenized: they are split already.
    """

    def __init__(self, lang: str, tokenized: bool) -> None:
        self.lang, self.tokenized = lang, tokenized
        self._known: dict[str, str] = {}

    def __call__(self, texts: Sequence[str]) -> list[str]:
        if self.tokenized:
            return list(texts)
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known |= zip(new, bleu_text(new, self.lang))
        return [self._known[text] for text in texts]
