"""Words of plain text in the form of the Penn Treebank: do n't, it 's, $ N, N %."""

import re

CONTRACTED = "n't"  # in the vocabulary of a model that has learnt from such text
MARKS = '",;:!?().“”'  # around a word, which the text of language models lacks
NUMBER = re.compile(r"[-+]?\d[\d.,]*")

_APOSTROPHES = str.maketrans("‘’", "''")
_POUND = {"£": "#"}  # as the Treebank writes it
_AMOUNT = re.compile(r"([A-Za-z]{0,2}\$|[#£€¥])?([-+]?\d[\d.,]*)(%)?")
_END = re.compile(r"(?:n't|'(?:s|ll|re|ve|d|m)|(?<=s)')$", re.IGNORECASE)


def treebank_words(word: str) -> list[str]:
    """The words of which a string between spaces consists.

    Args:
        word: such as `don't`, `companies'` or `$3.50`; punctuation marks around it are left out.

    Returns:
        `do n't`, `companies '`, `$ 3.50`; a word that does not consist of others alone, without marks.
    """
    word = word.translate(_APOSTROPHES).strip(MARKS)
    if amount := _AMOUNT.fullmatch(word):
        return [_POUND.get(part, part) for part in amount.groups() if part]
    if word.lower() == "cannot":
        return [word[:3], word[3:]]
    if word.startswith("'") or not word.endswith("s'"):
        word = word.removesuffix("'")  # a quotation mark
    ends: list[str] = []
    while (found := _END.search(word)) and found.start():
        word = word[: found.start()]
        ends.insert(0, found[0])
    return [word.strip("'") or word, *ends]
