"""Metrics of translations in their published forms.

`CorpusScore` gives, on a scale of 0 to 100,

    bleu         BLEU of lowercased Moses tokens, as in most of the Multi30k literature; for text that is already
                 tokenised, BLEU of the text as it is
    sacrebleu    cased BLEU of the plain text, sacrebleu's own tokenisation (13a)
    chrf         chrF2 of the plain text
    exact_match  share of the sentences that equal their reference

In languages that are written without spaces (`UNSPACED`) both BLEU are of characters: there one error would make a
whole sentence wrong.

All but the last are computed by sacrebleu over the whole corpus; `CorpusScore.signatures` describes them. `ExactMatch`
is the last one alone, and needs no extra.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from torchmetrics import Metric

from zoo.metrics.gather import gathered
from zoo.utils.extras import require

UNSPACED = {"ja", "jpn", "zh", "zho", "cmn", "yue", "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod"}
_MOSES_CODES = {"eng": "en", "deu": "de", "fra": "fr", "ces": "cs"}


@lru_cache(maxsize=8)
def _moses(lang: str) -> tuple[Any, Any]:
    # Imported late: sacremoses takes a quarter of a second, needed only for scoring.
    require("scores", "Moses tokenisation")
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    return MosesPunctNormalizer(lang, perl_parity=True), MosesTokenizer(lang)


def moses_lowercase(texts: Sequence[str], lang: str) -> list[str]:
    """Lowercases, normalises punctuation and tokenises like the `lc.norm.tok` files of Multi30k.

    Applied to the raw files of Multi30k it reproduces its tokenised files exactly: every line of train, val,
    test_2016_flickr and test_2017_flickr in English, German and French. This needs, in this order: lowercasing; the
    punctuation normaliser with its Perl-compatible rules, applied to the line *with* its newline (else a quotation mark
    after the last full stop does not move); the tokeniser with escaped special characters (`&quot;`) and without
    aggressive hyphen splitting.

    Args:
        texts: plain text, one sentence per item.
        lang: ISO 639 code of the language, also with a region; Moses treats an unknown one much like English.

    Returns:
        For each text its tokens, joined by single spaces.

    Raises:
        ValueError: sacremoses is not installed.
    """
    normalizer, tokenizer = _moses(_moses_code(lang))
    return [tokenizer.tokenize(normalizer.normalize(text.lower() + "\n"), return_str=True) for text in texts]


class ExactMatch(Metric):
    """Share of the sentences that equal their reference, from 0 to 100.

    Under `torch.distributed` every process scores its own sentences and `compute` gathers the text of all, so the
    result does not depend on the sharding.
    """

    full_state_update = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pairs: list[tuple[str, str]] = []

    def update(self, hypotheses: Sequence[str], references: Sequence[str]) -> None:
        """Adds sentences.

        Args:
            hypotheses: translations as plain text.
            references: one for each of them.

        Raises:
            ValueError: if their numbers differ.
            TypeError: one side is no list of strings.
        """
        _check_texts("translations", hypotheses)
        _check_texts("references", references)
        if len(hypotheses) != len(references):
            count = f"{len(hypotheses)} translations and {len(references)} references"
            raise ValueError(f"every translation needs one reference; got {count}")
        self.pairs += zip(hypotheses, references, strict=True)

    def compute(self) -> dict[str, float]:
        """Returns the scores of all sentences since the last `reset`.

        Raises:
            ValueError: if there are none.
        """
        pairs = gathered(self.pairs)
        if not pairs:
            raise ValueError("there are no translations to score; call update(hypotheses, references) first")
        return self._scores(pairs)

    def _scores(self, pairs: list[tuple[str, str]]) -> dict[str, float]:
        return {"exact_match": 100 * sum(left == right for left, right in pairs) / len(pairs)}

    def reset(self) -> None:
        """Discards all sentences."""
        super().reset()
        self.pairs = []

    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Same as `update`: a corpus score of one batch is meaningless."""
        self.update(*args, **kwargs)


class CorpusScore(ExactMatch):
    """BLEU (two kinds), chrF and exact match of a corpus; see the top of this file.

    It takes about 0.7 s for 1,000 sentences, which are plain text: cased, not tokenised (unless `tokenized`).

    Args:
        lang: ISO 639 code of the target language, also with a region (`zh-CN`): it decides how both BLEU split a text.
        tokenized: the text is already tokenised (and possibly lowercased); `bleu` uses it as it is.

    Raises:
        ValueError: sacrebleu or sacremoses is not installed.
    """

    def __init__(self, lang: str, tokenized: bool = False, **kwargs: Any) -> None:
        require("scores", "scoring translations")
        super().__init__(**kwargs)
        self.lang, self.tokenized = lang, tokenized

    def _scores(self, pairs: list[tuple[str, str]]) -> dict[str, float]:
        plain = [list(side) for side in zip(*pairs, strict=True)]
        tokens = plain if self.tokenized else [bleu_text(side, self.lang) for side in plain]
        scores = {}
        for name, metric in _sacrebleu_metrics(self._is_unspaced).items():
            left, right = tokens if name == "bleu" else plain
            scores[name] = metric.corpus_score(left, [right]).score
        return scores | super()._scores(pairs)

    @property
    def _is_unspaced(self) -> bool:
        return language_of(self.lang) in UNSPACED and not self.tokenized

    @property
    def signatures(self) -> dict[str, str]:
        """How each score is computed: sacrebleu's signature, for `bleu` after the preprocessing."""
        out = {}
        for name, metric in _sacrebleu_metrics(self._is_unspaced).items():
            metric.corpus_score(["a"], [["a"]])  # there is no signature before a score
            out[name] = str(metric.get_signature())
        if self.tokenized:
            before = "text:as-given"
        elif self._is_unspaced:
            before = "text:lc"
        else:
            before = f"moses:lc.norm.tok-{_moses_code(self.lang)}|sacremoses:{version('sacremoses')}"
        out["bleu"] = f"{before}|{out['bleu']}"
        return out


def bleu_text(texts: list[str], lang: str) -> list[str]:
    """What `bleu` compares of plain texts: Moses tokens in lower case; of an UNSPACED language its characters.

    Tokens are separated by spaces. Of characters the spaces do not count.
    """
    spaced = language_of(lang) not in UNSPACED
    return moses_lowercase(texts, lang) if spaced else [" ".join(text.lower()) for text in texts]


def language_of(code: str) -> str:
    """The language of a code, without region and script: "zh" of "zh-CN" and "zh_Hans"."""
    return re.split("[-_]", code)[0].lower()


def _moses_code(lang: str) -> str:
    return _MOSES_CODES.get(language_of(lang), language_of(lang))


def _check_texts(name: str, texts: Any) -> None:
    """Raises TypeError for one string, of which each letter would be a sentence, and for items that are no strings."""
    wrong = [texts] if isinstance(texts, str) else [text for text in texts if not isinstance(text, str)]
    if wrong:
        raise TypeError(f"{name} must be a list with one string for each sentence; got {wrong[0]!r:.50}")


def _sacrebleu_metrics(characters: bool) -> dict[str, Any]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    # force: no warning that the input of `bleu` looks tokenised.
    kinds = ("char", "char") if characters else ("none", "13a")
    return {"bleu": BLEU(tokenize=kinds[0], force=True), "sacrebleu": BLEU(tokenize=kinds[1]), "chrf": CHRF()}
