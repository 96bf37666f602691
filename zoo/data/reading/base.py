"""What all data sets of cloze-style reading comprehension share."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, TypedDict

from torch import Tensor

from zoo.data.classification.arrays import Encoding, Example, LabeledArrays
from zoo.data.common.base import SortedData, Split
from zoo.data.common.cache import cached_text
from zoo.data.common.files import fingerprint
from zoo.data.common.word_vectors import cached_vectors, check_word_vectors, file_signature
from zoo.data.reading.arrays import ClozeArrays, Question, fresh_text
from zoo.text import Tokenizer
from zoo.utils.numbers_given import check_at_least
from zoo.utils.places import cache_folder

_FORMAT = 2  # part of every cache key: increase it when tokenisation or the files change


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
        check_at_least(
            vocab_size=(vocab_size, 5),
            min_frequency=(min_frequency, 1),
            batch_size=(batch_size, 1),
            batch_tokens=(batch_tokens, 1),
            word2vec_epochs=(word2vec_epochs, 1),
            pool_batches=(pool_batches, 1),
            num_workers=(num_workers, 0),
            seed=(seed, 0),
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

    def setup(self, stage: str | None = None) -> None:
        """Opens the files of `prepare_data` that a stage needs, by default all; afterwards `tokenizer` is set."""
        splits = self._opened(stage)
        self.tokenizer = self._tokenizer()
        if "train" in splits:
            self._train = self._arrays("train")
            if self._train.absent or self._train.empty:
                self._tell(
                    f"{len(self._train):,} training questions; left out {self._train.absent:,} whose answer is not "
                    "in the document "
                    f"and {self._train.empty:,} without words"
                )
        if "val" in splits:
            self._val = self._arrays("val")
            if self._val.absent == len(self._val):
                self._tell(
                    f"none of the {len(self._val):,} validation questions has its answer in its document, so the "
                    "accuracy is 0 and the loss is NaN"
                )
        if "test" in splits:
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
        texts, source = [], [] if self.word_vectors == "word2vec" else file_signature(self.word_vectors)
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
