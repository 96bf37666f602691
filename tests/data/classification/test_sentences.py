import itertools
import math
from collections import Counter

import labeled_fakes
import pytest

from zoo.data import SICK, SST, TREC6
from zoo.data.classification.sentences import _phrases
from zoo.text import Tokenizer


@pytest.fixture
def root(tmp_path):
    for data_class in (SST, TREC6, SICK):
        labeled_fakes.invent(data_class, {}, tmp_path)
    return str(tmp_path)


def _ready(data):
    data.prepare_data()
    data.setup("fit")
    data.setup("test")
    return data


def _labels(loader):
    return Counter(label for batch in loader for label in batch.labels.tolist())


def test_sst_of_five_classes(root):
    data = _ready(SST(classes=5, root=root))
    assert data.labels == ["very negative", "negative", "neutral", "positive", "very positive"]
    assert (data.structure, data.pair, data.multi_label) == ("text", False, False)
    assert _labels(data.train_dataloader()) == dict.fromkeys(range(5), 16)
    assert _labels(data.val_dataloader()) == _labels(data.test_dataloader()[0]) == dict.fromkeys(range(5), 8)


def test_sst_of_two_classes(root):
    data = _ready(SST(root=root))
    assert data.labels == ["negative", "positive"]
    assert _labels(data.train_dataloader()) == {0: 32, 1: 32}
    assert _labels(data.val_dataloader()) == {0: 16, 1: 16}
    with pytest.raises(ValueError, match="classes must be 2 or 5; got 3"):
        SST(classes=3)


TREE = r"(3 (2 (2 A) (3 (2 film) (2 \/))) (1 (2 -LRB-) (0 bad)))"


def test_phrases_of_a_tree():
    assert sorted(_phrases(TREE)) == sorted(
        [
            (2, "A"),
            (2, "film"),
            (2, r"\/"),
            (3, r"film \/"),
            (2, r"A film \/"),
            (2, "-LRB-"),
            (0, "bad"),
            (1, "-LRB- bad"),
        ]
    )
    assert list(_phrases("(2 alone)")) == []


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (
            5,
            {
                r"film \/": "positive",
                "-LRB- bad": "negative",
                "bad": "very negative",
                r"A film \/": "neutral",
                "A": "neutral",
            },
        ),
        (2, {r"film \/": "positive", "-LRB- bad": "negative", "bad": "negative"}),
    ],
)
def test_sst_phrases(tmp_path, classes, expected):
    sentences = [("train", classes - 2, r"a film \/ -lrb- bad"), ("dev", 0, "good"), ("test", 0, "film /")]
    labeled_fakes.table(tmp_path / f"sst{classes}.tsv", ("split", "label", "text"), sentences)
    labeled_fakes.write(tmp_path / "sst_trees.train.txt", f"{TREE}\n(1 (2 BAD) (0 bad))\n")
    data = SST(classes, phrases=True, root=str(tmp_path))
    first, *phrases = data.examples("train")
    assert first.text == r"a film \/ -lrb- bad" and data.tokenizer is None
    data = _ready(data)
    assert data.tokenizer.decode(data.tokenizer.encode(first.text)).endswith("film / ( bad")
    found = {example.text: example.labels[0] for example in phrases}
    assert len(found) == len(phrases) and len({text.lower() for text in found}) == len(found)  # each once
    assert expected.items() <= {"bad": found.get("BAD"), **found}.items()
    assert "neutral" in found.values() or classes == 2
    assert [example.text for example in data.examples("val")] == ["good"]  # of training only


def test_phrases_are_trained_on(root):
    sentences, phrases = _ready(SST(root=root)), _ready(SST(phrases=True, root=root))
    assert len(phrases._train) > 2 * len(sentences._train) and len(phrases._val) == len(sentences._val)


def test_escapes():
    assert Tokenizer.train([], "word_punct", cleaning=SST.cleaning).clean(r"-LRB- a\/b -rrb- 5\*") == "( a/b ) 5*"


def test_trec(root):
    data = _ready(TREC6(root=root))
    assert data.labels == ["DESC", "ENTY", "ABBR", "HUM", "LOC", "NUM"]
    assert _labels(data.test_dataloader()[0]) == dict.fromkeys(range(6), 10)
    assert _labels(data.train_dataloader()) + _labels(data.val_dataloader()) == dict.fromkeys(range(6), 10)
    assert len(data._val) > 0


def test_sick(root):
    data = _ready(SICK(root=root))
    assert data.pair and data.labels == ["entailment", "neutral", "contradiction"]
    assert _labels(data.train_dataloader()) == dict.fromkeys(range(3), 20)
    example = next(data.examples("val"))
    (batch,) = data.val_dataloader()
    pairs = [[data.tokenizer.encode(text) for text in (example.text, example.text2)]]
    rows = zip(batch.tokens.tolist(), batch.lengths, batch.tokens2.tolist(), batch.lengths2, strict=True)
    assert pairs[0] in [[first[:n], second[:m]] for first, n, second, m in rows]


def test_sick_with_snli(root):
    data = _ready(SICK(extra_snli=True, root=root))
    assert len(data._train) == 60 + 80 and len(data._val) == 60 and len(data._test) == 60
    assert len(data.tokenizer) > len(_ready(SICK(root=root)).tokenizer)


SICK_COLUMNS = ("split", "gold_label", "relatedness", "sentence1", "sentence2")


def _sick(folder, rows, columns=SICK_COLUMNS):
    """A table of these rows in each split, with the columns wanted."""
    rows = [(part, *row) for part in ("train", "dev", "test") for row in rows]
    places = [SICK_COLUMNS.index(column) for column in columns]
    labeled_fakes.table(folder / "sick.tsv", columns, [[row[place] for place in places] for row in rows])
    return str(folder)


def _rows(loader):
    """Label, score and the words of both texts of each pair."""
    found = []
    for batch in loader:
        scores = itertools.repeat(None) if batch.scores is None else batch.scores.tolist()
        texts = zip(batch.tokens.tolist(), batch.lengths, batch.tokens2.tolist(), batch.lengths2)
        found += [
            (label, score, a[:n], b[:m]) for label, score, (a, n, b, m) in zip(batch.labels.tolist(), scores, texts)
        ]
    return found


PAIRS = [
    ("entailment", 4.5, "one a", "two b c"),
    ("neutral", 3.25, "three a", "four b"),
    ("contradiction", 1.0, "five", "six c"),
]


def test_sick_swapped(tmp_path):
    root = _sick(tmp_path, PAIRS)
    plain, swapped = (_ready(SICK(root=root, swapped=swapped, min_frequency=1)) for swapped in (False, True))
    assert swapped.tokenizer.to_json() == plain.tokenizer.to_json()
    encode = swapped.tokenizer.encode
    rows = [(n, score, encode(first), encode(second)) for n, (_, score, first, second) in enumerate(PAIRS)]
    assert sorted(_rows(plain.train_dataloader())) == rows
    both = [rows[0], rows[0], *(row for n, score, a, b in rows[1:] for row in ((n, score, a, b), (n, score, b, a)))]
    assert sorted(_rows(swapped.train_dataloader())) == sorted(both)
    for data in (plain, swapped):  # only training pairs are swapped
        assert sorted(_rows(data.val_dataloader())) == sorted(_rows(data.test_dataloader()[0])) == rows
    assert [example.text for example in swapped.examples("train")] == [
        "one a",
        "one a",
        "three a",
        "four b",
        "five",
        "six c",
    ]


def test_swapped_pairs_do_not_count_twice_in_the_vocabulary(tmp_path):
    root = _sick(tmp_path, PAIRS)
    data = _ready(SICK(root=root, swapped=True, min_frequency=2))
    words = data.tokenizer.tokens(range(len(data.tokenizer)))
    assert {"a", "b", "c"} < set(words) and "three" not in words


def test_words_of_extra_pairs_are_in_the_vocabulary_of_swapped_pairs_too(tmp_path):
    root, extra = _sick(tmp_path, PAIRS), tmp_path / "extra.tsv"
    extra.write_text("text\ttext2\tlabel\na zebra\truns\tneutral\n")
    plain, swapped = (
        _ready(SICK(root=root, swapped=swapped, min_frequency=1, extra_examples=[str(extra)]))
        for swapped in (False, True)
    )
    assert swapped.tokenizer.to_json() == plain.tokenizer.to_json()
    assert "zebra" in swapped.tokenizer.tokens(range(len(swapped.tokenizer)))


def test_scores_survive_the_cache_and_the_order_of_batches(root, monkeypatch):
    first = _ready(SICK(root=root, batch_size=7, pool_batches=2))
    expected = sorted(
        (first.labels.index(e.labels[0]), e.score, *map(first.tokenizer.encode, (e.text, e.text2)))
        for e in first.examples("train")
    )
    assert sorted(_rows(first.train_dataloader())) == expected and len({row[1] for row in expected}) == 5
    monkeypatch.setattr(SICK, "_pairs", lambda self, split: pytest.fail("the text was read again"))
    again = _ready(SICK(root=root, batch_size=7, pool_batches=2))
    assert _rows(again.train_dataloader()) == _rows(
        _ready(SICK(root=root, batch_size=7, pool_batches=2)).train_dataloader()
    )
    assert sorted(_rows(again.train_dataloader())) == expected


def test_the_column_changes_nothing_but_the_scores(root, tmp_path):
    with_scores = _ready(SICK(root=root, batch_size=8))
    rows = [(e.labels[0], e.score, e.text, e.text2) for e in with_scores.examples("train")]
    columns = [column for column in SICK_COLUMNS if column != "relatedness"]
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    batches = []
    for folder, kept in (("a", SICK_COLUMNS), ("b", columns)):
        data = _ready(SICK(root=_sick(tmp_path / folder, rows, kept), batch_size=8))
        batches.append(_rows(data.train_dataloader()))
        assert data.scored == (folder == "a")
        assert ("scores.tokens" in {file.name for file in data._train.folder.iterdir()}) == data.scored
    (scored, plain) = batches
    assert [(label, a, b) for label, _, a, b in scored] == [(label, a, b) for label, _, a, b in plain]
    assert all(row[1] is None for row in plain) and all(1 <= row[1] <= 5 for row in scored)


def test_pairs_of_snli_have_no_score(root):
    data = _ready(SICK(extra_snli=True, root=root))
    rows = _rows(data.train_dataloader())
    assert sum(math.isnan(score) for _, score, _, _ in rows) == 80 and len(rows) == 140
    assert len(_ready(SICK(extra_snli=True, swapped=True, root=root))._train) == 280


@pytest.mark.parametrize("value", ["much", "", "5.5", "nan"])
def test_a_relatedness_that_is_none(tmp_path, value):
    root = _sick(tmp_path, [PAIRS[0], ("neutral", value, "x", "y")])
    with pytest.raises(ValueError) as error:
        SICK(root=root).prepare_data()
    assert (
        str(error.value)
        == f"{tmp_path / 'sick.tsv'}, line 3: 'relatedness' must be a number from 1 to 5; got {value!r}"
    )


def test_missing_files(root, tmp_path):
    (tmp_path / "snli_test.tsv.xz").unlink()
    with pytest.raises(FileNotFoundError, match="SICK: no file snli_test.tsv .*made from https://zenodo.org/"):
        SICK(extra_snli=True, root=root).prepare_data()
    (tmp_path / "sst_trees.train.txt.xz").unlink()
    with pytest.raises(FileNotFoundError, match="SST: no file sst_trees.train.txt"):
        SST(phrases=True, root=root).prepare_data()
    SST(root=root).prepare_data()


def test_label_out_of_range(tmp_path):
    labeled_fakes.table(
        tmp_path / "trec6.tsv", ("split", "label", "text"), [("train", n % 7, f"t {n}") for n in range(70)]
    )
    with pytest.raises(
        ValueError, match="trec6.tsv.*: label '6' is not in the training text, which has 'DESC', 'ENTY'"
    ):
        TREC6(root=str(tmp_path)).prepare_data()
