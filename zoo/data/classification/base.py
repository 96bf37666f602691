"""What all data modules of labelled texts share: tokenizer, label names, hold-out, cache, loaders."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal, TypedDict

from torch import Tensor

from zoo.data.classification.arrays import Encoding, Example, LabeledArrays, LabeledStream, quoted
from zoo.data.classification.extra import read_extra
from zoo.data.common.base import SortedData, Split
from zoo.data.common.cache import cached_text
from zoo.data.common.files import check_fraction, draw, fingerprint, held_out_below, named_file
from zoo.data.common.loaders import TrainLoader
from zoo.data.common.word_vectors import cached_vectors, check_word_vectors, file_signature
from zoo.text import Tokenizer
from zoo.utils.labels import check_labels
from zoo.utils.numbers_given import check_at_least
from zoo.utils.places import cache_folder

_FORMAT = 2  # part of every cache key: increase it when tokenisation, sentence splitting or the files change


class LabeledOptions(TypedDict, total=False):
    """Keywords of `LabeledData`."""

    root: str | None
    cache_dir: str | None
    vocab_size: int
    min_frequency: int
    lowercase: bool
    batch_size: int | None
    batch_tokens: int | None
    max_words: int | None
    max_sentences: int | None
    sample_words: int | None
    word_vectors: str | None
    word2vec_epochs: int
    extra_text: list[str] | None
    extra_examples: list[str] | None
    extend_vocabulary: int
    pool_batches: int
    val_fraction: float
    split_seed: int
    num_workers: int
    seed: int


class LabeledData(SortedData[LabeledArrays]):
    """Base class of the data sets of labelled texts.

    A subclass implements the `examples` of each split, a `signature` of what they depend on, and, if it can download,
    `fetch`. Texts without words are left out of training and kept in validation and test.

    Args:
        root: folder of the data; else the environment variable `ZOO_DATA`; else downloads go to the cache.
        cache_dir: folder for downloads, tokenizers and tokenised text; else `ZOO_CACHE`, else `~/.cache/attention-zoo`.
        vocab_size: maximum number of words in the vocabulary.
        min_frequency: words less frequent in training become UNK.
        lowercase: lowercase the text.
        batch_size: texts per batch and process.
        batch_tokens: words per batch and process (number of texts times longest text), instead of `batch_size`.
        max_words: texts are cut after this many words, in training and evaluation; None: never.
        max_sentences: documents are cut after this many sentences; None: never.
        sample_words: a longer text shows in each epoch of training another part of about this many words: random
            sentences of a document, consecutive words of another text. Validation and test read whole texts. None:
            training does so too.
        word_vectors: pretrained word vectors for `vectors`: a file (GloVe or fastText text, word2vec text or
            binary), or "word2vec": skip-gram vectors learnt from the training text; None for none.
        word2vec_epochs: passes of word2vec over the training text.
        extra_text: names of further data sets of this package, e.g. ["IMDB"], whose training texts the vocabulary
            and the word2vec vectors are also learnt from. Their labels are not used.
        extra_examples: your own files of additional training texts (relative to the working directory): tables with
            the columns text (and text2 for pairs) and label; or, instead of label, a column for each label of the data
            with its probability, as the stage `classify` of `zoo rebuild` writes them; and, if examples of the data
            have scores, a column score.
        extend_vocabulary: number of words to add to a pretrained model's vocabulary when training begins: the most
            frequent unknown words of the training text, seen at least `min_frequency` times; 0 for none.
        pool_batches: batches sorted by length together: more means less padding, fewer means more varied batches.
        val_fraction: share of the training texts held out for validation if the data set has no validation split.
            Repeated texts are never on both sides.
        split_seed: selects the texts that are held out.
        num_workers: worker processes that load batches.
        seed: seed for the order of the training texts.

    Attributes:
        structure: "document": batches are `DocumentBatch`; "text": they are `TextBatch`.
        pair: each example has two texts.
        multi_label: a text may have any number of labels.
        scored: some examples have a score besides the label (`TextBatch.scores`).
        holds_out: the data set has no validation split, so a part of the training texts is held out.
        cleaning: how texts are cleaned before they are split into words (`Tokenizer.clean`), in this data set and
            in any model that learns from it.
        known_labels: names of the labels by id, if known without reading the data.
        test_names: names of the test sets.
        published: the data sets that people have published, by name.
        tokenizer: set by `setup`: the model's, if it has one, else one of kind "word_punct".
        labels: set by `setup`: names of the labels by id.
    """

    task = "classification"
    structure: Literal["document", "text"] = "text"
    pair: bool = False
    multi_label: bool = False
    holds_out: bool = False
    _told = False  # of extra examples that are left out
    cleaning: Sequence[str] = ()
    known_labels: Sequence[str] | None = None
    test_names: ClassVar[list[str]] = ["test"]
    published: ClassVar[dict[str, type["LabeledData"]]] = {}

    def __init__(
        self,
        root: str | None = None,
        cache_dir: str | None = None,
        vocab_size: int = 25_000,
        min_frequency: int = 2,
        lowercase: bool = True,
        batch_size: int | None = 64,
        batch_tokens: int | None = None,
        max_words: int | None = None,
        max_sentences: int | None = None,
        sample_words: int | None = None,
        word_vectors: str | None = None,
        word2vec_epochs: int = 5,
        extra_text: list[str] | None = None,
        extra_examples: list[str] | None = None,
        extend_vocabulary: int = 0,
        pool_batches: int = 20,
        val_fraction: float = 0.1,
        split_seed: int = 0,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not batch_size and not batch_tokens:
            raise ValueError("give batch_size (texts) or batch_tokens (words); got neither")
        check_at_least(
            vocab_size=(vocab_size, 5),
            min_frequency=(min_frequency, 1),
            batch_size=(batch_size, 1),
            batch_tokens=(batch_tokens, 1),
            max_words=(max_words, 1),
            max_sentences=(max_sentences, 1),
            sample_words=(sample_words, 1),
            word2vec_epochs=(word2vec_epochs, 1),
            extend_vocabulary=(extend_vocabulary, 0),
            pool_batches=(pool_batches, 1),
            num_workers=(num_workers, 0),
            seed=(seed, 0),
        )
        check_fraction("val_fraction", val_fraction)
        self.root = root
        self.cache = cache_folder(cache_dir)
        self.vocab_size, self.min_frequency, self.lowercase = vocab_size, min_frequency, lowercase
        self.batch_size, self.batch_tokens = None if batch_tokens else batch_size, batch_tokens
        self.max_words, self.max_sentences, self.sample_words = max_words, max_sentences, sample_words
        self.word_vectors, self.word2vec_epochs = word_vectors, word2vec_epochs
        self._extra = self._extra_data(extra_text or [])
        self.extra_examples = extra_examples or []
        self.extend_vocabulary = extend_vocabulary
        self.pool_batches, self.val_fraction, self.split_seed = pool_batches, val_fraction, split_seed
        self.num_workers, self.seed = num_workers, seed
        self.tokenizer: Tokenizer | None = None
        self.labels: list[str] | None = None

    @property
    def scored(self) -> bool:
        """Examples, or some of them, have a score beside the label (`TextBatch.scores`)."""
        return False

    def is_pretrained(self) -> bool:
        """Whether the model that is trained or tested has its own tokenizer."""
        return self._of_model("tokenizer") is not None

    # To be implemented by a data set

    def fetch(self) -> None:
        """Downloads missing files; called in one process only."""

    def signature(self, split: Split) -> list[object]:
        """What `examples(split)` depends on: JSON-able values and file paths."""
        raise NotImplementedError

    def examples(self, split: Split) -> Iterator[Example]:
        """Examples, streamed; "val" is never requested if the data set `holds_out`."""
        raise NotImplementedError

    def once(self) -> "LabeledData":
        """Data set for vocabulary and word2vec, with each training text once, so that none counts more."""
        return self

    def source(self, split: Split) -> str:
        """Name of a split in messages, preferably its file."""
        return f"the {split} text"

    # Called by Lightning

    def prepare_data(self) -> None:
        """Downloads, learns the tokenizer and tokenises the texts, unless they are in the cache."""
        self._check_model()
        size = self._wanted_vectors()  # reports missing files before the long work
        self.fetch()
        if not self.is_pretrained():
            for data in self._extra:
                data.fetch()
        labels = self._label_names()  # before the vocabulary, which takes longer
        tokenizer = self._tokenizer()
        for split in self._splits():
            self._build(split, tokenizer, labels)
        if size is not None:
            self.tokenizer, self.labels = tokenizer, labels
            self.vectors(size)
        if self.is_pretrained() and "train" in self._splits():
            train = LabeledArrays(self._folder("train", tokenizer, labels))
            self._unknown = train.unknown(), train.tokens

    def setup(self, stage: str | None = None) -> None:
        """Opens the files of `prepare_data` that a stage needs, by default all.

        Afterwards `tokenizer` and `labels` are set.
        """
        splits = self._opened(stage)
        self.tokenizer, self.labels = self._tokenizer(), self._label_names()
        self._adapt_model(stage)
        if "train" in splits:
            self._train = self._arrays("train")
            if self._train.empty:
                self._tell(f"{len(self._train):,} training texts; left out {self._train.empty:,} without words")
        if "val" in splits:
            self._val = self._arrays("val")
        if "test" in splits:
            self._test = self._arrays("test")

    def train_dataloader(self) -> TrainLoader:
        """Endless, resumable, shuffled batches of similar length."""
        sizes = self.batch_size, self.batch_tokens, self.pool_batches
        return self._train_loader(
            LabeledStream(self._train, self.sample_words, *sizes, self.seed, *self._rank_and_world_size())
        )

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
        if self.word_vectors == "word2vec":
            own = self._folder("train", tokenizer, self._ready(self.labels, "labels"))
            texts = [own] if self.once() is self else []
            others = [data.once() for data in (self, *self._extra)][len(texts) :]
            texts += [data._build("train", tokenizer, data._own_label_names()) for data in others]
            source = [*(folder.name for folder in texts), self.word2vec_epochs, self.seed]
        else:
            texts, source = [], file_signature(self.word_vectors)
        key = fingerprint(_FORMAT, "vectors", tokenizer.to_json(), size, *source)
        path = self.cache / "vectors" / f"{key}.npy"
        arrays = [LabeledArrays(folder) for folder in texts]
        return cached_vectors(path, self.word_vectors, tokenizer, size, arrays, self.word2vec_epochs, self.seed)

    # Helpers

    def _wanted_vectors(self) -> int | None:
        """Numbers of a ready word vector, if a training of new words wants them, whose source is checked."""
        size = (self._of_model("config") or {}).get("embedding_size")
        if not (self.word_vectors and size and "train" in self._splits() and self._has_new_words()):
            return None
        check_word_vectors(self.word_vectors)
        return size

    def examples_of(self, split: Split) -> Iterator[Example]:
        """The examples of a split, streamed; those held out of training are "val" if the data set `holds_out`."""
        own = self.examples("train" if self.holds_out and split == "val" else split)
        if self.holds_out and split != "test":
            wanted = split == "val"
            own = (example for example in own if self._is_held_out(example) == wanted)
        return chain(own, self._extra_of(split))

    def _extra_of(self, split: Split) -> Iterator[Example]:
        """The examples of `extra_examples`, without the texts that are held out of training."""
        files = self._extra_files() if split == "train" else []
        held_out = set()
        if files and self.holds_out:
            held_out = {example.text for example in self.examples("train") if self._is_held_out(example)}
        left_out = 0
        for example in chain.from_iterable(map(self._read_extra, files)):
            if example.text in held_out:
                left_out += 1
            else:
                yield example
        if left_out and not self._told:
            self._told = True
            self._tell(f"extra_examples: left out {left_out:,} whose texts are held out for validation")

    def _extra_files(self) -> list[Path]:
        return [named_file(".", "extra_examples", name) for name in self.extra_examples]

    def _read_extra(self, file: Path) -> Iterator[Example]:
        return read_extra(file, self._label_names(), self.pair, self.multi_label, self.scored)

    def _source(self, split: Split) -> str:
        if not self.holds_out or split != "val":
            return self.source(split)
        return f"{self.source('train')}, val_fraction {self.val_fraction} of it"

    def _is_held_out(self, example: Example) -> bool:
        return draw(example.text, self.split_seed) < self._limit

    @cached_property
    def _limit(self) -> float:
        """What is drawn below it is held out: at least one text.

        Raises:
            ValueError: there are no two different texts.
        """
        texts = (example.text for example in self.examples("train"))
        alike = f"{self.source('train')} has no two different texts"
        return held_out_below(texts, self.val_fraction, self.split_seed, alike)

    def _signature(self, split: Split) -> list[object]:
        extra = self._extra_files() if split == "train" else []
        if not self.holds_out or split == "test":
            return [*self.signature(split), *extra]
        extra = ["apart", *extra] if extra else []
        return [*self.signature("train"), split, self.val_fraction, self.split_seed, *extra]

    def _tokenizer(self) -> Tokenizer:
        """The model's tokenizer with the words of `extend_vocabulary`; without one, learnt from the training text."""
        tokenizer = self._of_model("tokenizer")
        if tokenizer is not None and self._may_change_model():
            tokenizer = tokenizer.cleaning_also(self.cleaning)
        if tokenizer is not None and self._adds_words():
            once = self.once()
            return self._extended(tokenizer, lambda: self._texts([once]), once._signature("train"), self.min_frequency)
        if tokenizer is not None:
            return tokenizer
        options = (self.vocab_size, self.lowercase, self.min_frequency, *[self.cleaning] * bool(self.cleaning))
        read = [data.once() for data in (self, *self._extra)]
        key = fingerprint(_FORMAT, *(data._signature("train") for data in read), "words", options)
        path = self.cache / "tokenizers" / f"{key}.json"
        make = lambda: Tokenizer.train(self._texts(read), "word_punct", *options).to_json()  # noqa: E731
        return Tokenizer.from_json(cached_text(path, make))

    @staticmethod
    def _texts(read: Sequence["LabeledData"]) -> Iterator[str]:
        """All training texts of some data sets."""
        examples = (example for data in read for example in data.examples_of("train"))
        return (text for example in examples for text in example[:2] if text is not None)

    def _check_model(self) -> None:
        """Raises early if the model reads another kind of text."""
        wanted, pair = self._of_model("structure"), (self._of_model("config") or {}).get("pair", False)
        if wanted is None:
            return
        model = type(self._model).__name__
        if wanted != self.structure:
            raise ValueError(
                f"{model} reads {wanted}s, the data are {self.structure}s; set split_sentences of the data to "
                f"{str(wanted == 'document').lower()}, or use another model"
            )
        if pair != self.pair:
            kinds = {True: "pairs of texts", False: "single texts"}
            raise ValueError(
                f"this {model} reads {kinds[pair]}, the data are {kinds[self.pair]}; use another model or other data"
            )

    def _has_new_words(self) -> bool:
        return not self.is_pretrained() or self._adds_words()

    def _label_names(self) -> list[str]:
        """The model's labels, if it has any, else the data's; training gives the model the data's if they differ."""
        of_model = self._of_model("label_names")
        if of_model is None:
            return self._own_label_names()
        if self.known_labels is not None or "train" in self._splits():
            model = type(self._model).__name__
            own = self._own_label_names()
            if set(own) != set(of_model) and self._may_change_model() and self._of_model("replace_labels"):
                return own
            for name in own:
                if name not in of_model:
                    raise ValueError(
                        f"label {name!r} of the data is unknown to the model {model}; allowed: {quoted(of_model)}"
                    )
            for name in of_model:
                if name not in own:
                    raise ValueError(
                        f"label {name!r} of the model {model} is not in the data, which has: {quoted(own)}"
                    )
        return list(of_model)

    def _own_label_names(self) -> list[str]:
        """The known labels, else those of the whole training text, in natural order."""
        if self.known_labels is not None:
            return list(self.known_labels)
        path = self.cache / "labels" / f"{fingerprint(_FORMAT, self.signature('train'))}.json"
        return json.loads(cached_text(path, self._labels_of_training))

    def _labels_of_training(self) -> str:
        names = {name for example in self.examples("train") for name in example.labels}
        if not names:
            raise ValueError(f"{self.source('train')}: it has no text with a label")
        found = sorted(sorted(names), key=_natural)  # "01" and "1" too have an order, the same in each process
        check_labels(found, f"{self.source('train')}: the labels")
        return json.dumps(found)

    def _extra_data(self, names: Sequence[str]) -> list["LabeledData"]:
        sets = self.published
        found = []
        for name in names:
            if name not in sets:
                allowed = ", ".join(sorted(sets))
                raise ValueError(f"extra_text must name data sets of this package: {allowed}; got {name!r}")
            found.append(sets[name](root=self.root, cache_dir=str(self.cache)))
        return found

    def _build(self, split: Split, tokenizer: Tokenizer, labels: list[str]) -> Path:
        """Tokenises a split, unless it is in the cache, and returns the folder."""
        folder = self._folder(split, tokenizer, labels)
        label_ids = {name: i for i, name in enumerate(labels)}
        encoding = Encoding(
            tokenizer,
            label_ids,
            self.structure,
            self.pair,
            self.multi_label,
            self.max_words,
            self.max_sentences,
            self.scored,
            bool(self.extra_examples) and split == "train",
            f"the model {type(self._model).__name__}" if labels == self._of_model("label_names") else None,
        )
        LabeledArrays.build(folder, self.examples_of(split), encoding, self._source(split), keep_empty=split != "train")
        return folder

    def _folder(self, split: Split, tokenizer: Tokenizer, labels: list[str]) -> Path:
        options = (self.structure, self.pair, self.multi_label, self.max_words, self.max_sentences)
        scored = ["scored"] if self.scored else []
        key = fingerprint(_FORMAT, self._signature(split), split, tokenizer.to_json(), labels, options, *scored)
        return self.cache / "texts" / key

    def _arrays(self, split: Split) -> LabeledArrays:
        tokenizer, labels = self._ready(self.tokenizer, "tokenizer"), self._ready(self.labels, "labels")
        folder = self._folder(split, tokenizer, labels)
        if not folder.exists():
            raise FileNotFoundError(f"there is no tokenised text in {folder}; call prepare_data() before setup()")
        return LabeledArrays(folder)


def _natural(name: str) -> list[str | int]:
    """Sorting key with numbers by value: "2" before "10"."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
