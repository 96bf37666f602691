"""What all data modules of images with captions share: tokenizer, transform, cache, features, loaders."""

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict

import numpy as np
from tqdm import tqdm

from zoo.data.captioning.arrays import (
    CaptionArrays,
    CaptionEncoding,
    CaptionStream,
    Record,
    read_names,
    without_punctuation,
)
from zoo.data.captioning.image_features import (
    BatchImages,
    DecodedImages,
    StoredImages,
    build_rows,
    feature_rows,
    is_complete,
)
from zoo.data.captioning.image_files import ImageFiles, decode
from zoo.data.common.base import DataModule, Split
from zoo.data.common.cache import cached_text
from zoo.data.common.files import data_root, fingerprint
from zoo.data.common.loaders import SortedLoader, TrainLoader
from zoo.text import Tokenizer
from zoo.utils.numbers_given import check_at_least
from zoo.utils.places import at_home, cache_folder
from zoo.vision.images import ImageError, ImageTransform, check_header

_FORMAT = 2  # part of every cache key: increase it when tokenisation, the transform or the files change
_CHUNK = 32  # images that are decoded or encoded together for the cache
_LISTED = 5  # names in a warning

log = logging.getLogger(__name__)


class CaptionOptions(TypedDict, total=False):
    """Keywords of `CaptionData`."""

    root: str | None
    cache_dir: str | None
    vocab_size: int
    min_frequency: int
    keep_punctuation: bool
    batch_size: int
    captions_per_image: int
    max_words: int | None
    extend_vocabulary: int
    flip: float
    size: int
    resize: Literal["squash", "crop"]
    check_images: Literal["header", "decode"]
    cache_features: bool
    cache_pixels: bool
    pool_batches: int
    num_workers: int
    seed: int


class CaptionData(DataModule):
    """Base class of the data sets of images with captions.

    A subclass implements the `records` of each split, their `images`, and a `signature` of what they depend on. Images
    that are missing, damaged (as far as `check_images` detects) or without caption are listed and left out.

    The image transform and the tokenizer are the model's, if it has them (`model.transform`, `model.tokenizer`). If its
    encoder is frozen when a loader is made (`model.feature_key()` is not None), batches hold its features, which are
    computed once (`model.extract_features`).

    Args:
        root: folder of the data; else the environment variable `ZOO_DATA`.
        cache_dir: folder for tokenizers, tokenised captions and features; else `ZOO_CACHE`, else
            `~/.cache/attention-zoo`.
        vocab_size: maximum number of words in the vocabulary.
        min_frequency: words less frequent in training become UNK.
        keep_punctuation: punctuation marks are words; else they are dropped from captions, as in scoring.
        batch_size: images per batch and process.
        captions_per_image: captions per image in a batch. If it has more, some are drawn in each epoch.
        max_words: training captions are cut after this many words; None: never.
        extend_vocabulary: number of words to add to a pretrained model's vocabulary when training begins: the most
            frequent unknown words of the training captions, seen at least `min_frequency` times; 0 for none.
        flip: probability that an image is mirrored in training; never if a caption contains the word left or right.
        size: side of the images in pixels, if the model has no transform.
        resize: "squash" the whole frame to a square, or "crop" its centre, if the model has no transform.
        check_images: before training read the "header" of each image, or "decode" it, which finds all damage and
            takes as long as reading an epoch.
        cache_features: store the features of a frozen encoder.
        cache_pixels: store decoded images: 150 kB each at size 224.
        pool_batches: batches sorted by length together: more means less padding, fewer means more varied batches.
        num_workers: worker processes that load batches.
        seed: seed for the order of the images, the captions drawn and the images mirrored.

    Attributes:
        test_names: names of the test sets.
        tokenizer: set by `setup`: the model's, if it has one, else one of kind "word_punct", lowercase.
    """

    task = "captioning"
    test_names: ClassVar[list[str]] = ["test"]

    def __init__(
        self,
        root: str | None = None,
        cache_dir: str | None = None,
        vocab_size: int = 10_000,
        min_frequency: int = 5,
        keep_punctuation: bool = False,
        batch_size: int = 32,
        captions_per_image: int = 5,
        max_words: int | None = None,
        extend_vocabulary: int = 0,
        flip: float = 0.0,
        size: int = 224,
        resize: Literal["squash", "crop"] = "squash",
        check_images: Literal["header", "decode"] = "header",
        cache_features: bool = True,
        cache_pixels: bool = False,
        pool_batches: int = 20,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_at_least(
            vocab_size=(vocab_size, 5),
            min_frequency=(min_frequency, 1),
            batch_size=(batch_size, 1),
            captions_per_image=(captions_per_image, 1),
            max_words=(max_words, 1),
            extend_vocabulary=(extend_vocabulary, 0),
            pool_batches=(pool_batches, 1),
            num_workers=(num_workers, 0),
            seed=(seed, 0),
        )
        if not 0 <= flip <= 1:
            raise ValueError(f"flip must be a probability, from 0 to 1; got {flip}")
        if check_images not in ("header", "decode"):
            raise ValueError(f"check_images must be one of 'header', 'decode'; got {check_images!r}")
        self.root = root
        self.cache = cache_folder(cache_dir)
        self.vocab_size, self.min_frequency, self.keep_punctuation = vocab_size, min_frequency, keep_punctuation
        self.batch_size, self.captions_per_image, self.max_words = batch_size, captions_per_image, max_words
        self.extend_vocabulary = extend_vocabulary
        self.flip, self.check_images = flip, check_images
        self.cache_features, self.cache_pixels = cache_features, cache_pixels
        self.pool_batches, self.num_workers, self.seed = pool_batches, num_workers, seed
        self._own_transform = ImageTransform(size, resize)
        self.tokenizer: Tokenizer | None = None

    # To be implemented by a data set

    def signature(self, split: Split) -> list[object]:
        """What `records(split)` and their images depend on: JSON-able values and file paths."""
        raise NotImplementedError

    def records(self, split: Split) -> Iterator[Record]:
        """Images with their captions, in a fixed order."""
        raise NotImplementedError

    def images(self, split: Split) -> ImageFiles:
        """The image files of a split."""
        raise NotImplementedError

    def source(self, split: Split) -> str:
        """Name of a split in messages, preferably its file."""
        return f"the {split} captions"

    def locate(self, name: str) -> Path:
        """A file that a model names, such as pretrained weights of its encoder.

        Args:
            name: a path, taken as given or relative to the root (`root`, else `ZOO_DATA`) or to its folder captioning.

        Raises:
            FileNotFoundError: no such file.
        """
        path, root = at_home(name), data_root(self.root)
        paths = [path, *([] if root is None else [root / path, root / "captioning" / path])]
        for candidate in paths:
            if candidate.is_file():
                return candidate
        raise FileNotFoundError(f"there is no file {' nor '.join(map(str, paths))}; correct the name, or pass root=")

    def training_captions(self) -> list[list[list[int]]]:
        """Token ids of all captions of each training image, with EOS, after `setup`; for rewards."""
        return CaptionArrays(self._folder("train", self._ready(self.tokenizer, "tokenizer")), None, 1).captions()

    def without_captions(self) -> list[str]:
        """Images that no caption names."""
        return []

    # Called by Lightning

    def prepare_data(self) -> None:
        """Checks the images, learns the tokenizer and tokenises the captions, unless they are in the cache."""
        if unused := self.without_captions():
            log.warning(f"{len(unused):,} images have no caption and are left out: {_listed(unused)}")
        for split in self._splits():
            self.warn(split)
        tokenizer = self._tokenizer()
        for split in self._splits():
            encoding = CaptionEncoding(tokenizer, self.keep_punctuation, self._max_words(split))
            folder = self._folder(split, tokenizer)
            CaptionArrays.build(folder, self.usable(split), encoding, self.source(split), split == "train")
        if self._of_model("tokenizer") is not None and "train" in self._splits():
            train = CaptionArrays(self._folder("train", tokenizer), None, 1)
            self._unknown = train.unknown(), train.tokens

    def setup(self, stage: str | None = None) -> None:
        """Opens the files of `prepare_data` that a stage needs, by default all; afterwards `tokenizer` is set."""
        self.tokenizer = self._tokenizer()
        self._adapt_model(stage)
        for split in self._opened(stage):
            folder = self._folder(split, self.tokenizer)
            if not folder.exists():
                raise FileNotFoundError(
                    f"there are no tokenised captions in {folder}; call prepare_data() before setup()"
                )

    def train_dataloader(self) -> TrainLoader:
        """Endless, resumable, shuffled batches of images with captions of similar length."""
        arrays = self._arrays("train")
        if arrays.without_words:
            self._tell(f"{len(arrays):,} training images; left out {arrays.without_words:,} without words")
        ranks = self._rank_and_world_size()
        stream = CaptionStream(arrays, self.batch_size, None, self.pool_batches, self.seed, *ranks)
        return self._train_loader(stream)

    def val_dataloader(self) -> SortedLoader:
        """Validation batches with references, sorted by length."""
        return self._eval_loader("val")

    def test_dataloader(self) -> list[SortedLoader]:
        """One loader per name in `test_names`."""
        return [self._eval_loader("test")]

    # Helpers

    def _eval_loader(self, split: Split) -> SortedLoader:
        return SortedLoader(self._arrays(split), self.batch_size, None, *self._rank_and_world_size())

    def _max_words(self, split: Split) -> int | None:
        return self.max_words if split == "train" else None

    def usable(self, split: Split) -> Iterator[Record]:
        """The records of a split whose image can be read, without empty captions."""
        unusable = self._unusable(split)
        left_out = {*unusable["uncaptioned"], *unusable["missing"], *unusable["damaged"]}
        for record in self.records(split):
            if record.image not in left_out:
                yield Record(record.image, [caption for caption in record.captions if caption.strip()])

    def _unusable(self, split: Split) -> dict[str, Any]:
        """Names of the images without caption and of the missing ones; name and fault of the damaged ones."""
        key = fingerprint(_FORMAT, self.signature(split), split, self.check_images)
        return json.loads(cached_text(self.cache / "images" / f"{key}.json", lambda: json.dumps(self._checked(split))))

    def _checked(self, split: Split) -> dict[str, Any]:
        """Computes `_unusable` by looking at each image."""
        files = self.images(split)
        uncaptioned, missing, damaged, usable = [], [], {}, 0
        for image, captions in tqdm(self.records(split), desc=f"Checking {split} images", unit="img", disable=None):
            if not any(caption.strip() for caption in captions):
                uncaptioned.append(image)
            elif image not in files:
                missing.append(image)
            elif fault := self._fault(files, image):
                damaged[image] = fault
            else:
                usable += 1
        if not usable:
            faults = [*damaged.values(), *(f"there is no file {name}" for name in missing)]
            first = "".join(f"; for example {fault}" for fault in faults[:1])
            raise ValueError(
                f"{self.source(split)}: no image of the {split} split can be used: {len(missing):,} are missing, "
                f"{len(damaged):,} damaged, {len(uncaptioned):,} without caption{first}"
            )
        return {"uncaptioned": uncaptioned, "missing": missing, "damaged": damaged}

    def _fault(self, files: ImageFiles, image: str) -> str | None:
        try:
            if self.check_images == "decode":
                decode(files, image)
            else:
                with files.open(image) as file:
                    check_header(file, files.where(image))
        except ImageError as error:
            return str(error)
        return None

    def warn(self, split: Split) -> None:
        """Says in the log which images of a split are left out."""
        unusable = self._unusable(split)
        if names := unusable["uncaptioned"]:
            log.warning(f"{len(names):,} {split} images have no caption and are left out: {_listed(names)}")
        if names := unusable["missing"]:
            log.warning(f"{len(names):,} {split} images have captions but do not exist: {_listed(names)}")
        if faults := unusable["damaged"]:
            listed = _listed(list(faults.values()), "; ")
            log.warning(f"{len(faults):,} {split} images cannot be used and are left out: {listed}")

    def _tokenizer(self) -> Tokenizer:
        """The model's tokenizer with the words of `extend_vocabulary`; without one, learnt from the captions."""
        tokenizer = self._of_model("tokenizer")
        if tokenizer is not None and not self._adds_words():
            return tokenizer
        if tokenizer is not None:
            signature = [self.signature("train"), self.check_images, self.keep_punctuation]
            return self._extended(tokenizer, self._captions, signature, self.min_frequency)
        options = (self.vocab_size, True, self.min_frequency)
        key = fingerprint(_FORMAT, self.signature("train"), self.check_images, options, self.keep_punctuation)
        path = self.cache / "tokenizers" / f"captions-{key}.json"
        return Tokenizer.from_json(
            cached_text(path, lambda: Tokenizer.train(self._captions(), "word_punct", *options).to_json())
        )

    def _captions(self) -> Iterator[str]:
        """All training captions, without punctuation marks unless they are words."""
        captions = (caption for record in self.usable("train") for caption in record.captions)
        return captions if self.keep_punctuation else map(without_punctuation, captions)

    def _folder(self, split: Split, tokenizer: Tokenizer) -> Path:
        options = (self.check_images, self.keep_punctuation, self._max_words(split))
        return (
            self.cache / "captions" / fingerprint(_FORMAT, self.signature(split), split, tokenizer.to_json(), options)
        )

    def _arrays(self, split: Split) -> CaptionArrays:
        folder = self._folder(split, self._ready(self.tokenizer, "tokenizer"))
        flip = self.flip if split == "train" else 0.0
        images = self._batch_images(split, read_names(folder), flip > 0)
        return CaptionArrays(folder, images, self.captions_per_image, flip, self.seed)

    # Pixels and features

    def _batch_images(self, split: Split, names: Sequence[str], flipped: bool) -> BatchImages:
        feature_key = self._of_model("feature_key") if self.cache_features else None
        key = feature_key() if feature_key else None
        transform = self._of_model("transform") or self._own_transform
        images: BatchImages = DecodedImages(self.images(split), names, transform)
        of_split = fingerprint(_FORMAT, self.signature(split), split, names, transform.to_json())
        if self.cache_pixels:
            images = self._stored_pixels(split, images, len(names), of_split)
        if key is None:
            return images
        folders = [self.cache / "features" / fingerprint(key, of_split, mirrored) for mirrored in (False, True)]
        folders = folders[: 1 + flipped]
        if self._builds() and not all(is_complete(folder, len(names)) for folder in folders):
            self._build_features(split, images, len(names), folders)
        self._wait()
        return StoredImages(*folders)

    def _stored_pixels(self, split: Split, images: BatchImages, count: int, of_split: str) -> StoredImages:
        folder = self.cache / "pixels" / of_split
        if self._builds() and not is_complete(folder, count):

            def rows(index: np.ndarray) -> np.ndarray:
                return images.get(index, np.zeros(len(index), np.bool_)).numpy()

            build_rows(folder, count, rows, _CHUNK, f"Pixels, {split}")
        self._wait()
        return StoredImages(folder)

    def _build_features(self, split: Split, images: BatchImages, count: int, folders: Sequence[Path]) -> None:
        """Runs the encoder. In `setup` the model would not yet have all its weights, nor be on its device."""
        model = self._model
        was_training = {module: module.training for module in model.modules()}
        model.eval()
        try:
            for folder, mirrored in zip(folders, (False, True)):
                rows = feature_rows(images, self._of_model("extract_features"), model.device, mirrored)
                build_rows(folder, count, rows, _CHUNK, f"Features, {split}{', mirrored' * mirrored}")
        finally:
            for module, training in was_training.items():
                module.training = training

    def _builds(self) -> bool:
        """Whether this process prepares data: one per machine, as machines may not share a disk."""
        return self.trainer is None or self.trainer.local_rank == 0

    def _wait(self) -> None:
        if self.trainer is not None:
            self.trainer.strategy.barrier()


def _listed(names: Sequence[str], separator: str = ", ") -> str:
    return separator.join(names[:_LISTED]) + f"{separator}..." * (len(names) > _LISTED)
