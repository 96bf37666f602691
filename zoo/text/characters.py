"""Plain forms of characters that a vocabulary lacks: "dog—brown", "ﬁne", "‚Ahoj‘", "naïve"."""

import unicodedata
from collections.abc import Callable, Collection, Iterator

_ALIKE = ("'’‘‚‛′´`ʼ‹›", '"“”„‟«»″', "-–‐‑‒−—―")  # the best first
_LONG_DASHES = "—―"  # between parts of a sentence, where a hyphen joins words
_MOST = 2**14  # characters in the table; when full, it is cleared
_IGNORED = ("Cf", "Mn")  # categories: what steers the direction or the form of others, and accents of their own


class PlainForms(dict[int, str]):
    """The table of `str.translate` that gives characters which a vocabulary lacks their plain forms.

    Marks of the same meaning, the letters of a ligature, a letter without its accent; nothing for invisible characters.
    What has no known form stays, and so do numbers such as ½ and ². Filled as characters are met.

    Args:
        known: the characters of the vocabulary.
        is_unknown: whether a text means nothing to the tokenizer.
    """

    def __init__(self, known: Collection[str], is_unknown: Callable[[str], bool]) -> None:
        super().__init__()
        self._known, self._is_unknown = frozenset(known), is_unknown

    def __missing__(self, code: int) -> str:
        if len(self) >= _MOST:
            self.clear()
        found = self[code] = self._form_of(chr(code))
        return found

    def _form_of(self, character: str) -> str:
        if character in self._known or character.isspace() or not self._is_unknown(character):
            return character
        if (category := unicodedata.category(character)) in _IGNORED:
            return ""
        if category == "No":  # "1½" is not "11/2"
            return character
        return next((form for form in _forms(character) if self._is_read(form)), character)

    def _is_read(self, form: str) -> bool:
        """Whether a form is known; of letters it suffices that words are made of them."""
        return not self._is_unknown(form) or form.isalnum() and self._known.issuperset(form)


def _forms(character: str) -> Iterator[str]:
    """What may stand in place of a character, the best first."""
    if character in _LONG_DASHES:
        yield " - "
    for group in _ALIKE:
        if character in group:
            yield from group
    compatible = unicodedata.normalize("NFKC", character)
    if compatible.split() == [compatible]:
        yield compatible
    parts = unicodedata.normalize("NFKD", character).split()
    yield "".join(part for part in "".join(parts) if unicodedata.category(part) != "Mn") or character
