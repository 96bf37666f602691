"""Running text for language models: Penn Treebank, Brown, children's books, WikiText-2, your own text."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar, Literal, TypedDict

import torch
from torch import Tensor

from zoo.data.common.base import DataModule, Split
from zoo.data.common.cache import cached_text
from zoo.data.common.files import check_encoding, check_fraction, fingerprint, named_file, read_lines
from zoo.data.common.loaders import TrainLoader
from zoo.data.common.published import Published
from zoo.data.common.tables import read_table
from zoo.data.language_modelling.soft_targets import SoftTargets
from zoo.data.language_modelling.streams import MARKED_UNKNOWN, TextArray, TextLoader, TextStream
from zoo.text import KINDS, Tokenizer
from zoo.utils.numbers_given import check_at_least
from zoo.utils.places import cache_folder
from zoo.utils.unpack import Unpack

log = logging.getLogger(__name__)
_FORMAT = 3  # part of every cache key: increase it when tokenisation or the files change


class RunningTextOptionsWithoutTokenizer(TypedDict, total=False):
    """Keywords of `RunningText`, for data sets that set its tokenizer themselves."""

    root: str | None
    cache_dir: str | None
    vocab_size: int
    min_frequency: int
    lowercase: bool
    extend_vocabulary: int
    batch_size: int
    segment: int
    val_streams: int
    test_streams: int
    num_workers: int
    seed: int
    extra_text: str | None
    soft_targets: str | None


class RunningText(DataModule):
    """Base class of the data sets of running text, read in parallel streams.

    A subclass implements the `lines` of each split and a `signature` of what they depend on. The end of a line counts
    as a word.

    Args:
        root: folder of the data; else the environment variable `ZOO_DATA`.
        cache_dir: folder for tokenizers and tokenised text; else `ZOO_CACHE`, else `~/.cache/attention-zoo`.
        tokenizer: "word" (split at spaces: for tokenised text, in which `<unk>` is UNK), "word_punct" (words and
            punctuation marks of plain text), "bpe" subwords or "char".
        vocab_size: maximum number of words in the vocabulary, including the four special tokens.
        min_frequency: words less frequent in training become UNK.
        lowercase: lowercase the text.
        extend_vocabulary: number of words to add to a pretrained model's vocabulary when training begins: the most
            frequent unknown words of the training text, seen at least `min_frequency` times; 0 for none.
        batch_size: streams per process in training.
        segment: words of each stream in a batch, through which training propagates back.
        val_streams: streams of the validation text over all processes. Each starts without memory, so 1 gives the
            perplexity of the text as it is; more are faster and hardly differ. Independent of `batch_size`,
            `segment` and the number of processes.
        test_streams: the same for the test text.
        num_workers: worker processes that load batches.
        seed: seed for where in the text each epoch begins.
        extra_text: file of lines that are read after those of the training text; the vocabulary does not depend on it.
        soft_targets: file of what other models expect in each place of the training text, which a model learns in
            place of the words themselves; the stage `predict` of `zoo rebuild` writes it.

    Attributes:
        test_names: names of the test sets.
        tokenizer: set by `setup`: the model's, if it has one.
    """

    task = "language modelling"
    test_names: ClassVar[list[str]] = ["test"]

    def __init__(
        self,
        root: str | None = None,
        cache_dir: str | None = None,
        tokenizer: Literal["word", "word_punct", "bpe", "char"] = "word",
        vocab_size: int = 10_002,
        min_frequency: int = 1,
        lowercase: bool = False,
        extend_vocabulary: int = 0,
        batch_size: int = 20,
        segment: int = 35,
        val_streams: int = 10,
        test_streams: int = 1,
        num_workers: int = 0,
        seed: int = 0,
        extra_text: str | None = None,
        soft_targets: str | None = None,
    ) -> None:
        super().__init__()
        if tokenizer not in KINDS:
            raise ValueError(f"tokenizer must be one of 'word', 'word_punct', 'bpe', 'char'; got {tokenizer!r}")
        check_at_least(
            vocab_size=(vocab_size, 5),
            min_frequency=(min_frequency, 1),
            extend_vocabulary=(extend_vocabulary, 0),
            batch_size=(batch_size, 1),
            segment=(segment, 1),
            val_streams=(val_streams, 1),
            test_streams=(test_streams, 1),
            num_workers=(num_workers, 0),
            seed=(seed, 0),
        )
        self.root, self.cache = root, cache_folder(cache_dir)
        self.kind: Literal["word", "word_punct", "bpe", "char"] = tokenizer
        self.vocab_size, self.min_frequency, self.lowercase = vocab_size, min_frequency, lowercase
        self.extend_vocabulary = extend_vocabulary
        self.batch_size, self.segment = batch_size, segment
        self.streams = {"val": val_streams, "test": test_streams}
        self.num_workers, self.seed = num_workers, seed
        self.extra_text, self.soft_targets = extra_text, soft_targets
        self.tokenizer: Tokenizer | None = None

    # To be implemented by a data set

    def signature(self, split: Split) -> list[object]:
        """What `lines(split)` depends on: JSON-able values and file paths."""
        raise NotImplementedError

    def lines(self, split: Split) -> Iterator[str]:
        """Lines of the text, in order, streamed."""
        raise NotImplementedError

    def source(self, split: Split) -> str:
        """Name of a split in messages, preferably its file."""
        raise NotImplementedError

    # Called by Lightning

    def prepare_data(self) -> None:
        """Learns the tokenizer and tokenises the text, unless they are in the cache."""
        tokenizer = self._tokenizer()
        for split in self._splits():
            lines = chain(self.lines(split), *map(read_lines, self._extra(split)))
            TextArray.build(self._folder(split, tokenizer), lines, tokenizer, self.source(split))
        if self._of_model("tokenizer") is not None:
            split = self._splits()[0]
            text = TextArray(self._folder(split, tokenizer))
            if split == "train":
                self._unknown = text.unknown, len(text)
            elif text.unknown:
                self._report_flattery(split, text)

    def _report_flattery(self, split: Split, text: TextArray) -> None:
        """Warns that unknown words lower the perplexity that validate or test are about to print."""
        flattery = (
            f"{self.source(split)}: {text.unknown:,} of its {len(text):,} tokens ({text.unknown / len(text):.1%}) are "
            "words that the model does not know; each counts as UNK, which is easier to guess than a word, so the "
            "perplexity is lower than that of the text"
        )
        log.warning("; ".join(filter(None, [flattery, self._needed_form()])))

    def _about_new_words(self) -> str:
        return "; ".join(filter(None, [self._needed_form(), super()._about_new_words()]))

    def _needed_form(self) -> str:
        """A model of single words has learnt from text of one form, as from words in lower case."""
        if self._of_model("tokenizer").kind != "word":
            return ""
        return "plain text needs the form of the weight first (docs/guides/fine_tuning.md has the command)"

    def setup(self, stage: str | None = None) -> None:
        """Opens the files of `prepare_data` that a stage needs, by default all; afterwards `tokenizer` is set."""
        splits = self._opened(stage)
        self.tokenizer = self._tokenizer()
        if "train" in splits:
            self._train = self._text("train")
            self._soft = self._soft_targets()
        self._adapt_model(stage)
        if "val" in splits:
            self._val = self._text("val")
        if "test" in splits:
            self._test = self._text("test")

    def train_dataloader(self) -> TrainLoader:
        """Endless, resumable segments of `batch_size` streams."""
        rank, world_size = self._rank_and_world_size()
        streams = self.batch_size * world_size
        if len(self._train) < streams:
            raise ValueError(
                f"{self.source('train')}: cannot cut {len(self._train):,} words into {streams:,} streams (batch_size "
                "times processes); "
                "lower batch_size or give more text"
            )
        stream = TextStream(self._train, streams, self.segment, self.seed, rank, world_size, self._soft)
        return self._train_loader(stream)

    def val_dataloader(self) -> TextLoader:
        """The validation text."""
        return self._loader(self._val, "val")

    def test_dataloader(self) -> TextLoader:
        """The test text."""
        return self._loader(self._test, "test")

    def word_counts(self) -> Tensor:
        """Frequency of each vocabulary word in the training text, (V,) int64; after `setup("fit")`."""
        return torch.from_numpy(self._train.counts(len(self._ready(self.tokenizer, "tokenizer"))))

    # Helpers

    def _loader(self, text: TextArray, split: Split) -> TextLoader:
        return TextLoader(
            TextStream(text, min(self.streams[split], len(text)), self.segment, None, *self._rank_and_world_size())
        )

    def _tokenizer(self) -> Tokenizer:
        """The model's tokenizer with the words of `extend_vocabulary`; without one, learnt from the training text."""
        tokenizer = self._of_model("tokenizer")
        if tokenizer is not None and not self._adds_words():
            return tokenizer
        if tokenizer is not None:
            lines = partial(self._vocabulary_lines, tokenizer.kind)
            signature = [*self.signature("train"), "without marks"]
            return self._extended(tokenizer, lines, signature, self.min_frequency)
        options = (self.kind, self.vocab_size, self.lowercase, self.min_frequency)
        path = self.cache / "tokenizers" / f"{fingerprint(_FORMAT, self.signature('train'), 'running', options)}.json"
        return Tokenizer.from_json(
            cached_text(path, lambda: Tokenizer.train(self._vocabulary_lines(self.kind), *options).to_json())
        )

    def _vocabulary_lines(self, kind: str) -> Iterator[str]:
        """The lines from which a tokenizer of a kind learns words."""
        if kind != "word":
            return self.lines("train")
        # in the vocabulary it would be a word like any other
        return (" ".join(word for word in line.split() if word != MARKED_UNKNOWN) for line in self.lines("train"))

    def _soft_targets(self) -> SoftTargets | None:
        if self.soft_targets is None:
            return None
        return SoftTargets(named_file(self.root, "soft_targets", self.soft_targets), self._train.ids)

    def _extra(self, split: Split) -> list[Path]:
        """The file of extra lines that a split has, if any."""
        return [named_file(self.root, "extra_text", self.extra_text)] if self.extra_text and split == "train" else []

    def _folder(self, split: Split, tokenizer: Tokenizer) -> Path:
        signature = [*self.signature(split), *self._extra(split)]
        return self.cache / "running" / fingerprint(_FORMAT, signature, split, tokenizer.to_json())

    def _text(self, split: Split) -> TextArray:
        folder = self._folder(split, self._ready(self.tokenizer, "tokenizer"))
        if not folder.exists():
            raise FileNotFoundError(f"there is no tokenised text in {folder}; call prepare_data() before setup()")
        return TextArray(folder)


class PublishedText(Published, RunningText):
    """A published data set of running text, read from a local folder.

    Attributes:
        names: possible file names of each split.
        upstream: origin of the text.
    """

    places = ("{}", "text/{}", "", "text")
    names: ClassVar[dict[Split, tuple[str, ...]]]
    upstream: ClassVar[str]

    def files(self, split: Split) -> list[str]:
        return [self.names[split][0]]

    def file(self, split: Split) -> Path:
        """The file of a split, under one of its names.

        Raises:
            FileNotFoundError: there is none.
        """
        found = (path for name in self.names[split] if (path := self._find(name)))
        return next(found, None) or self.path(self.names[split][0])

    def signature(self, split: Split) -> list[object]:
        return [self.file(split), type(self).__name__]

    def source(self, split: Split) -> str:
        return str(self.file(split))

    def lines(self, split: Split) -> Iterator[str]:
        return read_lines(self.file(split))

    def _advice(self, name: str) -> str:
        return f"it. It comes from {self.upstream}"


class PTB(PublishedText):
    """Penn Treebank as prepared by Mikolov: 929,589 / 73,760 / 82,430 words with line ends, 10,000 distinct ones.

    The text is in lower case, has no punctuation marks, N for each number and `<unk>` for each rare word. Read from
    `ptb.train.txt`, `ptb.valid.txt` and `ptb.test.txt`.

    Args:
        **options: see `RunningText`.
    """

    folder = "ptb"
    names = {"train": ("ptb.train.txt",), "val": ("ptb.valid.txt",), "test": ("ptb.test.txt",)}
    upstream = "the Linguistic Data Consortium; the files are part of Mikolov's RNNLM toolkit (simple-examples.tgz)"


class WikiText2(PublishedText):
    """WikiText-2: good and featured articles of Wikipedia (Merity et al. 2017).

    2,088,628 / 217,646 / 245,569 words with line ends.

    Read from `wiki.train.tokens`, `wiki.valid.tokens` and `wiki.test.tokens`, or `wikitext2.train.txt` and so on. Its
    vocabulary has 33,278 words: set vocab_size to 33_281 (here and in the model) to have them all.

    Args:
        **options: see `RunningText`.
    """

    folder = "wikitext-2"
    names = {
        "train": ("wiki.train.tokens", "wikitext2.train.txt"),
        "val": ("wiki.valid.tokens", "wikitext2.valid.txt"),
        "test": ("wiki.test.tokens", "wikitext2.test.txt"),
    }
    upstream = "wikitext-2-v1.zip (the version with <unk>)"


class ChildrensBooks(PublishedText):
    """The running text of the Children's Book Test (Hill et al. 2016).

    A line `_BOOK_TITLE_ : name` precedes each book.

    Read from `cbt_train.txt`, `cbt_valid.txt` and `cbt_test.txt`, or `cbt_books_train.txt` and so on.

    Args:
        **options: see `RunningText`.
    """

    folder = "cbt"
    names = {
        "train": ("cbt_train.txt", "cbt_books_train.txt"),
        "val": ("cbt_valid.txt", "cbt_books_valid.txt"),
        "test": ("cbt_test.txt", "cbt_books_test.txt"),
    }
    upstream = "CBTest.tgz of the Children's Book Test"


class Brown(PublishedText):
    """The Brown corpus: 500 texts of 15 genres, in order, one sentence per line.

    There is no official split: texts whose number ends in 0 are the test text, those ending in 5 the validation text.
    Read from `brown.tsv` (columns file, category, sentence; tokenised).

    Args:
        **options: see `RunningText`.
    """

    folder = "brown"
    names = dict.fromkeys(("train", "val", "test"), ("brown.tsv",))
    upstream = "the Brown University Standard Corpus of Present-Day American English, as in nltk"

    def lines(self, split: Split) -> Iterator[str]:
        for file, sentence in read_table(self.file(split), ["file", "sentence"]):
            if {"0": "test", "5": "val"}.get(file[-1], "train") == split:
                yield sentence


class PlainText(RunningText):
    """Your own text: one file for training, optionally others for validation and testing; plain, .gz or .xz.

    Empty lines are left out: their ends would be words that are easy to predict.

    Args:
        train: training text.
        val: validation text; if left out, the last lines of the training text are held out.
        test: test text.
        val_fraction: share of the training lines held out if there is no `val`.
        encoding: of the files.
        tokenizer: see `RunningText`; "word_punct" suits plain text.
        **options: see `RunningText`; relative paths start from `root` (else `ZOO_DATA`) if they exist there,
            otherwise from the working directory.
    """

    own_files: ClassVar[Mapping[str, str]] = {"train": "a text with one sentence or paragraph per line"}

    def __init__(
        self,
        train: str,
        val: str | None = None,
        test: str | None = None,
        val_fraction: float = 0.05,
        encoding: str = "utf-8",
        tokenizer: Literal["word", "word_punct", "bpe", "char"] = "word_punct",
        **options: Unpack[RunningTextOptionsWithoutTokenizer],
    ) -> None:
        super().__init__(tokenizer=tokenizer, **options)
        check_fraction("val_fraction", val_fraction)
        check_encoding(encoding)
        self.paths: dict[Split, str | None] = {"train": train, "val": val, "test": test}
        self.val_fraction, self.encoding = val_fraction, encoding

    def _check_files(self, splits: Sequence[Split]) -> None:
        for split in splits:
            self._path(split)

    def signature(self, split: Split) -> list[object]:
        share = self.val_fraction if self._is_cut(split) else None
        return [self._path(split), self.encoding, share, "without empty lines"]

    def source(self, split: Split) -> str:
        part = f", the last {self.val_fraction:.2%} of it" if split == "val" and self._is_cut(split) else ""
        return f"{self._path(split)}{part}"

    def lines(self, split: Split) -> Iterator[str]:
        lines = self._filled_lines(split)
        if not self._is_cut(split):
            return lines
        total = sum(1 for _ in self._filled_lines(split))
        held_out = max(1, round(total * self.val_fraction))
        if not total:
            raise ValueError(f"{self._path(split)} is empty; give a text with one sentence or paragraph per line")
        if total < 2:
            raise ValueError(
                f"{self._path(split)}: one line cannot be divided into training and validation; give val= a file"
            )
        return islice(lines, total - held_out) if split == "train" else islice(lines, total - held_out, None)

    def _filled_lines(self, split: Split) -> Iterator[str]:
        return filter(str.strip, read_lines(self._path(split), self.encoding))

    def _is_cut(self, split: Split) -> bool:
        return split != "test" and self.paths["val"] is None

    def _all_splits(self) -> list[Split]:
        return ["train", "val", *(["test"] if self.paths["test"] else [])]

    def _path(self, split: Split) -> Path:
        name = self.paths[split] or (self.paths["train"] if split == "val" else None)
        if name is None:
            raise ValueError(f"there is no {split} text: give {split}= (--data.{split}) a file")
        return named_file(self.root, split, name)
