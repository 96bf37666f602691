"""Scores of captions as computed by the COCO caption evaluation (Chen et al. 2015, arXiv:1504.00325).

`CaptionScores` gives, in the scale of the literature (100 times the numbers of the evaluation's code, pycocoevalcap),

    bleu_1 ... bleu_4              corpus BLEU, whose brevity penalty uses the closest reference length (the shorter of
                                   two)
    bleu_1_no_bp ... bleu_4_no_bp  the same without brevity penalty: which of the two Xu et al. 2015 report is disputed
    cider_d                        CIDEr-D (Vedantam et al. 2015, arXiv:1411.5726), with the document frequencies of the
                                   scored references; its maximum is 1,000, not 100
    rouge_l                        ROUGE-L, mean over the captions

all of them on the words of `caption_tokens`. On the same words pycocoevalcap computes the same numbers, including the
constants that it adds to BLEU's fractions, except that here an empty caption always scores 0. METEOR is computed only
on request: it needs Java.
"""

import math
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from html import unescape
from typing import Any

import numpy as np
from torchmetrics import Metric

from zoo.metrics.gather import gathered
from zoo.utils.extras import missing, require

ORDERS = range(1, 5)  # lengths of n-grams
SIGMA = 6.0  # of CIDEr-D's penalty for a length that differs from the reference's
BETA = 1.2  # how much more recall weighs than precision in ROUGE-L
# pycocoevalcap adds these to the numerators and denominators of BLEU. They matter only if a corpus has no n-gram of
# some length: BLEU-4 of captions of three words is then slightly above 0.
TINY, SMALL = 1e-15, 1e-9

_SPELLED = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "«": '"', "»": '"', "£": "#", "€": "$", "¢": " cents "}
    | {"(": " -lrb- ", ")": " -rrb- ", "[": " -lsb- ", "]": " -rsb- ", "{": " -lcb- ", "}": " -rcb- "}
)
_ENTITY = re.compile("&(?:amp|quot|apos|lt|gt);")
_ABBREVIATIONS = (
    "mr mrs ms dr prof gen sgt capt col lt rev sen gov rep hon messrs jr sr bros inc ltd co corp dept univ assn st "
    "mt ft ave "
    "blvd rd ct sq bldg est ext al cf vs etc jan feb mar apr jun jul aug sept sep oct nov dec mon tue tues wed thu "
    "thurs fri "
    "calif fla va ga colo wis"
).replace(" ", "|")
_TOKEN = re.compile(
    "|".join(
        [
            r"-[lr][rsc]b-",
            r"https?://\S+|www\.\S+|[\w.+-]+@[\w-]+\.[\w.]*\w|[@#][a-z]\w*",
            rf"\b(?:{_ABBREVIATIONS}|ph\.d)\.(?!\w)|\bno\.(?=\s*\d)",
            r"(?<![^\W\d_])[a-z]\.(?:[a-z]\.)*(?![\w.])",  # a.m., the letter p.
            r"\bcan(?=not\b)|\b(?:gon|wan)(?=na\b(?!-))|\bgot(?=ta\b)|\b(?:lem|gim)(?=me\b)|'t(?=(?:is|was)\b)",
            r"[^\W\d_]+?(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m|em|til|cause|\d\ds)\b|'n\b'?",
            r"\d+(?:[.,:/-]\d+)+(?:-\w+)*|(?<!\S)\.\d+",
            r"(?-i:[A-Z]+&[A-Z]+)",  # but at&t is three
            r"(?:\b[dlo]'|\bma'(?=am\b))?\w[\w\u0300-\u036f]*(?:[-./]\w[\w\u0300-\u036f]*)*",
            r"\*+|[!?]{2,}|[$%&#@^~|\\+=<>/©¥]",
        ]
    ),
    re.IGNORECASE,
)


def caption_tokens(text: str) -> list[str]:
    """Lower-cased words without punctuation, as in the COCO caption evaluation, but without Java.

    This is the Penn Treebank tokenisation of Stanford CoreNLP 3.4.1, without the punctuation that the evaluation lists:
    "don't" is two words and "t-shirt" one. Its errors are kept, since they affect scores: a bracket stays as the word
    "-lrb-", and so does "!!". For the 40,000 captions of Flickr8k and the 32,014 of Multi30k it gives exactly the same
    words; for text unlike English captions (smileys, formulas, other scripts) it may not.

    Args:
        text: A caption as written.

    Returns:
        Its tokens; none if there is only punctuation.
    """
    text = _ENTITY.sub(lambda found: unescape(found[0]), text)
    return [token.lower() for token in _TOKEN.findall(text.translate(_SPELLED))]


class CiderD:
    """CIDEr-D (Vedantam et al. 2015) with the document frequencies of the references given to the constructor.

    Suitable for rewards in training: built once from the training set, it scores any captions. N-grams of one to four
    tokens, sigma 6. With a single image all n-grams are equally common and every score is 0.

    Args:
        references: The tokens of the references of each image, see `caption_tokens`.

    Raises:
        ValueError: There are no images.
        TypeError: A caption is a string instead of a list of tokens.
    """

    def __init__(self, references: Sequence[Sequence[list[str]]]) -> None:
        if not references:
            raise ValueError(
                "CIDEr-D needs the references of at least one image for its document frequencies; got none"
            )
        _check_tokens(*references)
        self._frequency: Counter[tuple[str, ...]] = Counter()
        for captions in references:
            self._frequency.update({ngram for tokens in captions for ngram in _ngrams(tokens)})
        self._images = math.log(len(references))

    def score(self, candidates: Sequence[list[str]], references: Sequence[Sequence[list[str]]]) -> list[float]:
        """Scores captions individually.

        Args:
            candidates: Tokens of one caption per image.
            references: For each the tokens of one or more references; they may differ from those of the
                constructor.

        Returns:
            A score from 0 to 10 per caption; 0 for an empty one.

        Raises:
            ValueError: The numbers of captions and references differ, or an image has no reference.
            TypeError: A caption is a string instead of a list of tokens.
        """
        _check(candidates, references)
        _check_tokens(candidates, *references)
        return [self._score(tokens, captions) for tokens, captions in zip(candidates, references, strict=True)]

    def _score(self, candidate: list[str], references: Sequence[list[str]]) -> float:
        vector, norms = self._vector(candidate)
        total = 0.0
        for reference in references:
            other, other_norms = self._vector(reference)
            products = [0.0] * len(ORDERS)
            for ngram, value in vector.items():
                if ngram in other:
                    products[len(ngram) - 1] += min(value, other[ngram]) * other[ngram]
            # pycocoevalcap takes the number of bigrams as the length: an empty caption is as long as a single word.
            delta = max(len(candidate) - 1, 0) - max(len(reference) - 1, 0)
            scales = (a * b for a, b in zip(norms, other_norms, strict=True))
            similar = sum(product / scale for product, scale in zip(products, scales, strict=True) if scale)
            total += similar * math.exp(-(delta**2) / (2 * SIGMA**2))
        return 10 * total / len(ORDERS) / len(references)

    def _vector(self, tokens: list[str]) -> tuple[dict[tuple[str, ...], float], list[float]]:
        """Counts times inverse document frequencies, and their Euclidean norm for each length of n-gram."""
        vector, squares = {}, [0.0] * len(ORDERS)
        for ngram, count in _ngrams(tokens).items():
            vector[ngram] = value = count * (self._images - math.log(max(1, self._frequency[ngram])))
            squares[len(ngram) - 1] += value**2
        return vector, [math.sqrt(square) for square in squares]


def right_words(candidate: Sequence[Hashable], references: Sequence[Sequence[Hashable]]) -> float:
    """Share of a caption's words that a reference has, with clipped counts; suitable for rewards in training.

    If the caption is shorter than the closest reference, the share is of that length: BLEU-1 of a single caption with a
    linear brevity penalty.

    Args:
        candidate: Tokens of the caption.
        references: Tokens of one or more references.

    Returns:
        A number from 0 to 1; 0 for an empty caption.

    Raises:
        TypeError: A caption is a string instead of a list of tokens.
    """
    _check_tokens([candidate], references)
    right = sum((Counter(candidate) & _allowed(references, Counter)).values())
    return right / max(len(candidate), _closest_length(candidate, references), 1)


def bleu_counts(candidate: list[str], references: Sequence[list[str]]) -> list[int]:
    """What a caption adds to corpus BLEU.

    Args:
        candidate: Tokens of the caption, see `caption_tokens`.
        references: Tokens of one or more references.

    Returns:
        Ten numbers: its n-grams that a reference has and all its n-grams, for n from 1 to 4 each; its length, and the
        closest length of a reference.
    """
    right = [0] * len(ORDERS)
    for ngram, count in (_ngrams(candidate) & _allowed(references, _ngrams)).items():
        right[len(ngram) - 1] += count
    guessed = [max(len(candidate) - n + 1, 0) for n in ORDERS]
    return [*right, *guessed, len(candidate), _closest_length(candidate, references)]


def bleu_of_counts(sums: np.ndarray) -> dict[str, np.ndarray]:
    """Corpus BLEU from 0 to 1, with (`bleu_n`) and without (`bleu_n_no_bp`) brevity penalty.

    Args:
        sums: Summed `bleu_counts` of all captions, (..., 10).

    Returns:
        Eight scores, (...) each.
    """
    right, guessed = sums[..., : len(ORDERS)], sums[..., len(ORDERS) : 2 * len(ORDERS)]
    length, closest = sums[..., -2], sums[..., -1]
    penalty = np.exp(np.minimum(0, 1 - (closest + SMALL) / (length + TINY)))
    products = np.cumprod((right + TINY) / (guessed + SMALL), axis=-1)
    plain = {f"bleu_{n}": np.where(length > 0, products[..., n - 1] ** (1 / n), 0.0) for n in ORDERS}
    return {name: penalty * score for name, score in plain.items()} | {
        f"{name}_no_bp": score for name, score in plain.items()
    }


class CaptionScores(Metric):
    """BLEU with and without brevity penalty, CIDEr-D and ROUGE-L of captions; see the top of this file.

    Under `torch.distributed` every process scores its own captions and `compute` gathers those of all, so the result
    does not depend on the sharding. It takes about a second for 1,000 captions with five references each.

    Args:
        with_meteor: METEOR too, which needs what `has_meteor` looks for. If its program fails, a warning says so.
    """

    full_state_update = False

    def __init__(self, with_meteor: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.with_meteor = with_meteor
        self.items: list[tuple[list[str], list[list[str]]]] = []

    def update(self, captions: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        """Adds captions.

        Args:
            captions: Plain text, one caption per image.
            references: For each caption one or more human captions.

        Raises:
            ValueError: Their numbers differ, or an image has no reference.
            TypeError: The references of an image are a string instead of a list of strings.
        """
        _check(captions, references)
        for caption, texts in zip(captions, references, strict=True):
            self.items.append((caption_tokens(caption), [caption_tokens(text) for text in texts]))

    def compute(self) -> dict[str, float]:
        """Returns the ten scores of all captions since the last `reset`, and METEOR if it was asked for.

        Raises:
            ValueError: There are none.
        """
        items = gathered(self.items)
        if not items:
            raise ValueError("there are no captions to score; call update(captions, references) first")
        candidates, references = (list(side) for side in zip(*items, strict=True))
        counts = np.array([*map(bleu_counts, candidates, references)], dtype=np.float64)
        scores = {name: float(score) for name, score in bleu_of_counts(counts.sum(0)).items()}
        # fsum: the result does not depend on the order of the captions, which sharding changes
        scores["cider_d"] = math.fsum(CiderD(references).score(candidates, references)) / len(items)
        scores["rouge_l"] = math.fsum(map(_rouge_l, candidates, references)) / len(items)
        if self.with_meteor:
            try:
                scores["meteor"] = _meteor(candidates, references)
            except RuntimeError as error:
                warnings.warn(f"no METEOR: {error}", stacklevel=2)
        return {name: 100 * score for name, score in scores.items()}

    @property
    def signatures(self) -> dict[str, str]:
        """How each score is computed."""
        before = "tok:ptb-coco|case:lc"
        out = {}
        for suffix, penalty in (("", "closest"), ("_no_bp", "none")):
            for n in ORDERS:
                out[f"bleu_{n}{suffix}"] = (
                    f"{before}|corpus|max_n:{n}|bp:{penalty}|smooth:1e-15/1e-9|like:pycocoevalcap"
                )
        out["cider_d"] = f"{before}|n:4|sigma:6|df:references|scale:x100|like:pycocoevalcap"
        out["rouge_l"] = f"{before}|beta:1.2|refs:max|like:pycocoevalcap"
        if self.with_meteor:
            out["meteor"] = f"{before}|version:1.5|by:pycocoevalcap"
        return out

    def reset(self) -> None:
        """Discards all captions."""
        super().reset()
        self.items = []

    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Same as `update`: a corpus score of one batch is meaningless."""
        self.update(*args, **kwargs)


def meteor(captions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """METEOR 1.5 of captions, on a scale of 0 to 100, computed by pycocoevalcap's Java program.

    Args:
        captions: Plain text, one caption per image.
        references: For each caption one or more human captions.

    Raises:
        ValueError: Their numbers differ, an image has no reference, there is nothing to score, or pycocoevalcap is
            missing.
        TypeError: The references of an image are a string instead of a list of strings.
        RuntimeError: Java is missing, or did not run.
    """
    _check(captions, references)
    if not captions:
        raise ValueError("there are no captions to score; METEOR needs at least one")
    if not shutil.which("java"):
        raise RuntimeError(
            "METEOR needs Java, and there is no program `java`; install a Java runtime, or use the other scores"
        )
    require("meteor", "METEOR")
    truth = [[*map(caption_tokens, texts)] for texts in references]
    return 100 * _meteor([*map(caption_tokens, captions)], truth)


def has_meteor() -> bool:
    """Whether METEOR can be computed here: Java and the extra `meteor` are installed."""
    return shutil.which("java") is not None and not missing("meteor")


def _meteor(candidates: list[list[str]], references: list[list[list[str]]]) -> float:
    """METEOR of tokens, from 0 to 1."""
    from pycocoevalcap.meteor.meteor import Meteor

    truth = {n: [" ".join(tokens) for tokens in texts] for n, texts in enumerate(references)}
    scorer = Meteor()
    try:
        return scorer.compute_score(truth, {n: [" ".join(tokens)] for n, tokens in enumerate(candidates)})[0]
    except (OSError, ValueError) as error:
        scorer.lock.release()  # else its destructor waits forever
        with suppress(OSError):
            if scorer.meteor_p.stdin is not None:
                scorer.meteor_p.stdin.close()
        raise RuntimeError(
            f"METEOR's Java program failed ({error}); does `java -version` work, are 2 GB of memory free?"
        ) from None


def _check(captions: Sequence[Any], references: Sequence[Sequence[Any]]) -> None:
    if isinstance(captions, str) or any(isinstance(texts, str) for texts in references):
        raise TypeError("captions must be a list, references a list with a list for each caption; got a string instead")
    if len(captions) != len(references):
        count = f"{len(captions)} captions and references of {len(references)} images"
        raise ValueError(f"every caption needs the references of its image; got {count}")
    if missing := [n for n, texts in enumerate(references) if not len(texts)]:
        raise ValueError(
            f"every image needs at least one reference; got none for {len(missing)}, first at index {missing[0]}"
        )


def _check_tokens(*images: Sequence[Any]) -> None:
    """Raises TypeError for a caption that is a string, of which each letter would be a token."""
    text = next((caption for captions in images for caption in captions if isinstance(caption, str)), None)
    if text is not None:
        raise TypeError(
            f"a caption must be a list of tokens, such as caption_tokens gives; got the string {text!r:.50}"
        )


def _ngrams(tokens: list[str]) -> Counter[tuple[str, ...]]:
    """How often each n-gram of one to four tokens occurs."""
    return Counter(tuple(tokens[i : i + n]) for n in ORDERS for i in range(len(tokens) - n + 1))


def _allowed(references: Sequence[Sequence[Hashable]], counted: Callable[[Any], Counter]) -> Counter:
    """Maximum count of each item of `counted` in a caption: the largest count in any reference."""
    allowed: Counter = Counter()
    for tokens in references:
        allowed |= counted(tokens)
    return allowed


def _closest_length(candidate: Sequence[Hashable], references: Sequence[Sequence[Hashable]]) -> int:
    """The reference length closest to the caption's, the shorter of two."""
    return min((abs(len(tokens) - len(candidate)), len(tokens)) for tokens in references)[1]


def _rouge_l(candidate: list[str], references: Sequence[list[str]]) -> float:
    """ROUGE-L from 0 to 1, from the best precision and the best recall, possibly of different references."""
    common = [_longest_common_subsequence(candidate, tokens) for tokens in references]
    if not any(common):
        return 0.0
    precision = max(common) / len(candidate)
    recall = max(length / len(tokens) for length, tokens in zip(common, references, strict=True) if tokens)
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _longest_common_subsequence(a: list[str], b: list[str]) -> int:
    row = [0] * (len(b) + 1)
    for left in a:
        diagonal = 0
        for j, right in enumerate(b, 1):
            diagonal, row[j] = row[j], diagonal + 1 if left == right else max(row[j], row[j - 1])
    return row[-1]
