"""Data modules used by hand, without a trainer: one call opens all there is, and they print what they are."""

from itertools import islice

import captions_fakes
import pytest

from zoo.data import Cloze, Dates, ImageCaptions, LabeledText, ParallelText, PlainText

TEXTS = [f"a little text of {word}" for word in "one two three four five six seven eight nine ten".split()]


def _table(path, *rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def _pairs(folder):
    return ParallelText(_table(folder / "pairs.tsv", *zip(TEXTS, TEXTS, strict=True)), vocab_size=60, batch_size=4)


def _texts(folder):
    rows = [(("good", "bad")[n % 2], text) for n, text in enumerate(TEXTS)]
    return LabeledText(_table(folder / "texts.tsv", ("label", "text"), *rows), val_fraction=0.3, batch_size=4)


def _running_text(folder):
    return PlainText(_table(folder / "book.txt", *zip(TEXTS * 5, strict=True)), batch_size=2, segment=4)


def _questions(folder):
    rows = [(f"story {n} : ann met tom .", f"ann met {'XXXXX'} .", "tom", "tom|ann") for n in range(10)]
    head = ("document", "query", "answer", "candidates")
    return Cloze(_table(folder / "questions.tsv", head, *rows), batch_size=4)


def _photos(folder):
    files = {"folder": "photos", "captions": "captions.tsv"}
    captions_fakes.invent(ImageCaptions, files, folder)
    return ImageCaptions(**files, root=str(folder), min_frequency=1, size=8, batch_size=4)


@pytest.mark.parametrize("build", [_pairs, _texts, _running_text, _questions, _photos])
def test_setup_opens_all_there_is(tmp_path, build):
    data = build(tmp_path)
    data.prepare_data()
    data.setup()
    assert next(iter(data.train_dataloader())) is not None
    assert len(list(islice(data.val_dataloader(), 3)))


def test_setup_opens_the_test_set_too():
    data = Dates(train_size=20, val_size=5, test_size=7)
    data.prepare_data()
    data.setup()
    (loader,) = data.test_dataloader()
    assert loader.count == 7 and str(loader) == "7 sentence pairs"


def test_they_print_what_they_are():
    """Also after setup, where Lightning would look into the endless training batches."""
    data = Dates(train_size=20, val_size=5, test_size=1)
    data.prepare_data()
    data.setup()
    assert repr(data) == str(data) == "<Dates: data for translation>"
    assert str(data.test_dataloader()[0]) == "1 sentence pair"
