"""From a text, raw or tokenised, to the words of a reader."""

import re
import unicodedata
from collections.abc import Container

from zoo.text.tokenizer import BOS, UNK, Tokenizer

BLANK = "XXXXX"  # the missing word in the queries of every data set
BLANK_ID = BOS  # its id in every vocabulary: no text of a reader begins with BOS
_PIECE = re.compile(r"@?\w+(?:[-.'’]\w+|(?<=\d),\d+)*|--+|\.{2,}|``|''|\S")  # kept whole: rabbit-hole, U.S, 1,000
_APART = re.compile(r"(?<!\S)[.,;:!?](?!\S)")  # only in tokenised text
_ATTACHED = re.compile(r"\w(?:[,;:!?]|n['’]t|['’](?:s|ll|re|ve|d|m))(?!\S)")  # and none of these
_CONTRACTION = re.compile(r"(?i)(?=n['’]t$|['’](?:s|ll|re|ve|d|m)$)")
_PENN = {'"': ("``", "''"), "“": ("``", "``"), "”": ("''", "''"), "‘": ("`", "`"), "’": ("'", "'")}  # opening, other


def word_id(word: str, tokenizer: Tokenizer) -> int:
    """Vocabulary id of one word."""
    ids = tokenizer.encode(word)
    return BLANK_ID if word == BLANK else ids[0] if len(ids) == 1 else UNK


def split_words(text: str, tokenizer: Tokenizer, keep: Container[str] = ()) -> list[str]:
    """Words of a raw or tokenised text, in the form of a model's training text.

    For a tokenizer of kind "word" (tokenised training text): a string between spaces that is in the vocabulary is a
    word; any other is split at its punctuation marks and contractions, with quotation marks as in the Penn Treebank if
    the vocabulary has those. A text that is already tokenised is not split.

    Args:
        text: a document or a query.
        tokenizer: of kind "word" or "word_punct".
        keep: additional words that are not split.
    """
    if tokenizer.kind != "word":
        return tokenizer.words(text)
    words: list[str] = []
    text = unicodedata.normalize("NFC", tokenizer.clean(text))
    if _APART.search(text) and not _ATTACHED.search(text):
        return text.split()
    for chunk in text.split():
        if _is_word(chunk, tokenizer) or chunk in keep:
            words.append(chunk)
            continue
        for place, piece in enumerate(_PIECE.findall(chunk)):
            if _is_word(piece, tokenizer) or piece in keep:
                words.append(piece)
            elif piece in _PENN:
                mark = _PENN[piece][place > 0]
                words.append(mark if _is_word(mark, tokenizer) else piece)
            else:
                words += [part.replace("’", "'") for part in _CONTRACTION.split(piece, maxsplit=1) if part]
    return words


def _is_word(word: str, tokenizer: Tokenizer) -> bool:
    return word_id(word, tokenizer) != UNK
