"""The list of dates written by hand: tests/data/translation/written_dates.tsv."""

import hashlib
from pathlib import Path

LIST = Path(__file__).parent.parent / "data/translation/written_dates.tsv"


def written_dates() -> list[tuple[str, str]]:
    """Texts and their answers; an empty answer means that the text is no date."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return [(text, answer) for text, _, answer in (line.partition("\t") for line in lines if line[:1] != "#")]


def halves() -> dict[str, list[tuple[str, str]]]:
    """The development half, on which the generator may be changed, and the test half, which is for scores only."""
    found: dict[str, list[tuple[str, str]]] = {"development": [], "test": []}
    for text, answer in written_dates():
        odd = hashlib.sha256(text.encode()).digest()[-1] % 2
        found["test" if odd else "development"].append((text, answer))
    return found
