"""What all data modules of sentence pairs share: tokenizers, cache, loaders."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, TypedDict

from zoo.data.common.arrays import PairArrays
from zoo.data.common.base import DataModule, Split
from zoo.data.common.bpe_dropout import BpeDropout
from zoo.data.common.cache import cached_text
from zoo.data.common.download import RemoteFile, fetch
from zoo.data.common.files import fingerprint
from zoo.data.common.loaders import BatchStream, EvalLoader, TrainLoader
from zoo.data.common.published import Published
from zoo.text import Tokenizer
from zoo.utils.numbers_given import check_at_least
from zoo.utils.places import cache_folder

_FORMAT = 2  # part of every cache key: increase it when tokenisation or the files change

Tokens = tuple[list[int], list[int]]  # of one source and one target sentence


class PairOptionsWithoutVocabulary(TypedDict, total=False):
    """Keywords of `PairData`, for data sets that set its vocabulary themselves."""

    root: str | None
    cache_dir: str | None
    lowercase: bool
    batch_size: int | None
    batch_tokens: int | None
    max_length: int | None
    pool_batches: int
    bpe_dropout: float
    extend_vocabulary: int
    num_workers: int
    seed: int


class PairOptions(PairOptionsWithoutVocabulary, total=False):
    """Keywords of `PairData`."""

    tokenizer: Literal["bpe", "word", "char"]
    vocab_size: int
    shared_vocab: bool


class PairData(DataModule):
    """Base class of the data sets of sentence pairs.

    A subclass implements the pairs (`train_pairs`, `val_pairs`, `test_sets`), a `signature` of its training text, and,
    if it can download, `fetch`.

    Args:
        root: folder of the data; else the environment variable `ZOO_DATA`; else downloads go to the cache.
        cache_dir: folder for downloads, tokenizers and tokenised text; else `ZOO_CACHE`, else `~/.cache/attention-zoo`.
        tokenizer: "bpe" subwords, "word" (split at spaces: for tokenised text) or "char".
        vocab_size: maximum size of a vocabulary.
        shared_vocab: one vocabulary for both languages.
        lowercase: lowercase the text before it is split.
        batch_size: sentences per batch and process.
        batch_tokens: tokens per batch and process (number of sentences times longest side), instead of `batch_size`.
        max_length: training pairs with a longer side (in tokens) are left out; None keeps all.
        pool_batches: batches sorted by length together: more means less padding, fewer means more varied batches.
        bpe_dropout: share of the merges skipped at random in training, so that words are segmented in varying ways
            (Provilkov et al. 2020 use 0.1); 0 for none.
        extend_vocabulary: number of words to add to a pretrained model's vocabulary when training begins: the most
            frequent unknown words of the training text (for subwords: words that take several); 0 for none.
        num_workers: worker processes that load batches.
        seed: seed for the order of the training pairs.

    Attributes:
        test_names: names of the test sets.
        cleaning: how texts are cleaned before they are split into words, see `Tokenizer.clean`.
        tgt_lang: ISO 639 code of the target language; used only for scores.
        tokenized: the text is already tokenised, so scores must not tokenise it again.
        exact_only: an output is right only if it equals its reference: exact match is the only score, without BLEU.
    """

    task = "translation"
    test_names: list[str] = ["test"]
    cleaning: Sequence[str] = ()
    tgt_lang: str = "en"
    tokenized: bool = False
    exact_only: bool = False

    def __init__(
        self,
        root: str | None = None,
        cache_dir: str | None = None,
        tokenizer: Literal["bpe", "word", "char"] = "bpe",
        vocab_size: int = 8000,
        shared_vocab: bool = True,
        lowercase: bool = False,
        batch_size: int | None = 64,
        batch_tokens: int | None = None,
        max_length: int | None = 100,
        pool_batches: int = 192,
        bpe_dropout: float = 0.0,
        extend_vocabulary: int = 0,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if tokenizer not in ("bpe", "word", "char"):
            raise ValueError(f"tokenizer must be one of 'bpe', 'word', 'char'; got {tokenizer!r}")
        if not batch_size and not batch_tokens:
            raise ValueError("give batch_size (sentences) or batch_tokens (tokens); got neither")
        check_at_least(
            vocab_size=(vocab_size, 5),
            batch_size=(batch_size, 1),
            batch_tokens=(batch_tokens, 1),
            max_length=(max_length, 1),
            pool_batches=(pool_batches, 1),
            extend_vocabulary=(extend_vocabulary, 0),
            num_workers=(num_workers, 0),
            seed=(seed, 0),
        )
        if not 0 <= bpe_dropout < 1:
            raise ValueError(f"bpe_dropout must be at least 0 and less than 1; got {bpe_dropout}")
        if bpe_dropout and tokenizer != "bpe":
            raise ValueError(f"bpe_dropout needs tokenizer 'bpe'; got {tokenizer!r}")
        self.root = root
        self.cache = cache_folder(cache_dir)
        self.kind: Literal["bpe", "word", "char"] = tokenizer
        self.vocab_size = vocab_size
        self.shared_vocab, self.lowercase = shared_vocab, lowercase
        self.batch_size, self.batch_tokens = None if batch_tokens else batch_size, batch_tokens
        self.max_length, self.pool_batches, self.bpe_dropout = max_length, pool_batches, bpe_dropout
        self.extend_vocabulary = extend_vocabulary
        self.num_workers, self.seed = num_workers, seed
        self.src_tokenizer: Tokenizer | None = None
        self.tgt_tokenizer: Tokenizer | None = None

    # To be implemented by a data set

    def fetch(self) -> None:
        """Downloads missing files; called in one process only."""

    def signature(self) -> list[object]:
        """What the training pairs depend on: JSON-able values and file paths."""
        raise NotImplementedError

    def train_pairs(self) -> Iterator[tuple[str, str]]:
        """Training pairs, streamed."""
        raise NotImplementedError

    def val_pairs(self) -> list[tuple[str, str]]:
        """Validation pairs."""
        raise NotImplementedError

    def test_sets(self) -> list[list[tuple[str, str]]]:
        """Pairs of each test set, in the order of `test_names`."""
        raise NotImplementedError

    def unanswerable(self) -> list[str]:
        """Validation inputs that have no right answer, for calibration."""
        return []

    # Called by Lightning

    def prepare_data(self) -> None:
        """Downloads, learns the tokenizers and tokenises the training text, unless they are in the cache."""
        self.fetch()
        src_tokenizer, tgt_tokenizer = self._model_tokenizers() or self._own_tokenizers()
        if self.trainer is None or self.trainer.state.fn == "fit":
            folder = self._arrays_folder(src_tokenizer, tgt_tokenizer)
            PairArrays.build(folder, self.train_pairs(), src_tokenizer, tgt_tokenizer, self.max_length)
            if self._model_tokenizers():
                arrays = PairArrays(folder)
                self._unknown = arrays.unknown(), arrays.tokens

    def setup(self, stage: str | None = None) -> None:
        """Opens the files of `prepare_data` that a stage needs, by default all.

        Afterwards `src_tokenizer` and `tgt_tokenizer` are set.
        """
        splits = self._opened(stage)
        self.src_tokenizer, self.tgt_tokenizer = self._model_tokenizers() or self._own_tokenizers()
        self._adapt_model(stage)
        if "train" in splits:
            folder = self._arrays_folder(self.src_tokenizer, self.tgt_tokenizer)
            if not folder.exists():
                raise FileNotFoundError(f"there is no tokenised text in {folder}; call prepare_data() before setup()")
            self._train = PairArrays(folder)
            if self._train.too_long or self._train.empty:
                self._tell(
                    f"{len(self._train):,} training pairs; left out {self._train.too_long:,} longer than "
                    f"{self.max_length} tokens and {self._train.empty:,} with an empty side"
                )
        if "val" in splits:
            self._val = self._encoded("validation", self.val_pairs())
        if "test" in splits:
            sets = zip(self.test_names, self.test_sets(), strict=True)
            self._test = [self._encoded(name, pairs) for name, pairs in sets]

    def train_dataloader(self) -> TrainLoader:
        """Endless, resumable, shuffled batches of similar length."""
        rank, world_size = self._rank_and_world_size()
        dropouts = None
        if self.bpe_dropout:
            src, tgt = self._ready_tokenizers()
            dropouts = BpeDropout(src, self.bpe_dropout, self.seed), BpeDropout(tgt, self.bpe_dropout, self.seed)
        stream = BatchStream(
            self._train, self.batch_size, self.batch_tokens, self.pool_batches, self.seed, rank, world_size, dropouts
        )
        return self._train_loader(stream)

    def val_dataloader(self) -> EvalLoader:
        """Validation batches with texts, sorted by length."""
        return self._eval_loader(*self._val)

    def test_dataloader(self) -> list[EvalLoader]:
        """One loader per name in `test_names`."""
        return [self._eval_loader(*encoded) for encoded in self._test]

    # Helpers

    def _eval_loader(self, pairs: list[tuple[str, str]], tokens: list[Tokens]) -> EvalLoader:
        return EvalLoader(pairs, tokens, self.batch_size, self.batch_tokens, *self._rank_and_world_size())

    def _encoded(self, name: str, pairs: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[Tokens]]:
        if not pairs:
            raise ValueError(f"the {name} text is empty")
        texts = zip(*pairs, strict=True)
        src, tgt = (tokenizer.encode_batch(side) for tokenizer, side in zip(self._ready_tokenizers(), texts))
        return pairs, list(zip(src, tgt, strict=True))

    def _ready_tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        return self._ready(self.src_tokenizer, "src_tokenizer"), self._ready(self.tgt_tokenizer, "tgt_tokenizer")

    def _model_tokenizers(self) -> tuple[Tokenizer, Tokenizer] | None:
        """The tokenizers of a pretrained model, with the words of `extend_vocabulary`."""
        src, tgt = self._of_model("src_tokenizer"), self._of_model("tgt_tokenizer")
        if src is None or tgt is None:
            return None
        if not self._adds_words():
            return src, tgt
        if src is tgt:
            extended = self._extended(
                src, lambda: (text for pair in self.train_pairs() for text in pair), self.signature()
            )
            return extended, extended
        return (
            self._extended(src, lambda: (text for text, _ in self.train_pairs()), [self.signature(), "src"]),
            self._extended(tgt, lambda: (text for _, text in self.train_pairs()), [self.signature(), "tgt"]),
        )

    def _own_tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Tokenizers learnt from the training text, or read from the cache."""
        if self.shared_vocab:
            shared = self._tokenizer("shared")
            return shared, shared
        return self._tokenizer("src"), self._tokenizer("tgt")

    def _tokenizer(self, side: Literal["shared", "src", "tgt"]) -> Tokenizer:
        cleaning = [self.cleaning] * bool(self.cleaning)
        key = fingerprint(_FORMAT, self.signature(), side, self.kind, self.vocab_size, self.lowercase, *cleaning)
        path = self.cache / "tokenizers" / f"{key}.json"
        return Tokenizer.from_json(cached_text(path, lambda: self._learnt(side).to_json()))

    def _learnt(self, side: Literal["shared", "src", "tgt"]) -> Tokenizer:
        if side == "shared":
            texts = (text for pair in self.train_pairs() for text in pair)
        else:
            texts = (pair[side == "tgt"] for pair in self.train_pairs())
        return Tokenizer.train(texts, self.kind, self.vocab_size, self.lowercase, cleaning=self.cleaning)

    def _arrays_folder(self, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> Path:
        key = fingerprint(_FORMAT, self.signature(), src_tokenizer.to_json(), tgt_tokenizer.to_json(), self.max_length)
        return self.cache / "pairs" / key


class PublishedPairs(Published, PairData):
    """A published data set of sentence pairs; a file that is not found is downloaded to the cache.

    Attributes:
        remote: URLs of the files.
    """

    places = ("{}", "nmt/{}", "")
    remote: ClassVar[dict[str, RemoteFile]]

    def fetch(self) -> None:
        """Downloads the needed files that are not found.

        Raises:
            FileNotFoundError: a file is missing and could not be downloaded.
            ValueError: a download has the wrong checksum.
        """
        for name in dict.fromkeys(name for split in self._splits() for name in self.files(split)):
            if self._find(name) is None:
                remote = self.remote[name]
                suffix = "" if remote.member else Path(remote.url).suffix
                path = self._downloads() / (f"{name}{suffix}" if suffix in (".gz", ".xz") else name)
                try:
                    fetch(remote, path)
                except ConnectionError as error:
                    raise self._missing(name, f"; {error}") from error

    def _splits(self) -> list[Split]:
        splits = super()._splits()
        return splits if self._model_tokenizers() else list(dict.fromkeys(["train", *splits]))

    def _advice(self, name: str) -> str:
        return f"{self.folder}/, or run once on a machine with a network connection"
