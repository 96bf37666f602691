"""Cloze-style reading comprehension: the Children's Book Test, CNN and Daily Mail, and your own questions."""

import logging
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal, TypedDict

from torch import Tensor

from zoo.data.classification.arrays import Encoding, Example, LabeledArrays
from zoo.data.common.base import SortedData, Split
from zoo.data.common.cache import cached_text
from zoo.data.common.files import check_fraction, data_root, draw, fingerprint, named_file, read_lines
from zoo.data.common.published import Published
from zoo.data.common.tables import read_table
from zoo.data.common.word_vectors import cached_vectors, check_word_vectors
from zoo.data.reading.arrays import ClozeArrays, Question, fresh_text
from zoo.text import Tokenizer
from zoo.text.words import BLANK
from zoo.utils.places import cache_folder
from zoo.utils.unpack import Unpack

_FORMAT = 2  # part of every cache key: increase it when tokenisation or the files change
_OFFICIAL: dict[Split, str] = {"train": "train", "val": "valid", "test": "test"}  # names of the splits in file names

log = logging.getLogger(__name__)


class ClozeOptionsWithoutTokenizer(TypedDict, total=False):
    """Keywords of `ClozeData`, for data sets that set its tokenizer themselves."""

    root: str | None
    cache_dir: str | None
    vocab_size: int
    min_frequency: int
    lowercase: bool
    batch_size: int | None
    batch_tokens: int | None
    word_vectors: str | None
    word2vec_epochs: int
    pool_batches: int
    num_workers: int
    seed: int


class ClozeOptions(ClozeOptionsWithoutTokenizer, total=False):
    """Keywords of `ClozeData`."""

    tokenizer: Literal["word", "word_punct"]


class ClozeData(SortedData[ClozeArrays]):
    """Base class of the data sets of documents, and queries with one word left out.

    A subclass implements the `examples` of each split and a `signature` of what they depend on. Training questions that
    cannot be learnt (no words, or an answer that is not in the document) are left out and counted; validation and test
    keep them.

    Args:
        root: folder of the data; else the environment variable `ZOO_DATA`.
        cache_dir: folder for tokenizers and tokenised text; else `ZOO_CACHE`, else `~/.cache/attention-zoo`.
        tokenizer: "word": split at spaces, for tokenised text; "word_punct": for plain text.
        vocab_size: maximum number of words in the vocabulary; others are unknown, but can still be answers.
        min_frequency: words less frequent in training are unknown.
        lowercase: the vocabulary is in lower case. Answers are compared as strings all the same.
        batch_size: questions per batch and process.
        batch_tokens: words per batch and process (number of questions times longest document), instead of
            `batch_size`.
        word_vectors: pretrained word vectors for `vectors`: a file (GloVe or fastText text, word2vec text or
            binary), or "word2vec": skip-gram vectors learnt from the training text; None for none.
        word2vec_epochs: passes of word2vec over the training text.
        pool_batches: batches sorted by length together: more means more equal lengths, fewer means more varied batches.
        num_workers: worker processes that load batches.
        seed: seed for the order of the training questions.

    Attributes:
        cleaning: how texts are cleaned before they are split into words, see `Tokenizer.clean`.
        test_names: names of the test sets.
        tokenizer: set by `setup`: the model's, if it has one.
    """

    task = "reading"
    cleaning: Sequence[str] = ()
    test_names: ClassVar[list[str]] = ["test"]

    def __init__(
        self,
        root: str | None = None,
        cache_dir: str | None = None,
        tokenizer: Literal["word", "word_punct"] = "word",
        vocab_size: int = 20_000,
        min_frequency: int = 2,
        lowercase: bool = False,
        batch_size: int | None = 32,
        batch_tokens: int | None = None,
        word_vectors: str | None = None,
        word2vec_epochs: int = 5,
        pool_batches: int = 20,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if tokenizer not in ("word", "word_punct"):
            raise ValueError(f"tokenizer must be one of 'word', 'word_punct'; got {tokenizer!r}")
        if not batch_size and not batch_tokens:
            raise ValueError("give batch_size (questions) or batch_tokens (words); got neither")
        self._check_at_least(
            vocab_size=(vocab_size, 5),
            min_frequency=(min_frequency, 1),
            batch_size=(batch_size, 1),
            batch_tokens=(batch_tokens, 1),
            word2vec_epochs=(word2vec_epochs, 1),
            pool_batches=(pool_batches, 1),
            num_workers=(num_workers, 0),
        )
        self.root = root
        self.cache = cache_folder(cache_dir)
        self.tokenizer_options = (tokenizer, vocab_size, lowercase, min_frequency)
        self.batch_size, self.batch_tokens = None if batch_tokens else batch_size, batch_tokens
        self.word_vectors, self.word2vec_epochs = word_vectors, word2vec_epochs
        self.pool_batches, self.num_workers, self.seed = pool_batches, num_workers, seed
        self.tokenizer: Tokenizer | None = None

    # To be implemented by a data set

    def signature(self, split: Split) -> list[object]:
        """What `examples(split)` depends on: JSON-able values and file paths."""
        raise NotImplementedError

    def examples(self, split: Split) -> Iterator[Question]:
        """Questions, streamed."""
        raise NotImplementedError

    def training_text(self) -> Iterator[str]:
        """The text that vocabulary and word vectors are learnt from, line by line."""
        return fresh_text(self.examples("train"))

    def source(self, split: Split) -> str:
        """Name of a split in messages, preferably its file."""
        return f"the {split} questions"

    # Called by Lightning

    def prepare_data(self) -> None:
        """Learns the tokenizer and tokenises the questions, unless they are in the cache."""
        size = self._wanted_vectors()  # reports missing files before the long work
        tokenizer = self._tokenizer()
        for split in self._splits():
            folder = self._folder(split, tokenizer)
            ClozeArrays.build(folder, self.examples(split), tokenizer, self.source(split), keep_all=split != "train")
        if size is not None:
            self.tokenizer = tokenizer
            self.vectors(size)

    def setup(self, stage: str) -> None:
        """Opens the files of `prepare_data`; afterwards `tokenizer` is set."""
        self.tokenizer = self._tokenizer()
        if stage == "fit":
            self._train = self._arrays("train")
            if self._train.absent or self._train.empty:
                log.info(
                    f"{len(self._train):,} training questions; left out {self._train.absent:,} whose answer is not "
                    "in the document "
                    f"and {self._train.empty:,} without words"
                )
        if stage in ("fit", "validate"):
            self._val = self._arrays("val")
        if stage == "test":
            self._test = self._arrays("test")
        self._adapt_model(stage)

    # Used by models

    def vectors(self, size: int) -> tuple[Tensor, Tensor] | None:
        """Pretrained word vectors of the vocabulary, after `setup`; None if `word_vectors` is None.

        Args:
            size: dimension of the vectors.

        Returns:
            (V, size) float32, and (V,) bool: whether the word has a vector; if not, its row is 0.

        Raises:
            FileNotFoundError: no such file.
            ValueError: the vectors of the file have another size, or word2vec is not installed.
        """
        if self.word_vectors is None:
            return None
        check_word_vectors(self.word_vectors)
        tokenizer = self._ready(self.tokenizer, "tokenizer")
        texts, source = [], [Path(self.word_vectors).expanduser()] if self.word_vectors != "word2vec" else []
        if self.word_vectors == "word2vec":
            source = [*self.signature("train"), self.word2vec_epochs, self.seed]
        key = fingerprint(_FORMAT, "cloze vectors", tokenizer.to_json(), size, *source)
        if self.word_vectors == "word2vec":
            text_key = fingerprint(_FORMAT, "cloze text", self.signature("train"), tokenizer.to_json())
            folder = self.cache / "texts" / text_key
            lines = (Example(line, None, ()) for line in self.training_text())
            encoding = Encoding(tokenizer, {}, multi_label=True)
            LabeledArrays.build(folder, lines, encoding, self.source("train"), keep_empty=False)
            texts = [LabeledArrays(folder)]
        path = self.cache / "vectors" / f"{key}.npy"
        return cached_vectors(path, self.word_vectors, tokenizer, size, texts, self.word2vec_epochs, self.seed)

    # Helpers

    def _wanted_vectors(self) -> int | None:
        """Numbers of a ready word vector, if a training of a new model wants them, whose source is checked."""
        size = (self._of_model("config") or {}).get("embedding_size")
        is_new = "train" in self._splits() and self._of_model("tokenizer") is None
        if not (self.word_vectors and size and is_new):
            return None
        check_word_vectors(self.word_vectors)
        return size

    def _tokenizer(self) -> Tokenizer:
        """The model's tokenizer; without one, learnt from the training text."""
        tokenizer = self._of_model("tokenizer")
        if tokenizer is not None:
            return tokenizer
        options = (*self.tokenizer_options, *[self.cleaning] * bool(self.cleaning))
        key = fingerprint(_FORMAT, "cloze", self.signature("train"), options)
        path = self.cache / "tokenizers" / f"{key}.json"
        return Tokenizer.from_json(cached_text(path, lambda: Tokenizer.train(self.training_text(), *options).to_json()))

    def _folder(self, split: Split, tokenizer: Tokenizer) -> Path:
        return self.cache / "cloze" / fingerprint(_FORMAT, self.signature(split), split, tokenizer.to_json())

    def _arrays(self, split: Split) -> ClozeArrays:
        folder = self._folder(split, self._ready(self.tokenizer, "tokenizer"))
        if not folder.exists():
            raise FileNotFoundError(f"there are no tokenised questions in {folder}; call prepare_data() before setup()")
        return ClozeArrays(folder)


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


class CNNDailyMail(ClozeData):
    """Anonymised news stories, and a sentence of their summary with one name left out (Hermann et al. 2015).

    Read from the official folders `cnn/questions/training/*.question` (validation, test), likewise `dailymail`. The
    text is tokenised and in lower case; the blank @placeholder is replaced by the one of this package. Candidates are
    all names of the story.

    Args:
        part: "cnn" or "dailymail".
        **options: see `ClozeData`.
    """

    _splits_of: ClassVar[dict[Split, str]] = {"train": "training", "val": "validation", "test": "test"}

    def __init__(self, part: Literal["cnn", "dailymail"] = "cnn", **options: Unpack[ClozeOptions]) -> None:
        super().__init__(**options)
        if part not in ("cnn", "dailymail"):
            raise ValueError(f"part must be one of 'cnn', 'dailymail'; got {part!r}")
        self.part = part
        self._found: dict[Split, list[Path]] = {}

    def signature(self, split: Split) -> list[object]:
        return [type(self).__name__, fingerprint(*self._files(split))]

    def source(self, split: Split) -> str:
        return str(self._files(split)[0].parent)

    def examples(self, split: Split) -> Iterator[Question]:
        for path in self._files(split):
            blocks = [block for block in "\n".join(read_lines(path)).split("\n\n") if block.strip()]
            if len(blocks) not in (4, 5) or "\n" in blocks[3].strip():
                raise ValueError(
                    f"{path}: expected address, story, query, answer and names with blank lines between them; got "
                    f"{len(blocks)} parts"
                )
            _, story, query, answer, *names = blocks
            candidates = [line.partition(":")[0] for name in names for line in name.split("\n") if line.strip()]
            yield Question(story.split("\n"), query.replace("@placeholder", BLANK), answer.strip(), candidates)

    def _files(self, split: Split) -> list[Path]:
        if split not in self._found:
            root, name = data_root(self.root) or Path(), self._splits_of[split]
            places = [root / self.part / "questions" / name, root / "text" / self.part / "questions" / name]
            folder = next((place for place in places if place.is_dir()), None)
            files = sorted(folder.glob("*.question")) if folder else []
            if not files:
                raise FileNotFoundError(
                    f"CNNDailyMail: there are no files *.question in {places[0]}. Pass root= or set ZOO_DATA to the "
                    "folder with "
                    f"{self.part}/questions; see https://github.com/google-deepmind/rc-data"
                )
            self._found[split] = files
        return self._found[split]


class Cloze(ClozeData):
    """Your own questions: tab-separated tables with a header, or JSON lines (.jsonl); also .gz or .xz.

    Args:
        train: training questions.
        val: validation questions; if left out, those of `val_fraction` of the training documents are held out.
        test: test questions.
        document_column: column or field of the document.
        query_column: that of the query.
        answer_column: that of the answer.
        candidates_column: that of the candidates, joined by "|" in a table, as a list in JSON; None: any word of
            the document.
        blank: mark of the missing word in the queries.
        val_fraction: share of the documents held out; repeated documents are never on both sides.
        split_seed: selects the documents that are held out.
        encoding: of the files.
        tokenizer: as in `ClozeData`; plain text is expected.
        **options: see `ClozeData`; relative paths start from `root` (else `ZOO_DATA`), if there is one.
    """

    def __init__(
        self,
        train: str,
        val: str | None = None,
        test: str | None = None,
        document_column: str = "document",
        query_column: str = "query",
        answer_column: str = "answer",
        candidates_column: str | None = "candidates",
        blank: str = BLANK,
        val_fraction: float = 0.1,
        split_seed: int = 0,
        encoding: str = "utf-8",
        tokenizer: Literal["word", "word_punct"] = "word_punct",
        **options: Unpack[ClozeOptionsWithoutTokenizer],
    ) -> None:
        super().__init__(tokenizer=tokenizer, **options)
        check_fraction("val_fraction", val_fraction)
        if not blank.strip():
            raise ValueError(f"blank must be the mark of the missing word, e.g. '____'; got {blank!r}")
        self.paths: dict[Split, str | None] = {"train": train, "val": val, "test": test}
        self.columns = [
            document_column,
            query_column,
            answer_column,
            *([candidates_column] if candidates_column else []),
        ]
        self.blank, self.encoding = blank, encoding
        self.val_fraction, self.split_seed = val_fraction, split_seed

    def signature(self, split: Split) -> list[object]:
        held_out = None if self.paths["val"] else [split, self.val_fraction, self.split_seed]
        return ["Cloze", self._path(split), self.columns, self.blank, self.encoding, held_out]

    def source(self, split: Split) -> str:
        return str(self._path(split))

    def examples(self, split: Split) -> Iterator[Question]:
        wanted = None if self.paths["val"] or split == "test" else split == "val"
        for document, query, answer, *rest in read_table(
            self._path(split), self.columns, self.encoding, self.columns[3:]
        ):
            if wanted is None or (draw(document, self.split_seed) < self.val_fraction) == wanted:
                yield Question(
                    document.split("\n"), query.replace(self.blank, f" {BLANK} "), answer, list(chain(*rest))
                )

    def _all_splits(self) -> list[Split]:
        return ["train", "val", *(["test"] if self.paths["test"] else [])]

    def _path(self, split: Split) -> Path:
        name = self.paths[split] or (self.paths["train"] if split == "val" else None)
        if name is None:
            raise ValueError(f"there is no {split} set: give {split}= (--data.{split}) a file")
        return named_file(self.root, split, name)


def _check_kind(kind: str, allowed: tuple[str, ...]) -> None:
    if kind not in allowed:
        raise ValueError(f"kind must be one of {', '.join(map(repr, allowed))}; got {kind!r}")


def _separated(field: str) -> list[str]:
    return [name for name in field.strip().split("|") if name]
