import gzip
import io
import lzma
import os
import tarfile
from collections import Counter

import labeled_fakes
import pytest
import torch

from zoo.batches.classification import DocumentBatch, TextBatch
from zoo.data import FDUMTL, IMDB, SICK, SST, TREC6, LabeledText, Reuters, TwentyNewsgroups
from zoo.data.classification.arrays import Example
from zoo.data.classification.documents import _stripped
from zoo.models.han import HAN


@pytest.fixture
def root(tmp_path):
    for data_class in (IMDB, Reuters, TwentyNewsgroups):
        labeled_fakes.invent(data_class, {}, tmp_path / "text")
    return str(tmp_path)


def _ready(data):
    data.prepare_data()
    data.setup("fit")
    data.setup("test")
    return data


def _labels(loader):
    return Counter(label for batch in loader for label in batch.labels.tolist())


@pytest.mark.parametrize("place", ["", "text"])
def test_imdb(root, place):
    data = _ready(IMDB(root=f"{root}/{place}", batch_size=16))
    assert (data.structure, data.pair, data.multi_label) == ("document", False, False)
    assert data.labels == ["negative", "positive"]
    (loader,) = data.test_dataloader()
    assert _labels(loader) == {0: 40, 1: 40}
    assert sum(_labels(data.train_dataloader()).values()) + sum(_labels(data.val_dataloader()).values()) == 80
    assert all(isinstance(batch, DocumentBatch) for batch in loader)


def test_imdb_ratings_and_plain_texts(root):
    data = _ready(IMDB(split_sentences=False, rating=True, root=root))
    assert data.labels == ["1", "2", "3", "4", "7", "8", "9", "10"] and data.structure == "text"
    assert _labels(data.test_dataloader()[0]) == dict.fromkeys(range(8), 10)
    assert all(isinstance(batch, TextBatch) for batch in data.val_dataloader())


def test_imdb_line_breaks_end_sentences(tmp_path):
    rows = [(n, n % 2, 1, "no full stop<br /><br />Next part. One line<br/>goes on") for n in range(40)]
    for part in ("train", "test"):
        labeled_fakes.table(tmp_path / f"imdb_{part}.tsv", ("id", "label", "rating", "text"), rows)
    data = IMDB(root=str(tmp_path))
    assert next(data.examples("test")).text == "no full stop\n\nNext part. One line\ngoes on"
    rows[0] = (0, 0, 1, "other words")  # so that something is held out and something is not
    labeled_fakes.table(tmp_path / "imdb_train.tsv", ("id", "label", "rating", "text"), rows)
    data = IMDB(root=str(tmp_path), split_seed=next(s for s in range(99) if _holds_out(tmp_path, s, "other words")))
    batch = next(iter(_ready(data).test_dataloader()[0]))
    assert batch.sentence_lengths.tolist() == [3, 3, 4] * 40 and batch.document_lengths.tolist() == [3] * 40


def _holds_out(root, seed, text):
    held_out = [example.text for example in IMDB(root=str(root), split_seed=seed).examples_of("val")]
    return held_out == [text]


def test_unknown_label_of_a_published_file(tmp_path):
    rows = [(n, n % 3, 1, f"text {n}") for n in range(40)]
    labeled_fakes.table(tmp_path / "imdb_train.tsv", ("id", "label", "rating", "text"), rows)
    labeled_fakes.table(tmp_path / "imdb_test.tsv", ("id", "label", "rating", "text"), rows)
    with pytest.raises(
        ValueError, match="imdb_train.tsv: label '2' is not in the training text, which has 'negative', 'p"
    ):
        IMDB(root=str(tmp_path)).prepare_data()


def test_reuters(root):
    data = _ready(Reuters(root=root))
    assert data.labels == [f"topic-{number}" for number in range(90)]  # none that is in one split only; natural order
    (loader,) = data.test_dataloader()
    labels = torch.cat([batch.labels for batch in loader])
    assert labels.shape == (180, 90) and labels.dtype == torch.float32
    assert labels.sum(0).min() >= 1 and set(labels.sum(1).tolist()) == {1.0, 2.0}
    assert _labels_of(data) == {"only-train", "only-test"}
    example = next(data.examples("train"))
    assert example.text.startswith("A TITLE\n\n")
    words = data.tokenizer.encode("A TITLE")
    firsts = [batch.words[:2].tolist() for batch in loader]
    assert all(first == words for first in firsts)


def _labels_of(data):
    """Topics in the file that are no labels."""
    return {topic for topics in data._rows("topics") for topic in topics[0]} - set(data.labels)


def test_twenty_newsgroups(root):
    data = _ready(TwentyNewsgroups(root=root))
    assert len(data.labels) == 20 and _labels(data.test_dataloader()[0]) == dict.fromkeys(range(20), 4)
    assert data.tokenizer.encode("wordquoted Subject Person") == [1, 1, 1]
    whole = _ready(TwentyNewsgroups(strip=False, root=root))
    assert 1 not in whole.tokenizer.encode("wordquoted Subject Person")


def test_fdu_mtl(tmp_path):
    labeled_fakes.invent(FDUMTL, {}, tmp_path)
    root = str(tmp_path)
    data = _ready(FDUMTL(root=root, batch_size=16))
    assert (data.structure, data.labels) == ("document", ["negative", "positive"])
    assert _labels(data.test_dataloader()[0]) == {0: 20, 1: 20}
    texts = {split: [example.text for example in data.examples(split)] for split in ("train", "val", "test")}
    assert {text.split()[0] for split in texts.values() for text in split} == {"books"}
    assert len(texts["train"]) + len(texts["val"]) == 120 and not {*texts["train"], *texts["val"]} & {*texts["test"]}
    assert 3 <= len(texts["val"]) <= 25 and not {*texts["train"]} & {*texts["val"]}
    assert sum(_labels(data.train_dataloader()).values()) == len(texts["train"])

    def sample(count, seed=0):
        sampled = FDUMTL(train_examples=count, sample_seed=seed, root=root)
        assert [example.text for example in sampled.examples("val")] == texts[
            "val"
        ]  # held out of all, not of the sample
        return {example.text for example in sampled.examples("train")}

    few, more = sample(10), sample(50)
    assert len(few) == 10 and len(more) == 50 and few < more < {*texts["train"]} and sample(10, 1) != few == sample(10)
    assert sum(_labels(_ready(FDUMTL(train_examples=10, root=root)).train_dataloader()).values()) == 10
    assert {example.text.split()[0] for example in FDUMTL("MR", root=root).examples("train")} == {"MR"}
    assert FDUMTL(split_sentences=False, root=root).structure == "text"
    with pytest.raises(ValueError, match=f"train_examples must be at most {len(texts['train'])} for books; got 900"):
        sample(900)
    with pytest.raises(ValueError, match="domain must be one of 'books', .*'MR'; got 'book'"):
        FDUMTL("book")


def test_stripped_messages():
    message = (
        "From: me\nSubject: Re: it\n\nIn article <1@x> you wrote:\n> quoted\n| quoted\n  > too\n"
        "a@b (C D) writes:\nMy words.\n\nMore - words\n\n--\nMe\nMy place\n"
    )
    assert _stripped(message) == "My words.\n\nMore - words\n"
    assert _stripped("Subject: nothing\n\nonly one paragraph") == "only one paragraph"
    assert _stripped("Subject: nothing\n\n") == "" == _stripped("no header end")


# Own texts, of which some are held out


@pytest.mark.parametrize("count", [2, 9])
@pytest.mark.parametrize("fraction", [0.001, 0.499])
def test_of_few_texts_one_is_held_out_at_least(tmp_path, count, fraction):
    texts = [f"text {number}" for number in range(count)]
    labeled_fakes.table(tmp_path / "few.tsv", ("label", "text"), [(text[-1], text) for text in texts])
    data = LabeledText(str(tmp_path / "few.tsv"), val_fraction=fraction)
    held_out = [example.text for example in data.examples_of("val")]
    assert 0 < len(held_out) < count
    assert sorted([*held_out, *(example.text for example in data.examples_of("train"))]) == texts


def test_equal_texts_cannot_be_held_out(tmp_path):
    labeled_fakes.table(tmp_path / "same.tsv", ("label", "text"), [("a", "text"), ("b", "text")])
    with pytest.raises(ValueError, match=r"same.tsv has no two different texts, .* as val= \(--data.val FILE\)"):
        LabeledText(str(tmp_path / "same.tsv")).prepare_data()


@pytest.mark.parametrize("name", ["MINE.CSV", "mine.Csv.GZ"])
def test_spaces_around_labels_and_capitals_in_names(tmp_path, name):
    """As spreadsheets and other systems write them."""
    table = b"text,label\none,cook\ntwo,cook \nthree, bike\n"
    (tmp_path / name).write_bytes(gzip.compress(table) if name.endswith("GZ") else table)
    data = LabeledText(str(tmp_path / name), val=str(tmp_path / name))
    assert [example.labels for example in data.examples("train")] == [("cook",), ("cook",), ("bike",)]


def test_utf_16(tmp_path):
    (tmp_path / "mine.csv").write_text("text,label\none,cook\n", encoding="utf-16")
    with pytest.raises(ValueError, match="line 1: this is utf-16 text, as some spreadsheets save it; save the file as"):
        LabeledText(str(tmp_path / "mine.csv")).prepare_data()


# Archives


def _archive(path, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def _downloads(monkeypatch, files):
    asked = []

    def fetch(remote, path):
        asked.append(remote.url)
        _archive(path, files)

    monkeypatch.setattr("zoo.data.classification.published.fetch", fetch)
    return asked


def test_imdb_is_made_from_its_archive(monkeypatch):
    files = {"aclImdb/README": b"read me", "aclImdb/train/unsup/1_0.txt": b"no label"}
    for number in range(30):
        for part in ("train", "test"):
            files[f"aclImdb/{part}/pos/{number}_10.txt"] = f"good\tcaf\u00e9\n{part} {number}".encode()
            files[f"aclImdb/{part}/neg/{number}_1.txt"] = f"bad {part} {number}".encode()
    asked = _downloads(monkeypatch, files)
    for _ in range(2):
        data = _ready(IMDB())
    assert asked == ["https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"]
    examples = list(data.examples("train"))
    assert [example.text for example in examples[:2]] == ["bad train 0", "bad train 1"]
    assert examples[-1] == Example("good café train 29", None, ("positive",))
    assert len(examples) == 60 and len(list(IMDB(rating=True).examples("test"))) == 60
    assert not list((data.cache / "downloads").rglob("*.gz"))


def test_an_archive_with_other_content(monkeypatch):
    _downloads(monkeypatch, {"aclImdb/README": b""})
    with pytest.raises(ValueError, match="aclImdb_v1.tar.gz has changed: it has no aclImdb/train/pos/0_9.txt"):
        IMDB().prepare_data()


def test_twenty_newsgroups_are_made_from_their_archive(monkeypatch):
    files = {
        f"20news-bydate-{part}/{label}/{number}": f"Subject: x\n\n{part} \u00e9 {number} {label}".encode("latin-1")
        for part in ("train", "test")
        for label in TwentyNewsgroups.known_labels
        for number in (10, 9)
    }
    asked = _downloads(monkeypatch, files)
    data = _ready(TwentyNewsgroups())
    assert asked == ["http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz"]
    assert [example.text for example in data.examples("test")][:2] == [f"test é {n} alt.atheism" for n in (9, 10)]
    assert _labels(data.test_dataloader()[0]) == dict.fromkeys(range(20), 2)


def test_files_without_an_archive(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError) as caught:
        Reuters(root=str(tmp_path)).prepare_data()
    message = str(caught.value)
    assert (
        f"Reuters: no file reuters_modapte.jsonl (or .gz, .xz) in {tmp_path}/reuters, {tmp_path}/text/reuters"
        in message
    )
    assert "with it. It is made from https://archive.ics.uci.edu/" in message and "\n" not in message

    def no_network(remote, path):
        raise ConnectionError(f"cannot download {remote.url}: no network")

    monkeypatch.setattr("zoo.data.classification.published.fetch", no_network)
    with pytest.raises(
        FileNotFoundError, match="no file imdb_train.tsv .*no network. .* run once on a machine with a net"
    ):
        IMDB(root=str(tmp_path)).prepare_data()
    with pytest.raises(FileNotFoundError, match="root is the folder /nowhere, which does not exist"):
        IMDB(root="/nowhere").prepare_data()


# LabeledText


ROWS = [(f"{'good' if number % 2 else 'bad'} text {number}.", "yes" if number % 2 else "no") for number in range(60)]


def _table(path, rows=ROWS):
    labeled_fakes.table(path, ("text", "label"), rows)
    return str(path)


def _folders(path, rows=ROWS):
    for number, (text, label) in enumerate(rows):
        labeled_fakes.write(path / label / f"{number}.txt", f"{text}\nMore.\n")
    return str(path)


def _json(path, rows=ROWS):
    labeled_fakes.json_lines(path, [{"text": text, "label": label, "more": None} for text, label in rows])
    return str(path)


@pytest.mark.parametrize(
    ("write", "name"),
    [(_table, "a.tsv"), (_table, "a.txt.xz"), (_json, "a.jsonl"), (_json, "a.jsonl.xz"), (_folders, "a")],
)
def test_labeled_text(tmp_path, write, name):
    paths = [write(tmp_path / part / name) for part in ("train", "val", "test")]
    data = _ready(LabeledText(*paths, batch_size=8))
    assert data.labels == ["no", "yes"]
    for loader in (data.train_dataloader(), data.val_dataloader(), *data.test_dataloader()):
        found = [(row[: n - 2], y) for batch in loader for row, n, y in zip(*(x.tolist() for x in batch[:3]))]
        good, bad = data.tokenizer.encode("good bad")
        assert len(found) == 60 and all(row[0] == (good if label else bad) for row, label in found)


def test_labeled_text_of_gzip_and_other_columns(tmp_path, monkeypatch):
    with gzip.open(tmp_path / "a.tsv.gz", "wt", encoding="cp1252", newline="") as file:
        file.write("kind\tnr\tbody\r\n" + "".join(f"{n % 12}\t{n}\tcafé {n}\r\n" for n in range(60)))
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    data = LabeledText("a.tsv.gz", text_column="body", label_column="kind", encoding="cp1252")
    data.prepare_data()
    data.setup("fit")
    assert data.labels == [str(number) for number in range(12)]  # natural order
    assert sorted(example.text for example in data.examples("train")) == sorted(f"café {n}" for n in range(60))


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_several_labels(tmp_path, name):
    rows = [(f"text {number}", [["a", "b"], ["b"], []][number % 3]) for number in range(60)]
    if name == "a.tsv":
        _table(tmp_path / name, [(text, " | ".join(labels)) for text, labels in rows])
    else:
        _json(tmp_path / name, rows)
    data = _ready(LabeledText(*[str(tmp_path / name)] * 3, multi_label=True))
    labels = torch.cat([batch.labels for batch in data.val_dataloader()])
    assert sorted(labels.tolist()) == [[0.0, 0.0]] * 20 + [[0.0, 1.0]] * 20 + [[1.0, 1.0]] * 20


def test_spaces_around_several_labels(tmp_path):
    _json(tmp_path / "a.jsonl", [("one", ["x ", " y"]), ("two", ["x"])])
    data = LabeledText(*[str(tmp_path / "a.jsonl")] * 3, multi_label=True)
    assert [example.labels for example in data.examples("train")] == [("x", "y"), ("x",)]


def test_pairs(tmp_path):
    rows = [(f"first {number}", f"the second {number}", "yes" if number % 2 else "no") for number in range(60)]
    labeled_fakes.table(tmp_path / "a.tsv", ("one", "two", "label"), rows)
    data = _ready(LabeledText(*[str(tmp_path / "a.tsv")] * 3, text_column="one", text2_column="two", batch_size=7))
    batches = list(data.test_dataloader()[0])
    assert data.pair and sum(len(batch.labels) for batch in batches) == 60
    for batch in batches:
        assert batch.lengths.tolist() == [2] * len(batch.labels) and batch.lengths2.tolist() == [3] * len(batch.labels)
        assert torch.equal(batch.tokens[:, 1], batch.tokens2[:, 2])  # the number is the same in both


def _fails(error, match, *arguments, **options):
    with pytest.raises(error, match=match) as caught:
        LabeledText(*(argument and str(argument) for argument in arguments), **options).prepare_data()
    assert "\n" not in str(caught.value)


def test_bad_paths_and_options(tmp_path):
    train = _table(tmp_path / "a.tsv")
    _fails(
        FileNotFoundError, r"train \(--data.train\): there is no file or folder .*nowhere.tsv", tmp_path / "nowhere.tsv"
    )
    _fails(FileNotFoundError, "root is the folder /nowhere, which does not exist", "a.tsv", root="/nowhere")
    _fails(ValueError, "encoding must be a superset of ASCII, .*; got 'utf-16'", train, encoding="utf-16")
    _fails(ValueError, "encoding must be a superset of ASCII, .*; got 'latin-99'", train, encoding="latin-99")
    _fails(
        ValueError, "split_sentences and text2_column exclude each other", train, split_sentences=True, text2_column="b"
    )
    with pytest.raises(ValueError, match=r"there is no test text: give test= \(--data.test\) a file or a folder"):
        data = LabeledText(train)
        data.prepare_data()
        data.setup("test")


def test_bad_tables(tmp_path):
    train = _table(tmp_path / "a.tsv")
    _fails(
        ValueError, "a.tsv has no column 'target'; its first line names 'text', 'label'", train, label_column="target"
    )
    labeled_fakes.write(tmp_path / "b.tsv", "text\tlabel\na\tb\n\nc\td\te\n")
    _fails(
        ValueError, "b.tsv, line 4: expected 2 tab-separated columns as in the first line; got 3", tmp_path / "b.tsv"
    )
    for text, message in (("", "c.tsv is empty"), ("text\tlabel\n", "c.tsv has a header and no row")):
        labeled_fakes.write(tmp_path / "c.tsv", text)
        _fails(ValueError, message, tmp_path / "c.tsv")
    labeled_fakes.write(tmp_path / "c.tsv", "text\tlabel\na\tyes\nb\t \n")
    _fails(ValueError, "c.tsv: example 2 has no label; give it one, or remove the row", tmp_path / "c.tsv")
    _table(tmp_path / "d.tsv", [(" ", "yes")] * 30)
    _fails(ValueError, "d.tsv: it has no text with words", tmp_path / "d.tsv", train)
    _table(tmp_path / "e.tsv", [("same text", "yes")] * 30)
    _fails(
        ValueError,
        "e.tsv has no two different texts, so none can be held out; give others as val=",
        tmp_path / "e.tsv",
        split_seed=1,
    )
    lines = 'text,label\na,no\nb,"y\nes"\n'
    labeled_fakes.write(tmp_path / "g.csv", lines)
    _fails(
        ValueError,
        r"g.csv.*: the labels must be a list of texts without control characters, such as line ends and tabs; it has "
        r"'y\\nes'",
        tmp_path / "g.csv",
    )
    _table(tmp_path / "f.tsv", [*ROWS, ("text", "maybe")])
    _fails(
        ValueError, "f.tsv: label 'maybe' is not in the training text, which has 'no', 'yes'", train, tmp_path / "f.tsv"
    )
    _fails(ValueError, "f.tsv: label 'maybe' is not in", train, None, tmp_path / "f.tsv")


def test_bad_json_lines(tmp_path):
    def fails(match, line, **options):
        labeled_fakes.write(tmp_path / "a.jsonl", f'{{"text": "a", "label": ["b"]}}\n{line}\n')
        _fails(ValueError, match, tmp_path / "a.jsonl", multi_label=True, **options)

    fails("a.jsonl, line 2: not JSON .*; expected one object per line", '{"text":')
    fails("a.jsonl, line 2: expected a JSON object; got 3", "3")
    fails("a.jsonl, line 2 has no field 'label'; it has 'text', 'topic'", '{"text": "a", "topic": 1}')
    fails("a.jsonl, line 2: 'label' must be a list of strings; got 'b'", '{"text": "a", "label": "b"}')
    fails("a.jsonl, line 2: 'text' must be a string; got None", '{"text": null, "label": []}')
    fails("a.jsonl, line 2: 'text' must be a string; got True", '{"text": true, "label": []}')
    fails("a.jsonl, line 2: 'text' is not valid text: surrogates not allowed", '{"text": "\\ud83d", "label": []}')


def test_bad_folders(tmp_path):
    (tmp_path / "empty").mkdir()
    _fails(ValueError, "empty has no class folders; put the texts of each label", tmp_path / "empty")
    folder = _folders(tmp_path / "a")
    _fails(ValueError, "a: folders of classes do not support text2_column or multi_label", folder, multi_label=True)
    (tmp_path / "a" / "maybe").mkdir()
    _fails(ValueError, "maybe has no files: put the texts of this class there, or remove the folder", folder)


def test_binary_files_and_other_encodings(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"text\tlabel\nfine\tyes\n" + "schön\tno\n".encode("latin-1"))
    message = (
        r"a.tsv, line 3: byte 0xf6 \(number 4 of the line\) is not utf-8 text; if the file is text, pass its encoding="
    )
    _fails(ValueError, message, path)
    path.write_bytes(bytes(range(256)))
    _fails(ValueError, "a.tsv, line 1: has a zero byte, so this is a binary file", path, encoding="latin-1")
    path.write_bytes("text\tlabel\n".encode("utf-16"))
    _fails(ValueError, "a.tsv, line 1: this is utf-16 text, as some spreadsheets save it; save the file as utf-8", path)
    for name in ("a.tsv.gz", "a.tsv.xz"):
        (tmp_path / name).write_bytes(b"text\tlabel\n")
        _fails(ValueError, f"{name}: not a complete .{name[-2:]} file", tmp_path / name)
    (tmp_path / "b.tsv.xz").write_bytes(lzma.compress(b"text\tlabel\n" * 9999)[:-20])
    _fails(ValueError, "b.tsv.xz: not a complete .xz file", tmp_path / "b.tsv.xz")


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbftext\tlabel\nfine\tyes\n")
    assert [*LabeledText(str(tmp_path / "a.tsv")).examples("train")] == [Example("fine", None, ("yes",))]


def test_an_edited_folder_is_read_again(tmp_path):
    folder = _folders(tmp_path / "a")
    data = _ready(LabeledText(folder, folder, folder))
    labeled_fakes.write(tmp_path / "a" / "yes" / "new.txt", "a new text")
    again = _ready(LabeledText(folder, folder, folder))
    assert len(again._test) == len(data._test) + 1


# The real files


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data_class", "options", "counts"),
    [
        (IMDB, {}, (25_000, 0, 25_000)),
        (Reuters, {}, (7_770, 0, 3_019)),
        (TwentyNewsgroups, {}, (11_314, 0, 7_532)),
        (SST, {"classes": 5}, (8_544, 1_101, 2_210)),
        (SST, {}, (6_920, 872, 1_821)),
        (TREC6, {}, (5_452, 0, 500)),
        (SICK, {}, (4_500, 500, 4_927)),
        (SICK, {"extra_snli": True}, (24_166, 500, 4_927)),
    ],
)
def test_sizes_of_the_real_sets(data_class, options, counts):
    if "ZOO_TEST_DATA" not in os.environ:
        pytest.skip("needs the real files: set ZOO_TEST_DATA to the folder that holds them")
    data = data_class(root=os.environ["ZOO_TEST_DATA"], **options)
    splits = ("train", "val", "test") if counts[1] else ("train", "test")
    labels = [Counter(label for example in data.examples(split) for label in example.labels) for split in splits]
    assert [sum(1 for _ in data.examples(split)) for split in splits] == [count for count in counts if count]
    assert len(labels[0]) == (90 if data_class is Reuters else len(data.known_labels))
    assert all(set(found) == set(labels[0]) for found in labels)


def test_texts_of_one_label_only(tmp_path):
    (tmp_path / "t.tsv").write_text("label\ttext\n" + "".join(f"x\tgood {n}\n" for n in range(40)))
    data = LabeledText("t.tsv", root=str(tmp_path), split_sentences=True)
    data.prepare_data()
    data.setup("fit")
    with pytest.raises(ValueError, match="t.tsv: all texts have the label 'x'; give texts of two labels or more"):
        HAN(**{**HAN.tiny, "num_classes": 2}).adapt(data, "fit")


def test_labels_of_the_same_number_have_an_order_too(tmp_path):
    names = ["1", "01", "001", "0001", "00001", "2"]
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "".join(f"word {n}\t{name}\n" for n, name in enumerate(names)))
    assert LabeledText(str(path))._own_label_names() == ["00001", "0001", "001", "01", "1", "2"]
