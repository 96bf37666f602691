"""Options that every data set refuses in one clear line, before it reads anything."""

import pytest

from zoo.data import Cloze, ImageCaptions, LabeledText, NextWord, ParallelText, PlainText

OWN = {
    LabeledText: {"train": "a.tsv"},
    NextWord: {"train": "a.txt"},
    PlainText: {"train": "a.txt"},
    Cloze: {"train": "a.tsv"},
    ImageCaptions: {"folder": "a", "captions": "a.tsv"},
}


# utf-16-be: its lines end in a zero byte and that of a line end, so only some texts would be cut elsewhere
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "latin-99", "rot13", "hex", "cp037"])
@pytest.mark.parametrize("cls", OWN)
def test_encodings(cls, encoding):
    with pytest.raises(ValueError, match=f"^encoding must be a superset of ASCII, e.g. 'utf-8', .*; got '{encoding}'$"):
        cls(**OWN[cls], encoding=encoding)
    cls(**OWN[cls], encoding="cp1252")


@pytest.mark.parametrize("cls", [*OWN, ParallelText])
def test_negative_seeds(cls):
    given = OWN.get(cls, {"train_src": "a.tsv"})
    with pytest.raises(ValueError, match="^seed must be at least 0; got -1$"):
        cls(**given, seed=-1)
    cls(**given, seed=0)
