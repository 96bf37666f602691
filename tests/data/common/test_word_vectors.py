import gzip
import importlib.util
import lzma
import struct

import numpy as np
import pytest
import torch
from labeled_fakes import invent

from zoo.data import IMDB, TREC6, LabeledText
from zoo.data.common.word_vectors import read_vectors
from zoo.text import PAD, UNK, Tokenizer

VECTORS = {"the": [1, 2, 3], "Film": [4, 5, 6], "FILM": [0, 0, 1], "New York": [7, 7, 7], "n't": [-0.5, 1e-3, 2.25]}
TOKENIZER = Tokenizer.train(["the film new n't other"], "word_punct", 50, lowercase=True)


def _text(header, end=""):
    lines = [f"{len(VECTORS)} 3"] * header + [" ".join(map(str, [word, *row])) + end for word, row in VECTORS.items()]
    return "".join(f"{line}\n" for line in lines).encode()


def _binary(line_end=b""):
    rows = [
        word.replace(" ", "_").encode() + b" " + struct.pack("<3f", *row) + line_end for word, row in VECTORS.items()
    ]
    return b"%d 3\n" % len(VECTORS) + b"".join(rows)


FORMATS = {
    "glove.txt": _text(header=False),
    "glove.txt.gz": gzip.compress(_text(header=False)),
    "word2vec.txt": _text(header=True),
    "fasttext.vec": _text(header=True, end=" "),
    "fasttext.vec.xz": lzma.compress(_text(header=True)),
    "word2vec.bin": _binary(),
    "lines.bin": _binary(b"\n"),
    "word2vec.bin.gz": gzip.compress(_binary()),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats(tmp_path, name):
    (tmp_path / name).write_bytes(FORMATS[name])
    vectors = read_vectors(tmp_path / name, TOKENIZER, 3)
    assert vectors.shape == (len(TOKENIZER), 3) and vectors.dtype == np.float32
    rows = dict(zip(TOKENIZER.tokens(range(len(TOKENIZER))), vectors.tolist(), strict=True))
    assert rows["the"] == [1, 2, 3] and rows["n't"] == np.array(VECTORS["n't"], np.float32).tolist()
    assert rows["film"] == [4, 5, 6]  # the first that differs in case only
    assert all(np.isnan(rows[word]).all() for word in ("other", "<pad>", "<unk>", "<s>", "</s>", "new"))


def test_the_same_case_is_preferred(tmp_path):
    (tmp_path / "a.txt").write_text("FILM 1 1\nfilm 2 2\nFilm 3 3\nfilm 4 4\n")
    assert read_vectors(tmp_path / "a.txt", TOKENIZER, 2)[TOKENIZER.encode("film")[0]].tolist() == [2, 2]


def test_words_with_capitals_take_vectors_in_lower_case(tmp_path):
    """A file such as glove.6B has no capitals."""
    tokenizer = Tokenizer.train(["Berlin berlin is The IS Rome"], "word", 50)
    (tmp_path / "a.txt").write_text("berlin 1 1\nBerlin 2 2\nthe 3 3\nThe 4 4\nis 5 5\nrOmE 6 6\nROME 7 7\n")
    vectors = read_vectors(tmp_path / "a.txt", tokenizer, 2)
    rows = dict(zip(tokenizer.tokens(range(len(tokenizer))), vectors[:, 0].tolist(), strict=True))
    assert {word: rows[word] for word in ("berlin", "Berlin", "The", "is", "IS", "Rome")} == {
        "berlin": 1, "Berlin": 2, "The": 4, "is": 5, "IS": 5, "Rome": 6,
    }  # fmt: skip


def test_tabs_in_place_of_spaces(tmp_path):
    for header in (False, True):
        (tmp_path / "a.txt").write_bytes(_text(header).replace(b" ", b"\t"))
        vectors = read_vectors(tmp_path / "a.txt", TOKENIZER, 3)
        assert [vectors[i].tolist() for i in TOKENIZER.encode("the film")] == [[1, 2, 3], [4, 5, 6]]
    (tmp_path / "a.txt").write_text("the\t1 2 3\nfilm\t4 5 6\n")
    assert read_vectors(tmp_path / "a.txt", TOKENIZER, 3)[TOKENIZER.encode("film")[0]].tolist() == [4, 5, 6]


def test_binary_files_larger_than_a_block(tmp_path):
    words = 30_000
    tokenizer = Tokenizer.train([" ".join(f"w{i}" for i in range(0, words, 100))], "word_punct", 1000)
    numbers = np.random.default_rng(0).standard_normal((words, 20)).astype("<f4")  # holds bytes like " " and "\n"
    data = b"".join(b"w%d " % i + row.tobytes() + b"\n" for i, row in enumerate(numbers))
    (tmp_path / "a.bin").write_bytes(b"%d 20\n" % words + data)
    vectors = read_vectors(tmp_path / "a.bin", tokenizer, 20)
    for i in range(0, words, 100):
        assert np.array_equal(vectors[tokenizer.encode(f"w{i}")[0]], numbers[i])


@pytest.mark.parametrize("name", FORMATS)
def test_wrong_size(tmp_path, name):
    (tmp_path / name).write_bytes(FORMATS[name])
    with pytest.raises(
        ValueError, match=f"{name} have 3 numbers each, the model's embedding has 5; use vectors of that"
    ):
        read_vectors(tmp_path / name, TOKENIZER, 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.bin has no word vectors: expected a word and its numbers per line, or a word2vec file"),
        (b"the\nfilm\n", "a.bin has no word vectors"),
        (b"A text of words\nin which each\n", "a.bin has no word vectors"),
        (b"A text\nof words\n", "a.bin has no word vectors"),
        (b"film 1 2 3\nthe 1 2\n", "a.bin, line 2: expected a word and 3 numbers; got 2 numbers"),
        (b"2 3\nfilm 1 2 3\nthe 1 x 3\n", "a.bin, line 3: expected a word and 3 numbers; could not convert"),
        (_binary()[:-3], "a.bin ends after 4 of its 5 words; download it again"),
    ],
)
def test_bad_files(tmp_path, content, message):
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_vectors(tmp_path / "a.bin", TOKENIZER, 3)


# Through a data module


def _data(tmp_path, **options):
    path = tmp_path / "a.tsv"
    lines = [f"the dog likes the cat {n} . It barks !\tdog\nthe sea is blue {n} .\tsea\n" for n in range(40)]
    path.write_text("text\tlabel\n" + "".join(lines))
    data = LabeledText(str(path), **options)
    data.prepare_data()
    data.setup("fit")
    return data


def test_no_vectors(tmp_path):
    assert _data(tmp_path).vectors(3) is None


def test_vectors_of_a_file(tmp_path):
    (tmp_path / "glove.txt").write_bytes(_text(header=False))
    data = _data(tmp_path, word_vectors=str(tmp_path / "glove.txt"))
    vectors, found = data.vectors(3)
    assert vectors.shape == (len(data.tokenizer), 3) and vectors.dtype == torch.float32 and found.dtype == torch.bool
    (the,) = data.tokenizer.encode("the")
    assert found.nonzero().tolist() == [[the]] and vectors[the].tolist() == [1, 2, 3]
    assert not vectors[~found].any()
    (tmp_path / "glove.txt").write_text("the 3 2 1\n")  # another file, another result
    assert data.vectors(3)[0][the].tolist() == [3, 2, 1]


def test_missing_file(tmp_path):
    data = _data(tmp_path, word_vectors="nowhere.txt")
    with pytest.raises(FileNotFoundError, match="word_vectors must be 'word2vec' or a file .* no file 'nowhere.txt'"):
        data.vectors(3)


def test_word2vec_without_gensim(tmp_path, monkeypatch):
    data = _data(tmp_path, word_vectors="word2vec")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError) as caught:
        data.vectors(3)
    assert str(caught.value) == ('word_vectors "word2vec" needs gensim; install with: pip install "gensim>=4.3"')


def test_word2vec(tmp_path, monkeypatch):
    pytest.importorskip("gensim")
    data = _data(tmp_path, word_vectors="word2vec", word2vec_epochs=2)
    vectors, found = data.vectors(8)
    assert vectors.shape == (len(data.tokenizer), 8) and vectors.isfinite().all()
    trained = {i for batch in data.train_dataloader() for i in batch.tokens.flatten().tolist()} - {PAD}
    assert set(found.nonzero()[:, 0].tolist()) == trained and UNK in trained
    monkeypatch.setattr("zoo.data.common.word_vectors._word2vec", lambda *args: pytest.fail("they were learnt again"))
    assert torch.equal(data.vectors(8)[0], vectors)


def test_word2vec_tells_topics_apart(tmp_path):
    pytest.importorskip("gensim")
    rng = np.random.default_rng(0)
    topics = [[f"{letter}{number}" for number in range(8)] for letter in "ab"]
    lines = [" ".join(rng.choice(topics[number % 2], 12)) + f"\t{number % 2}\n" for number in range(300)]
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "".join(lines))
    data = LabeledText(str(tmp_path / "a.tsv"), word_vectors="word2vec", word2vec_epochs=50)
    data.prepare_data()
    data.setup("fit")
    ids = [data.tokenizer.encode(" ".join(words)) for words in topics]
    a, b = torch.nn.functional.normalize(data.vectors(8)[0], dim=1)[torch.tensor(ids)]  # (8, 8) each
    assert min((a @ a.T).mean(), (b @ b.T).mean()) > (a @ b.T).mean() + 0.3


def test_word2vec_is_repeatable(tmp_path, monkeypatch):
    pytest.importorskip("gensim")
    first = _data(tmp_path, word_vectors="word2vec").vectors(4)[0]
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "another"))
    assert torch.equal(_data(tmp_path, word_vectors="word2vec").vectors(4)[0], first)
    assert not torch.equal(_data(tmp_path, word_vectors="word2vec", seed=1).vectors(4)[0], first)


def test_word2vec_reads_sentences(tmp_path, monkeypatch):
    pytest.importorskip("gensim")
    seen = []
    monkeypatch.setattr("gensim.models.Word2Vec", lambda sentences, **options: seen.extend(sentences) or _Nothing())
    _data(tmp_path, word_vectors="word2vec", split_sentences=True).vectors(4)
    assert {len(sentence) for sentence in seen} == {7, 3, 6}  # not 10: the dog's document has two sentences


class _Nothing:
    class wv:
        index_to_key: list = []
        vectors = np.zeros((0, 4), np.float32)


def test_extra_text(tmp_path):
    pytest.importorskip("gensim")
    invent(TREC6, {}, tmp_path)
    invent(IMDB, {}, tmp_path)
    plain = TREC6(root=str(tmp_path), min_frequency=1)
    wide = TREC6(root=str(tmp_path), min_frequency=1, extra_text=["IMDB"], word_vectors="word2vec")
    for data in (plain, wide):
        data.prepare_data()
        data.setup("fit")
    own, all_words = (set(data.tokenizer.tokens(range(len(data.tokenizer)))) for data in (plain, wide))
    assert own < all_words and "word9" in all_words - own  # a word of the other set's reviews only
    vectors, found = wide.vectors(5)
    assert found[wide.tokenizer.encode("word9")].all() and vectors.shape == (len(wide.tokenizer), 5)
    assert len(wide.train_dataloader().stream.arrays) == len(
        plain.train_dataloader().stream.arrays
    )  # nothing more to train on
    with pytest.raises(
        ValueError,
        match="extra_text must name data sets of this package: CaptionPairs, FDUMTL, IMDB, Reuters, .*; got 'imdb'",
    ):
        TREC6(extra_text=["imdb"])
