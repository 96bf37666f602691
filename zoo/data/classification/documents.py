"""Document classification: IMDB, Reuters, 20 Newsgroups, FDU-MTL, and your own texts."""

import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from zoo.data.classification.arrays import Example
from zoo.data.classification.base import LabeledData, LabeledOptions
from zoo.data.classification.published import PublishedTexts
from zoo.data.common.base import Split
from zoo.data.common.download import RemoteFile
from zoo.data.common.files import check_encoding, draw, fingerprint, missing, own_path, read_lines
from zoo.data.common.tables import read_table
from zoo.utils.atomic import write_text
from zoo.utils.numbers_given import check_at_least
from zoo.utils.unpack import Unpack


class IMDB(PublishedTexts):
    """Large Movie Review Dataset: 25,000 / 25,000 film reviews (Maas et al. 2011); validation is held out of training.

    Read from `imdb_train.tsv` and `imdb_test.tsv` (columns id, label 0 or 1, rating, text), which are made from the
    authors' archive.

    Args:
        split_sentences: documents of sentences; False gives plain texts.
        rating: 8 classes, the stars 1 to 4 and 7 to 10, instead of negative and positive.
        **options: see `LabeledData`.
    """

    folder = "imdb"
    upstream = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
    archive = RemoteFile(upstream)  # the authors publish no checksum
    cleaning = ("invisible", "html")
    holds_out = True

    def __init__(self, split_sentences: bool = True, rating: bool = False, **options: Unpack[LabeledOptions]) -> None:
        super().__init__(**options)
        self.structure: Literal["document", "text"] = "document" if split_sentences else "text"
        self.rating = rating
        self.known_labels = ("1", "2", "3", "4", "7", "8", "9", "10") if rating else ("negative", "positive")

    def files(self, split: Split) -> list[str]:
        return ["imdb_test.tsv" if split == "test" else "imdb_train.tsv"]

    def signature(self, split: Split) -> list[object]:
        return [*super().signature(split), self.rating]

    def examples(self, split: Split) -> Iterator[Example]:
        (name,) = self.files(split)
        names = {"0": "negative", "1": "positive"}
        for label, rating, text in read_table(self.path(name), ["label", "rating", "text"]):
            text = re.sub(r"<br\s*/?>", "\n", text)  # two in a row make a blank line: a new paragraph
            yield Example(text, None, (rating if self.rating else names.get(label) or label,))

    def unpack(self, archive: Path, folder: Path) -> None:
        rows: dict[str, list[tuple[int, int, str, str]]] = {"train": [], "test": []}
        for name, content in _members(archive):
            if found := re.fullmatch(r"aclImdb/(train|test)/(neg|pos)/(\d+)_(\d+)\.txt", name):
                part, label, number, rating = found.groups()
                text = " ".join(re.split(r"[\t\r\n]", content.decode("utf-8")))
                rows[part].append((int(label == "pos"), int(number), rating, text))
        for part, reviews in rows.items():
            if not reviews:
                raise ValueError(f"{self.upstream} has changed: it has no aclImdb/{part}/pos/0_9.txt and so on")
            lines = [f"{number}\t{label}\t{rating}\t{text}\n" for label, number, rating, text in sorted(reviews)]
            write_text(folder / f"imdb_{part}.tsv", "".join(["id\tlabel\trating\ttext\n", *lines]))


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file in a tar archive."""
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isfile() and (file := opened.extractfile(member)) is not None:
                yield member.name, file.read()


class Reuters(PublishedTexts):
    """Reuters-21578, ModApte split, the 90 topics with training and test documents; a document has one or more of them.

    7,770 / 3,019 documents with such a topic, title and body joined; validation is held out of training. Read from
    `reuters_modapte.jsonl` (fields split, topics, title, text). Topics are in natural order.

    Args:
        split_sentences: documents of sentences; False gives plain texts.
        **options: see `LabeledData`.
    """

    folder = "reuters"
    upstream = "https://archive.ics.uci.edu/dataset/137/reuters+21578+text+categorization+collection"
    cleaning = ("invisible",)  # not "html": <S> and <P> are shares
    holds_out = True
    multi_label = True

    def __init__(self, split_sentences: bool = True, **options: Unpack[LabeledOptions]) -> None:
        super().__init__(**options)
        self.structure: Literal["document", "text"] = "document" if split_sentences else "text"
        self._topics: set[str] | None = None

    def files(self, split: Split) -> list[str]:
        return ["reuters_modapte.jsonl"]

    def examples(self, split: Split) -> Iterator[Example]:
        kept = self._kept_topics()
        for part, topics, title, text in self._rows("split", "topics", "title", "text"):
            if part == split and (names := kept.intersection(topics)):
                yield Example(f"{title}\n\n{text}", None, tuple(sorted(names)))

    def _kept_topics(self) -> set[str]:
        if self._topics is None:
            topics: dict[str, set[str]] = {"train": set(), "test": set()}
            for part, names in self._rows("split", "topics"):
                topics[part].update(names)
            self._topics = topics["train"] & topics["test"]
        return self._topics

    def _rows(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        return read_table(self.path("reuters_modapte.jsonl"), columns, lists=["topics"])


_NEWSGROUPS = (
    "alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware comp.sys.mac.hardware comp.windows.x "
    "misc.forsale rec.autos rec.motorcycles rec.sport.baseball rec.sport.hockey sci.crypt sci.electronics sci.med "
    "sci.space soc.religion.christian talk.politics.guns talk.politics.mideast talk.politics.misc talk.religion.misc"
)


class TwentyNewsgroups(PublishedTexts):
    """20 Newsgroups, split by date: 11,314 / 7,532 messages of 20 groups; validation is held out of training.

    Read from `20news_bydate.jsonl` (fields id, split, label, text: the whole message), which is made from the archive.

    Args:
        strip: drop text that reveals the group without being about it: header lines, the last paragraph (mostly a
            signature), and quoted lines with their introduction; some messages become empty.
        split_sentences: documents of sentences; False gives plain texts.
        **options: see `LabeledData`.
    """

    folder = "20news"
    upstream = "http://qwone.com/~jason/20Newsgroups/"
    archive = RemoteFile(
        f"{upstream}20news-bydate.tar.gz", "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610"
    )
    holds_out = True
    known_labels = tuple(_NEWSGROUPS.split())

    def __init__(self, strip: bool = True, split_sentences: bool = True, **options: Unpack[LabeledOptions]) -> None:
        super().__init__(**options)
        self.structure: Literal["document", "text"] = "document" if split_sentences else "text"
        self.strip = strip

    def files(self, split: Split) -> list[str]:
        return ["20news_bydate.jsonl"]

    def signature(self, split: Split) -> list[object]:
        return [*super().signature(split), self.strip]

    def examples(self, split: Split) -> Iterator[Example]:
        for part, label, text in read_table(self.path("20news_bydate.jsonl"), ["split", "label", "text"]):
            if part == split:
                yield Example(_stripped(text) if self.strip else text, None, (label,))

    def unpack(self, archive: Path, folder: Path) -> None:
        messages = []
        for name, content in _members(archive):
            top, label, number = name.split("/")
            part = top.removeprefix("20news-bydate-")
            messages.append((part == "test", label, int(number), part, content.decode("latin-1")))
        lines = [
            json.dumps({"id": number, "split": part, "label": label, "text": text}) + "\n"
            for _, label, number, part, text in sorted(messages)
        ]
        write_text(folder / "20news_bydate.jsonl", "".join(lines))


_Domain = Literal[
    "books",
    "electronics",
    "dvd",
    "kitchen_housewares",
    "apparel",
    "camera_photo",
    "health_personal_care",
    "music",
    "toys_games",
    "video",
    "baby",
    "magazines",
    "software",
    "sports_outdoors",
    "imdb",
    "MR",
]


class FDUMTL(PublishedTexts):
    """Reviews of one of 16 domains, positive or negative (Liu et al. 2017).

    The domains are 14 kinds of goods, films, and sentences about films.

    About 1,600 / 400 reviews per domain, tokenised and in lower case; validation is held out of training, independently
    of `train_examples`, and training reviews that also occur in the test set are left out. Read from `fdu_mtl16.tsv`
    (columns domain, split, label 0 or 1, text).

    Args:
        domain: e.g. "books", "electronics", "kitchen_housewares".
        train_examples: number of reviews to train on; None: all.
        sample_seed: selects them; smaller samples are subsets of larger ones.
        split_sentences: documents of sentences; False gives plain texts.
        **options: see `LabeledData`.
    """

    folder = "fdu_mtl"
    upstream = "https://aclanthology.org/P17-1001/"
    known_labels = ("negative", "positive")

    def __init__(
        self,
        domain: _Domain = "books",
        train_examples: int | None = None,
        sample_seed: int = 0,
        split_sentences: bool = True,
        **options: Unpack[LabeledOptions],
    ) -> None:
        super().__init__(**options)
        if domain not in get_args(_Domain):
            raise ValueError(f"domain must be one of {', '.join(map(repr, get_args(_Domain)))}; got {domain!r}")
        check_at_least(train_examples=(train_examples, 2))
        self.structure: Literal["document", "text"] = "document" if split_sentences else "text"
        self.domain, self.train_examples, self.sample_seed = domain, train_examples, sample_seed

    def files(self, split: Split) -> list[str]:
        return ["fdu_mtl16.tsv"]

    def signature(self, split: Split) -> list[object]:
        options = [self.domain, self.train_examples, self.sample_seed, self.val_fraction, self.split_seed]
        return [*super().signature(split), *options]

    def examples(self, split: Split) -> Iterator[Example]:
        rows = self._reviews["test" if split == "test" else "train"]
        if split != "test":
            tested, is_val = {text for _, text in self._reviews["test"]}, split == "val"
            rows = [
                row
                for row in rows
                if row[1] not in tested and (draw(row[1], self.split_seed) < self.val_fraction) == is_val
            ]
        if split == "train" and self.train_examples is not None:
            if self.train_examples > len(rows):
                raise ValueError(
                    f"train_examples must be at most {len(rows):,} for {self.domain}; got {self.train_examples:,}"
                )
            rows = sorted(rows, key=lambda row: draw(row[1], self.sample_seed))[: self.train_examples]
        names = {"0": "negative", "1": "positive"}
        for label, text in rows:
            yield Example(text, None, (names.get(label, label),))

    @cached_property
    def _reviews(self) -> dict[str, list[tuple[str, str]]]:
        """Label and text of the domain's reviews in each part of the file."""
        reviews: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
        for domain, part, label, text in read_table(self.path("fdu_mtl16.tsv"), ["domain", "split", "label", "text"]):
            if domain == self.domain:
                reviews[part].append((label, text))
        return reviews


_QUOTED = re.compile(r"^\s*[>|]|^In article|^Quoted from|(?:writes|wrote|says|said)(?: in [^:]*)?:\s*$", re.IGNORECASE)


def _stripped(message: str) -> str:
    """A message without header, last paragraph and quotes."""
    lines = message.partition("\n\n")[2].strip().split("\n")
    separators = [i for i, line in enumerate(lines) if not line.strip().strip("-")]
    if separators:
        lines = lines[: separators[-1]]
    return "\n".join(line for line in lines if not _QUOTED.search(line))


class LabeledText(LabeledData):
    """Your own labelled text: tables with a header, JSON lines, or folders with one folder per class.

    The kind is seen from the path: a folder holds one folder per class with one text per file; a .jsonl file holds one
    JSON object per line; any other file is a table whose first line names the columns: a .csv with commas as
    spreadsheets save it, or else tab-separated without quoting. Files may also
    be .gz or .xz. The labels are those of the training text, in natural order.

    Args:
        train: training texts.
        val: validation texts; if left out, `val_fraction` of the training texts is held out.
        test: test texts.
        text_column: column or field of the text.
        text2_column: that of the second text of pairs; None if there are no pairs.
        label_column: that of the label.
        multi_label: a text may have any number of labels, joined by "|" in a table, as a list in JSON.
        split_sentences: documents of sentences (English); False gives plain texts.
        encoding: of the files.
        **options: see `LabeledData`; relative paths start from `root` (else `ZOO_DATA`) if they exist there,
            otherwise from the working directory.
    """

    own_files: ClassVar[Mapping[str, str]] = {
        "train": "a .csv or a tab-separated table with the columns text and label, JSON lines with these fields "
        "(.jsonl), or a folder with one folder of texts for each label"
    }

    def __init__(
        self,
        train: str,
        val: str | None = None,
        test: str | None = None,
        text_column: str = "text",
        text2_column: str | None = None,
        label_column: str = "label",
        multi_label: bool = False,
        split_sentences: bool = False,
        encoding: str = "utf-8",
        **options: Unpack[LabeledOptions],
    ) -> None:
        super().__init__(**options)
        if split_sentences and text2_column:
            raise ValueError("split_sentences and text2_column exclude each other: documents have no second text")
        check_encoding(encoding)
        self.paths: dict[Split, str | None] = {"train": train, "val": val, "test": test}
        self.text_columns = [text_column, *([text2_column] if text2_column else [])]
        self.label_column, self.encoding = label_column, encoding
        self.multi_label, self.pair, self.holds_out = multi_label, text2_column is not None, val is None
        self.structure: Literal["document", "text"] = "document" if split_sentences else "text"

    def _check_files(self, splits: Sequence[Split]) -> None:
        for split in splits:
            if split != "val" or not self.holds_out:
                next(iter(self.examples(split)), None)  # the columns and the first line

    def signature(self, split: Split) -> list[object]:
        path = self._path(split)
        content = fingerprint(*_files_below(path)) if path.is_dir() else path
        columns = (self.text_columns, self.label_column, self.multi_label)
        return [content, *columns, self.encoding, "all labels are stripped"]

    def source(self, split: Split) -> str:
        return str(self._path("train" if split == "val" and self.holds_out else split))

    def examples(self, split: Split) -> Iterator[Example]:
        path = self._path(split)
        if path.is_dir():
            yield from self._folder_examples(path)
            return
        lists = [self.label_column] if self.multi_label else []
        rows = read_table(path, [*self.text_columns, self.label_column], self.encoding, lists)
        for number, (*texts, label) in enumerate(rows, 1):
            if not (self.multi_label or label.strip()):
                raise ValueError(
                    f"{path}: example {number:,} has no {self.label_column}; give it one, or remove the row"
                )
            first, second = texts if self.pair else (texts[0], None)
            labels = label if self.multi_label else [label]
            yield Example(first, second, tuple(name.strip() for name in labels))

    def _folder_examples(self, folder: Path) -> Iterator[Example]:
        if self.pair or self.multi_label:
            raise ValueError(f"{folder}: folders of classes do not support text2_column or multi_label; give a file")
        classes = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
        if not classes:
            raise ValueError(f"{folder} has no class folders; put the texts of each label into a folder of its name")
        for label in classes:
            files = [path for path in sorted(label.iterdir()) if path.is_file() and not path.name.startswith(".")]
            if not files:
                raise ValueError(f"{label} has no files: put the texts of this class there, or remove the folder")
            for path in files:
                yield Example("\n".join(read_lines(path, self.encoding)), None, (label.name,))

    def _all_splits(self) -> list[Split]:
        return ["train", "val", *(["test"] if self.paths["test"] else [])]

    def _path(self, split: Split) -> Path:
        name = self.paths[split]
        if name is None:
            raise ValueError(f"there is no {split} text: give {split}= (--data.{split}) a file or a folder")
        path = own_path(self.root, name)
        if not path.exists():
            raise FileNotFoundError(f"{split} (--data.{split}): {missing(self.root, name, 'file or folder')}")
        return path


def _files_below(folder: Path) -> list[tuple[str, Path]]:
    """The files of the classes, each with the class name."""
    classes = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    return [(label.name, path) for label in classes for path in sorted(label.iterdir()) if path.is_file()]
