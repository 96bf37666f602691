"""The Children's Book Test, and questions in its style."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from zoo.data.common.base import Split
from zoo.data.common.files import read_lines
from zoo.data.common.published import Published
from zoo.data.common.tables import read_table
from zoo.data.reading.arrays import Question
from zoo.data.reading.base import ClozeData, ClozeOptions
from zoo.text.words import BLANK
from zoo.utils.unpack import Unpack

_OFFICIAL: dict[Split, str] = {"train": "train", "val": "valid", "test": "test"}  # names of the splits in file names


class _PublishedCloze(Published, ClozeData):
    """A published data set in files with fixed names."""

    upstream: ClassVar[str]

    def signature(self, split: Split) -> list[object]:
        return [type(self).__name__, *map(self.path, self.files(split))]

    def source(self, split: Split) -> str:
        return str(self.path(self.files(split)[0]))

    def _advice(self, name: str) -> str:
        return f"it. See {self.upstream} and the documentation of {type(self).__name__}"


class CBT(_PublishedCloze):
    """Children's Book Test (Hill et al. 2016): 20 sentences of a book, the 21st with a word left out, 10 candidates.

    Read from the official files `cbtest_NE_train.txt`, `cbtest_NE_valid_2000ex.txt`, `cbtest_NE_test_2500ex.txt` (and
    so on).

    Args:
        kind: the type of word left out: "NE" names, "CN" common nouns, "V" verbs, "P" prepositions.
        **options: see `ClozeData`.
    """

    folder = "cbt"
    places = ("{}", "CBTest/data", "data", "text/{}", "", "text")
    upstream = "https://research.facebook.com/downloads/babi/"

    def __init__(self, kind: Literal["NE", "CN", "V", "P"] = "NE", **options: Unpack[ClozeOptions]) -> None:
        super().__init__(**options)
        _check_kind(kind, ("NE", "CN", "V", "P"))
        self.kind = kind

    def files(self, split: Split) -> list[str]:
        size = {"train": "", "val": "_2000ex", "test": "_2500ex"}[split]
        return [f"cbtest_{self.kind}_{_OFFICIAL[split]}{size}.txt"]

    def examples(self, split: Split) -> Iterator[Question]:
        path = self.path(self.files(split)[0])
        document: list[str] = []
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                continue
            index, _, text = line.partition(" ")
            if not index.isdecimal():
                raise ValueError(f"{path}, line {number}: expected a line number and a sentence; got {line!r:.50}")
            if "\t" not in text:
                document.append(text)
                continue
            fields = text.split("\t")
            if len(fields) != 4:
                raise ValueError(
                    f"{path}, line {number}: expected a query, its answer, nothing, and candidates between tabs; got "
                    f"{len(fields)} fields"
                )
            yield Question(document, fields[0], fields[1], _separated(fields[3]))
            document = []
        if document:
            raise ValueError(
                f"{path} ends in the middle of a question, after its line {len(document)}; download it again"
            )


class CBTLike(_PublishedCloze):
    """Questions in the style of the Children's Book Test, **not the official ones**: scores are not comparable.

    43,473 / 2,000 / 2,500 names, 60,000 / 2,000 / 2,500 common nouns. Read from `cbt_books_train.txt` (one tokenised
    sentence per line, a line `_BOOK_TITLE_ : name` before each book) and `cbtlike_NE_train.tsv` (columns start, pos,
    answer, candidates), likewise for valid and test and for CN. The document is lines start to start + 19, counted from
    0; the query is line start + 20 without its word pos. Brackets in Penn Treebank form (-LRB-), which only some of the
    books have, are converted to brackets.

    Args:
        kind: the type of word left out: "NE" names, "CN" common nouns.
        **options: see `ClozeData`.
    """

    folder = "cbtlike"
    places = ("{}", "text/{}", "", "text")
    upstream = "https://arxiv.org/abs/1511.02301"
    cleaning = ("invisible", "treebank")
    _lines = 20

    def __init__(self, kind: Literal["NE", "CN"] = "NE", **options: Unpack[ClozeOptions]) -> None:
        super().__init__(**options)
        _check_kind(kind, ("NE", "CN"))
        self.kind = kind

    def files(self, split: Split) -> list[str]:
        return [f"cbtlike_{self.kind}_{_OFFICIAL[split]}.tsv", f"cbt_books_{_OFFICIAL[split]}.txt"]

    def examples(self, split: Split) -> Iterator[Question]:
        table, books = map(self.path, self.files(split))
        lines = list(read_lines(books))
        rows = read_table(table, ["start", "pos", "answer", "candidates"], lists=["candidates"])
        for row, (start, pos, answer, candidates) in enumerate(rows):
            first, place = (int(x) if x.isdecimal() else -1 for x in (start, pos))
            query = lines[first + self._lines].split(" ") if 0 <= first < len(lines) - self._lines else []
            if not 0 <= place < len(query) or query[place] != answer:
                raise ValueError(
                    f"{table}, line {row + 2}: {answer!r} is not word {pos} of line {start} + {self._lines} of {books}"
                )
            query[place] = BLANK
            yield Question(lines[first : first + self._lines], " ".join(query), answer, candidates)

    def training_text(self) -> Iterator[str]:
        """The books, each line once."""
        lines = read_lines(self.path(self.files("train")[1]))
        return (line for line in lines if not line.startswith("_BOOK_TITLE_"))


def _check_kind(kind: str, allowed: tuple[str, ...]) -> None:
    if kind not in allowed:
        raise ValueError(f"kind must be one of {', '.join(map(repr, allowed))}; got {kind!r}")


def _separated(field: str) -> list[str]:
    return [name for name in field.strip().split("|") if name]
