"""How well a model knows the words of a text, and in which language a text is."""

import re
from collections.abc import Sequence
from functools import lru_cache

from zoo.text.tokenizer import UNK, Tokenizer

_WORD = re.compile(r"[^\W\d_]+")
# Frequent words that say little; a word of several languages counts for each.
_FREQUENT = {
    "en": "the a an of to in is are was were and that it he she they you i we for on with at this not be have has from "
    "his her by as or what there but my your do does",
    "de": "der die das den dem des ein eine einen einem einer eines und ist sind war nicht ich du er sie es wir ihr "
    "mit auf im in zu von für an hat haben sich auch dass wie was aber bei aus nach",
    "fr": "le la les un une des du de et est sont était dans sur avec pour pas ne je tu il elle nous vous ils qui que "
    "ce cette au aux en son sa ses mais plus par c l d j qu n s",
    "es": "el la los las un una unos unas de del y es son era en con por para no que se su sus al lo como más pero "
    "este esta yo tú él ella muy",
    "it": "il lo la i gli le un uno una di del della dei delle e è sono era in con per non che si su al alla come più "
    "ma questo questa io tu lui lei da nel nella",
    "pt": "o a os as um uma uns umas de do da dos das e é são era em no na nos nas com por para não que se ao mais mas "
    "este esta eu você ele ela seu sua",
    "nl": "de het een en is zijn was in op met voor niet van te dat die ik je jij hij zij wij ze aan er maar ook om "
    "als bij uit naar heeft deze",
    "sv": "en ett och är var i på med för inte av att det den de jag du han hon vi som till har om men från sig",
    "pl": "i w na z do nie się jest to że po o jak ale za od dla są był przez ten tak",
    "cs": "a v na s z do ne se je to že po o jak ale za od pro jsou byl který ve",
}
_LANGUAGES: dict[str, list[str]] = {}
for _language, _words in _FREQUENT.items():
    for _word in _words.split():
        _LANGUAGES.setdefault(_word, []).append(_language)
NAMES = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese",
    "nl": "Dutch", "sv": "Swedish", "pl": "Polish", "cs": "Czech",
}  # fmt: skip
_POLITE = {"sie", "ihr", "ihnen"}  # German, with a capital they address someone
_ADDED_WORDS = 2  # see `known_share`
_LEAST_WORDS = 2  # frequent words that tell a language
_LEAST_SHARE = 0.2  # of all words
_READ_SHARE = 0.8  # of the frequent words of a language that a vocabulary for it has


def is_frequent(word: str, language: str) -> bool:
    """Whether a word in lower case is one of the frequent words of a language, which hardly ever have a capital."""
    return language in _LANGUAGES.get(word, ()) and word not in _POLITE


def known_share(ids: Sequence[int], tokenizer: Tokenizer) -> float:
    """Share of the words that the vocabulary has as a whole; of the characters, if the tokenizer splits into these.

    Two known words are added, so that one name in a short sentence does not count as much as many in a long one.

    Args:
        ids: what `tokenizer.encode` gave; without words the share is 1.
        tokenizer: the model's.
    """
    if tokenizer.kind == "char":
        return 1 - list(ids).count(UNK) / (len(ids) + _ADDED_WORDS)
    labels = tokenizer.tokens(ids)
    parts = [tokenizer.kind == "bpe" and len(label) > 1 and label[0] == "·" for label in labels]
    words = [n for n, label in enumerate(labels) if not parts[n] and (ids[n] == UNK or label.isalpha())]
    known = sum(ids[n] != UNK and not (n + 1 < len(labels) and parts[n + 1]) for n in words)
    return (known + _ADDED_WORDS) / (len(words) + _ADDED_WORDS)


def language(text: str) -> str | None:
    """The language of a text by its frequent words, as an ISO 639 code; None if they do not tell."""
    counts, words = _counts(text)
    best, *others = sorted(counts, key=lambda code: -counts[code])
    is_clear = counts[best] >= max(_LEAST_WORDS, _LEAST_SHARE * words) and counts[best] > counts[others[0]]
    return best if is_clear else None


def other_language(text: str, expected: str) -> str | None:
    """The name of the language of a text, if it clearly is another than expected (an ISO 639 code)."""
    found = language(text)
    if found is None or found == expected or expected not in NAMES:
        return None
    counts, _ = _counts(text)
    return NAMES[found] if counts[found] > 2 * counts[expected] else None


@lru_cache(maxsize=16)
def languages_of(tokenizer: Tokenizer) -> list[str]:
    """The languages for which a vocabulary was made, as ISO 639 codes: it has most of their frequent words whole.

    A tokenizer of characters tells none.
    """
    if tokenizer.kind == "char":
        return []
    shares = {code: _share_of(words.split(), tokenizer) for code, words in _FREQUENT.items()}
    return [code for code, share in shares.items() if share >= _READ_SHARE]


def _share_of(words: list[str], tokenizer: Tokenizer) -> float:
    """Share of words that are one known token."""
    return sum(len(ids := tokenizer.encode(word)) == 1 and ids[0] != UNK for word in words) / len(words)


def _counts(text: str) -> tuple[dict[str, int], int]:
    """Frequent words by language, and the number of all words."""
    counts = dict.fromkeys(_FREQUENT, 0)
    words = _WORD.findall(text.lower())
    for word in words:
        for code in _LANGUAGES.get(word, ()):
            counts[code] += 1
    return counts, len(words)
