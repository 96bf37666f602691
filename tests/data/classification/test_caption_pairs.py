from collections import Counter

import captions_fakes
import labeled_fakes
import pytest

from zoo.data import TREC6, CaptionPairs


@pytest.fixture
def root(tmp_path):
    labeled_fakes.invent(CaptionPairs, {}, tmp_path / "data")
    return str(tmp_path / "data")


def _photo(text):
    """Of the invented captions, one word of each names its photo."""
    (name,) = [word for word in text.split() if word.startswith("word")]
    return name


@pytest.mark.parametrize(("split", "photos"), [("train", 12), ("val", 4), ("test", 3)])
def test_labels_say_whether_the_photo_is_the_same(root, split, photos):
    examples = list(CaptionPairs(root=root).examples(split))
    assert len(examples) == 2 * 5 * photos
    for example in examples:
        same = _photo(example.text) == _photo(example.text2)
        assert example.labels == (("same",) if same else ("different",)) and example.text != example.text2
        assert _photo(example.text).startswith(f"word{split}") and _photo(example.text2).startswith(f"word{split}")
    firsts = Counter((example.text, example.labels[0]) for example in examples)
    assert set(firsts.values()) == {1} and len(firsts) == len(examples)  # each caption once with each label
    assert set(Counter(e.text2 for e in examples if e.labels == ("same",)).values()) == {
        1
    }  # and once as the other of its photo


def test_pairs_are_drawn_reproducibly(root):
    first, again, other = (list(CaptionPairs(root=root, draw_seed=seed).examples("train")) for seed in (0, 0, 1))
    assert first == again != other
    assert Counter(example.text for example in first) == Counter(example.text for example in other)
    data = [CaptionPairs(root=root, draw_seed=seed, seed=order) for seed, order in ((0, 0), (0, 1), (1, 0), (0, 0))]
    data[3].draws = 2
    keys = [d._signature("train") for d in data]
    assert (
        keys[0] == keys[1] and keys[2] != keys[0] != keys[3] and data[3]._signature("val") == data[0]._signature("val")
    )


def test_several_draws_have_other_partners(root):
    examples = list(CaptionPairs(root=root, draws=4).examples("train"))
    assert len(examples) == 4 * 120
    same = {(example.text, example.text2) for example in examples if example.labels == ("same",)}
    assert len(same) == 4 * 60  # all ordered pairs of five captions
    different = {(example.text, example.text2) for example in examples if example.labels == ("different",)}
    assert len(different) > 220
    assert len(list(CaptionPairs(root=root, draws=4).examples("val"))) == 40
    with pytest.raises(ValueError, match="draws must be at least 1; got 0"):
        CaptionPairs(draws=0)


def test_batches_and_vocabulary(root):
    data = CaptionPairs(root=root, min_frequency=1, batch_size=8)
    data.prepare_data()
    data.setup("fit")
    data.setup("test")
    assert data.pair and data.labels == ["different", "same"]
    for loader, photos in ((data.train_dataloader(), 12), (data.val_dataloader(), 4), (data.test_dataloader()[0], 3)):
        labels = Counter(label for batch in loader for label in batch.labels.tolist())
        assert labels == {0: 5 * photos, 1: 5 * photos}
        assert all(batch.scores is None for batch in loader)
    words = set(data.tokenizer.tokens(range(len(data.tokenizer))))
    assert "wordtrain3" in words and "wordval3" not in words  # of the training captions


def test_vocabulary_and_vectors_count_each_caption_once(root, tmp_path):
    pytest.importorskip("gensim")
    labeled_fakes.invent(TREC6, {}, tmp_path / "data")
    often = CaptionPairs(
        root=root, draws=3, min_frequency=6, word_vectors="word2vec", word2vec_epochs=1, extra_text=["TREC6"]
    )
    often.prepare_data()
    often.setup("fit")
    words = often.tokenizer.tokens(range(len(often.tokenizer)))
    assert (
        "wordtrain3" not in words and "number3" in words and "What" not in words and "what" in words
    )  # 5, 12 and 60 times
    _, found = often.vectors(4)
    assert found[often.tokenizer.encode("number3 what")].all()
    captions = often.once()
    assert sum(1 for _ in captions.examples("train")) == 60
    alone = TREC6(root=root, min_frequency=6, extra_text=["CaptionPairs"])
    alone.prepare_data()
    alone.setup("fit")
    assert set(alone.tokenizer.tokens(range(len(alone.tokenizer)))) == set(words)


@pytest.mark.parametrize("write", [captions_fakes.flickr8k_archives, captions_fakes.flickr8k_authors])
def test_both_forms_and_no_image(tmp_path, write):
    splits = captions_fakes.sample()
    write(tmp_path / "flickr8k", {}, splits)
    photos = {split: list(CaptionPairs(root=str(tmp_path))._photos.records(split)) for split in splits}
    expected = list(CaptionPairs(root=str(tmp_path)).examples("val"))
    for path in [*tmp_path.rglob("*.tar"), *tmp_path.rglob("*.png")]:
        path.unlink()
    data = CaptionPairs(root=str(tmp_path), min_frequency=1)
    data.prepare_data()
    assert list(data.examples("val")) == expected and len(expected) == 60
    assert {split: len(records) for split, records in photos.items()} == {"train": 24, "val": 6, "test": 6}


def test_missing_and_too_few(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="CaptionPairs: no file captions.tsv .*captions.tsv, or the authors' Flickr8k.token.txt"
    ):
        CaptionPairs(root=str(tmp_path)).prepare_data()
    rows = [("a.jpg", "train", n, f"text {n}") for n in range(5)] + [("b.jpg", "train", 0, "alone")]
    labeled_fakes.table(tmp_path / "captions.tsv", ("image", "split", "caption_id", "caption"), rows)
    with pytest.raises(ValueError, match=r"captions.tsv: two train photos with two captions or more are needed; got 1"):
        CaptionPairs(root=str(tmp_path)).prepare_data()
