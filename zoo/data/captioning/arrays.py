"""Tokenised captions in memory-mapped files, and the batches made from them."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from zoo.batches.captioning import CaptionBatch
from zoo.data.captioning.image_features import BatchImages
from zoo.data.common.arrays import Ragged, RaggedWriter, chunks, token_type
from zoo.data.common.cache import appearing_when_complete, is_intact
from zoo.data.common.loaders import BatchStream
from zoo.text import BOS, EOS, PAD, UNK, Tokenizer

_CHUNK = 1024  # images whose captions are tokenised together
_PUNCTUATION = frozenset(".,:;!?-–—…'\"`´‘’“”()[]{}")
_SIDED = re.compile(r"\b(?:left|right)\b", re.IGNORECASE)


class Record(NamedTuple):
    """An image with its captions.

    Attributes:
        image: name of the image in the data set.
        captions: as in the data set.
    """

    image: str
    captions: list[str]


@lru_cache(maxsize=1)
def _splitter() -> Tokenizer:
    """Splits text into words; has no vocabulary."""
    return Tokenizer.train([], "word_punct")


@lru_cache(maxsize=2**18)
def _spoken(word: str) -> str:
    return " ".join(piece for piece in _splitter().words(word) if piece not in _PUNCTUATION)


def without_punctuation(caption: str) -> str:
    """The words of a caption without punctuation marks, as in scoring."""
    return " ".join(filter(None, map(_spoken, caption.split())))


class CaptionEncoding(NamedTuple):
    """How captions are turned into ids.

    Attributes:
        tokenizer: gives the word ids.
        keep_punctuation: punctuation marks are words.
        max_words: captions are cut after this many words.
    """

    tokenizer: Tokenizer
    keep_punctuation: bool
    max_words: int | None

    def words(self, caption: str) -> list[int]:
        """Word ids of a caption."""
        text = caption if self.keep_punctuation else without_punctuation(caption)
        return self.tokenizer.encode(text)[: self.max_words]


def pad_captions(captions: Sequence[Sequence[Sequence[int] | np.ndarray]]) -> tuple[Tensor, Tensor]:
    """Adds BOS and EOS to the captions of `N` images and pads them, with all-PAD rows for missing captions.

    Args:
        captions: word ids (lists or integer arrays) of each caption of each image.

    Returns:
        captions: (N, K, T) int64, see `CaptionBatch`; K is at least 1.
        lengths: (N, K) int64.
    """
    most = max([1, *map(len, captions)])
    longest = max((len(words) for image in captions for words in image), default=0)
    ids = np.full((len(captions), most, longest + 2), PAD, np.int64)
    lengths = np.zeros((len(captions), most), np.int64)
    for i, image in enumerate(captions):
        for k, words in enumerate(image):
            ids[i, k, 0], ids[i, k, 1 : len(words) + 1], ids[i, k, len(words) + 1] = BOS, words, EOS
            lengths[i, k] = len(words) + 1
    return torch.from_numpy(ids), torch.from_numpy(lengths)


class CaptionArrays:
    """Images with tokenised captions, read from the folder that `build` wrote.

    Args:
        folder: that folder.
        images: source of the images' pixels or features, in the order of `read_names(folder)`; None for
            the captions alone.
        captions_per_image: maximum number of captions per image in a batch.
        flip: probability that an image is mirrored in training; never if a caption contains the word left or right.
        seed: selects which images are mirrored in an epoch and which captions are drawn.

    Attributes:
        without_words: number of images left out because none of their captions has words.
        tokens: number of words of all captions.
        texts: number of images.
    """

    noun = "images"
    special = 1  # EOS

    def __init__(
        self, folder: Path, images: BatchImages | None, captions_per_image: int, flip: float = 0.0, seed: int = 0
    ) -> None:
        self._arguments = (folder, images, captions_per_image, flip, seed)
        self._images, self._captions_per_image, self._flip, self._seed = images, captions_per_image, flip, seed
        meta = json.loads((folder / "meta.json").read_text())
        self.texts: int = meta["images"]
        self.without_words: int = meta["without_words"]
        self.tokens: int = meta["tokens"]
        self._words = Ragged(folder, "words", meta["dtype"])
        self._lengths = Ragged(folder, "lengths", "uint32")
        self._sided = np.fromfile(folder / "sided", np.bool_)
        references = folder / "references.json"
        self._references = json.loads(references.read_text()) if references.exists() else None

    def __reduce__(self) -> tuple:
        return CaptionArrays, self._arguments  # a worker process maps the files itself

    def __len__(self) -> int:
        return self.texts

    def lengths(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Length of the longest caption of the images `index`, (N,) int64, twice."""
        rows = self._lengths.rows(index)
        longest = np.fromiter((row.max(initial=0) for row in rows), np.int64, len(rows))
        return longest, longest

    def batch(self, index: np.ndarray, epoch: int | None = None) -> CaptionBatch:
        """The images `index` as one batch.

        Args:
            index: (N,) indices of images.
            epoch: epoch of the training data: mirroring, and the captions drawn if an image has too many, depend
                only on the seed, the epoch and the image; None: the first captions, no mirroring.
        """
        if self._images is None:
            raise ValueError("there are no batches of captions alone; give CaptionArrays the images too")
        captions = self._captions(index)
        flips = np.zeros(len(index), np.bool_)
        if epoch is not None:
            for i, image in enumerate(index.tolist()):
                rng = np.random.default_rng((self._seed, epoch, image, 1))
                flips[i] = rng.random() < self._flip and not self._sided[image]
                if len(captions[i]) > self._captions_per_image:
                    captions[i] = [captions[i][k] for k in rng.permutation(len(captions[i])).tolist()]
        ids, lengths = pad_captions([image[: self._captions_per_image] for image in captions])
        references = None if self._references is None else [self._references[i] for i in index.tolist()]
        return CaptionBatch(self._images.get(index, flips), ids, lengths, references)

    def unknown(self) -> int:
        """Number of words that are UNK."""
        return self._words.count(UNK)

    def captions(self) -> list[list[list[int]]]:
        """Token ids of all captions of each image, EOS at the end."""
        return [[[*caption.tolist(), EOS] for caption in image] for image in self._captions(np.arange(len(self)))]

    def release(self) -> None:
        """Lets the system drop the pages read so far."""
        self._words.release()
        self._lengths.release()
        if self._images is not None:
            self._images.release()

    def _captions(self, index: np.ndarray) -> list[list[np.ndarray]]:
        return [
            np.split(words, np.cumsum(lengths[:-1])) if len(lengths) else []
            for words, lengths in zip(self._words.rows(index), self._lengths.rows(index), strict=True)
        ]

    @staticmethod
    def build(folder: Path, records: Iterable[Record], encoding: CaptionEncoding, source: str, training: bool) -> None:
        """Tokenises `records` into `folder`, which appears only when it is complete.

        Args:
            folder: target; nothing is done if it already exists and is intact.
            records: images and captions, read once.
            encoding: how captions are turned into ids.
            source: name of the data in messages.
            training: leave out captions without words, and images without any other captions; else their captions
                are kept as references.

        Raises:
            ValueError: nothing is left.
        """
        if is_intact(folder):
            return
        with appearing_when_complete(folder) as temporary:
            _write(temporary, records, encoding, source, training)


def _write(folder: Path, records: Iterable[Record], encoding: CaptionEncoding, source: str, training: bool) -> None:
    dtype = token_type(encoding.tokenizer)
    words, lengths = RaggedWriter(folder, "words", dtype), RaggedWriter(folder, "lengths", "uint32")
    names, references, sided, without_words = [], [], [], 0
    try:
        for chunk in chunks(records, _CHUNK):
            encoded = [[ids for ids in map(encoding.words, record.captions) if ids] for record in chunk]
            kept = [(record, rows) for record, rows in zip(chunk, encoded, strict=True) if rows or not training]
            without_words += len(chunk) - len(kept)
            words.write([[i for ids in rows for i in ids] for _, rows in kept])
            lengths.write([list(map(len, rows)) for _, rows in kept])
            names += [record.image for record, _ in kept]
            references += [record.captions for record, _ in kept]
            sided += [any(map(_SIDED.search, record.captions)) for record, _ in kept]
    finally:
        words.close()
        lengths.close()
    if not names:
        raise ValueError(f"{source}: it has no image with a caption")
    np.array(sided, np.bool_).tofile(folder / "sided")
    (folder / "names.json").write_text(json.dumps(names))
    if not training:
        (folder / "references.json").write_text(json.dumps(references))
    meta = {"images": len(names), "without_words": without_words, "tokens": words.end, "dtype": dtype}
    (folder / "meta.json").write_text(json.dumps(meta))


def read_names(folder: Path) -> list[str]:
    """Names of the images that `CaptionArrays.build` wrote to `folder`, by index."""
    return json.loads((folder / "names.json").read_text())


class CaptionStream(BatchStream[CaptionArrays]):
    """Training batches of images; the captions drawn and the images mirrored change from epoch to epoch."""

    def _batch(self, index: np.ndarray, epoch: int) -> CaptionBatch:
        return self.arrays.batch(index, epoch)
