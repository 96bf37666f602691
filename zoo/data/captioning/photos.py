"""Image captioning: Flickr8k, Flickr30k, COCO, and your own images with captions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from zoo.data.captioning.arrays import Record
from zoo.data.captioning.base import CaptionData, CaptionOptions
from zoo.data.captioning.image_files import FolderImages, ImageFiles, TarImages, state_of
from zoo.data.common.base import Split
from zoo.data.common.files import check_encoding, check_fraction, draw, missing, named_file, own_path, read_lines
from zoo.data.common.published import Published
from zoo.data.common.tables import has_column, read_table
from zoo.utils.unpack import Unpack
from zoo.vision.images import SUFFIXES


class _PublishedCaptions(Published, CaptionData):
    """A published data set of images with captions, found below the root; it cannot be downloaded automatically.

    Attributes:
        image_folders: possible names of the image folder next to the captions; the first that exists is used.
    """

    places = ("{}", "captioning/{}", "captioning", "")
    image_folders: ClassVar[tuple[str, ...]]

    def source(self, split: Split) -> str:
        return ", ".join(str(self.path(name)) for name in self.files(split))

    def signature(self, split: Split) -> list[object]:
        return [type(self).__name__, *map(self.path, self.files(split)), self._folder_state]

    def images(self, split: Split) -> ImageFiles:
        return FolderImages([self._image_folder])

    @cached_property
    def _image_folder(self) -> Path:
        captions = self.path(self.files("train")[0])
        for name in self.image_folders:
            if (captions.parent / name).is_dir():
                return captions.parent / name
        folders = ", ".join(self.image_folders)
        raise FileNotFoundError(
            f"{type(self).__name__}: there is no folder of images next to {captions}; put them into {folders}"
        )

    @cached_property
    def _folder_state(self) -> str:
        return state_of(self._image_folder)


class Flickr8k(_PublishedCaptions):
    """Flickr8k: 6,000 / 1,000 / 1,000 photos with five captions each (Hodosh et al. 2013), its official split.

    Two forms are read:

    - `captions.tsv` (columns image, split, caption_id, caption) with uncompressed archives of the images, `train-*.tar`
      (or `train.tar`), `val.tar`, `test.tar`, next to it, which are not unpacked;
    - the authors' files: `Flickr8k.token.txt`, `Flickr_8k.{train,dev,test}Images.txt`, with the images in a folder
      `Flicker8k_Dataset` (or `Images`) next to them.

    Args:
        **options: see `CaptionData`.
    """

    folder = "flickr8k"
    image_folders = ("Flicker8k_Dataset", "Flickr8k_Dataset", "Images", "images")

    def __init__(self, **options: Unpack[CaptionOptions]) -> None:
        super().__init__(**options)

    def files(self, split: Split) -> list[str]:
        if not self._has_archives:
            return ["Flickr8k.token.txt", f"Flickr_8k.{'dev' if split == 'val' else split}Images.txt"]
        names = ["captions.tsv"]
        if split == "train":
            names += sorted(path.name for path in self.path("captions.tsv").parent.glob("train-*.tar"))
        return names if len(names) > 1 else [*names, f"{split}.tar"]

    def signature(self, split: Split) -> list[object]:
        if self._has_archives:
            return [type(self).__name__, *map(self.path, self.files(split))]
        return super().signature(split)

    def records(self, split: Split) -> Iterator[Record]:
        captions: dict[str, list[str]] = {}
        if self._has_archives:
            for image, part, caption in read_table(self.path("captions.tsv"), ["image", "split", "caption"]):
                if part == split:
                    captions.setdefault(image, []).append(caption)
        else:
            token, names = map(self.path, self.files(split))
            captions = {name.strip(): [] for name in read_lines(names) if name.strip()}
            for number, line in enumerate(read_lines(token), 1):
                name, tab, caption = line.partition("\t")
                if line and not (tab and "#" in name):
                    raise ValueError(
                        f"{token}, line {number}: expected image#number, a tab and a caption; got {line[:50]!r}"
                    )
                captions.get(name.rpartition("#")[0], []).append(caption)
        return map(Record, captions, captions.values())

    def images(self, split: Split) -> ImageFiles:
        if self._has_archives:
            return TarImages([self.path(name) for name in self.files(split)[1:]])
        return super().images(split)

    @property
    def _has_archives(self) -> bool:
        return self._find("Flickr8k.token.txt") is None or self._find("captions.tsv") is not None

    def _advice(self, name: str) -> str:
        return (
            "captions.tsv with train-*.tar, val.tar and test.tar, or the authors' Flickr8k.token.txt, "
            "Flickr_8k.trainImages.txt and so on with the folder Flicker8k_Dataset"
        )


class _Karpathy(_PublishedCaptions):
    """A data set with captions and split of Karpathy and Fei-Fei 2015, `dataset_<name>.json`; "restval" is training."""

    def files(self, split: Split) -> list[str]:
        return [f"dataset_{self.folder}.json"]

    def records(self, split: Split) -> Iterator[Record]:
        return iter(self._records[split])

    @cached_property
    def _records(self) -> dict[Split, list[Record]]:
        """Keeps only the needed part of the file."""
        path = self.path(self.files("train")[0])
        records: dict[Split, list[Record]] = {"train": [], "val": [], "test": []}
        try:
            for image in json.loads("\n".join(read_lines(path)))["images"]:
                name = "/".join(filter(None, (image.get("filepath"), image["filename"])))
                split = "train" if image["split"] == "restval" else image["split"]
                records[split].append(Record(name, [sentence["raw"] for sentence in image["sentences"]]))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: not JSON ({error}); copy the file again") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path}: expected images with filename, split (train, restval, val or test) and sentences with raw; "
                f"{type(error).__name__}: {error}"
            ) from error
        return records

    def _advice(self, name: str) -> str:
        return (
            f"{name} with the images next to it in {' or '.join(self.image_folders)}. It is in caption_datasets.zip of "
            "https://cs.stanford.edu/people/karpathy/deepimagesent/"
        )


class Flickr30k(_Karpathy):
    """Flickr30k: 29,000 / 1,014 / 1,000 photos with five captions each (Young et al. 2014), Karpathy's split.

    Read from `dataset_flickr30k.json` and the folder `flickr30k-images` (or `images`) next to it.

    Args:
        **options: see `CaptionData`.
    """

    folder = "flickr30k"
    image_folders = ("flickr30k-images", "flickr30k_images", "images", "Images")

    def __init__(self, **options: Unpack[CaptionOptions]) -> None:
        super().__init__(**options)


class COCO(_Karpathy):
    """COCO 2014: 113,287 / 5,000 / 5,000 photos with five captions or more each (Lin et al. 2014), Karpathy's split.

    Read from `dataset_coco.json` and the folders `train2014` and `val2014` next to it, or in `images` next to it.

    Args:
        **options: see `CaptionData`.
    """

    folder = "coco"
    image_folders = ("train2014 and val2014", "images")

    def __init__(self, **options: Unpack[CaptionOptions]) -> None:
        super().__init__(**options)

    def images(self, split: Split) -> ImageFiles:
        return FolderImages([folder.parent for folder in self._parts])

    @cached_property
    def _parts(self) -> list[Path]:
        captions = self.path(self.files("train")[0])
        paths = [captions.parent / below / part for below in ("", "images") for part in ("train2014", "val2014")]
        found = [path for path in paths if path.is_dir()]
        if not found:
            raise FileNotFoundError(
                f"{type(self).__name__}: there is no folder train2014 or val2014 next to {captions}, nor in images "
                "next to it"
            )
        return found

    @cached_property
    def _folder_state(self) -> str:
        return " ".join(map(state_of, self._parts))


class ImageCaptions(CaptionData):
    """Your own images: a folder, and a table with the columns image, caption and, optionally, split.

    The table is a .csv as spreadsheets save it, or else tab-separated without quoting. Its first line names the
    columns. An image is named by its path relative to the
    folder and has one line per caption. The split is train, val or test. Without that column a fixed part of the images
    is held out.

    Args:
        folder: the images, also in folders below it.
        captions: the table, which can be .gz or .xz.
        val_fraction: share of the images held out for validation, if there is no column split.
        test_fraction: share held out for the test; 0 for none.
        split_seed: selects the images that are held out.
        encoding: of the table.
        **options: see `CaptionData`; relative paths start from `root` (else `ZOO_DATA`) if they exist there,
            otherwise from the working directory.
    """

    own_files: ClassVar[Mapping[str, str]] = {
        "folder": "the folder of the images",
        "captions": "a .csv or a tab-separated table with the columns image and caption, a line for each caption",
    }

    def __init__(
        self,
        folder: str,
        captions: str,
        val_fraction: float = 0.1,
        test_fraction: float = 0.1,
        split_seed: int = 0,
        encoding: str = "utf-8",
        **options: Unpack[CaptionOptions],
    ) -> None:
        super().__init__(**options)
        check_fraction("val_fraction", val_fraction)
        if test_fraction:
            check_fraction("test_fraction", test_fraction)
        check_encoding(encoding)
        self.folder, self.captions, self.encoding = folder, captions, encoding
        self.val_fraction, self.test_fraction, self.split_seed = val_fraction, test_fraction, split_seed

    def _check_files(self, splits: Sequence[Split]) -> None:
        _ = self._table, self._images  # they say what is missing

    def signature(self, split: Split) -> list[object]:
        options = [self.val_fraction, self.test_fraction, self.split_seed, self.encoding]
        return [self._table, self._folder_state, *options]

    def source(self, split: Split) -> str:
        return str(self._table)

    def records(self, split: Split) -> Iterator[Record]:
        if not self._records[split]:
            if split == "train" and not has_column(self._table, "split", self.encoding):
                count = sum(map(len, self._records.values()))
                raise ValueError(
                    f"{self._table}: all images ({count}) are held out for validation and test; add images, or set "
                    "test_fraction to 0"
                )
            raise ValueError(
                f"{self._table}: there is no {split} image; give some lines the split {split}, or remove the column "
                f"(and {split}_fraction above 0) to hold out some images"
            )
        return iter(self._records[split])

    def images(self, split: Split) -> ImageFiles:
        return FolderImages([self._images])

    def without_captions(self) -> list[str]:
        named = {record.image for records in self._records.values() for record in records}
        return [name for name in self._names if name not in named]

    def _all_splits(self) -> list[Split]:
        return [split for split, records in self._records.items() if records or split != "test"]

    @property
    def _table(self) -> Path:
        return named_file(self.root, "captions", self.captions)

    @cached_property
    def _images(self) -> Path:
        path = own_path(self.root, self.folder)
        if not path.is_dir():
            raise FileNotFoundError(f"folder: {missing(self.root, self.folder, 'folder')}")
        return path

    @cached_property
    def _names(self) -> list[str]:
        """Relative paths of all files with an image's extension."""
        paths = sorted(path for path in self._images.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
        if not paths:
            raise ValueError(f"{self._images} has no image (no file {', '.join(sorted(SUFFIXES))})")
        return [path.relative_to(self._images).as_posix() for path in paths]

    @cached_property
    def _folder_state(self) -> str:
        return state_of(self._images)

    @cached_property
    def _records(self) -> dict[Split, list[Record]]:
        has_splits = has_column(self._table, "split", self.encoding)
        columns = ["image", "caption", *(["split"] if has_splits else [])]
        captions: dict[str, list[str]] = {}
        splits: dict[str, Split] = {}
        for image, caption, *rest in read_table(self._table, columns, self.encoding):
            captions.setdefault(image, []).append(caption)
            for split in rest:
                if split not in ("train", "val", "test"):
                    raise ValueError(
                        f"{self._table}: split must be one of 'train', 'val', 'test'; got {split!r} of {image}"
                    )
                if splits.setdefault(image, split) != split:
                    raise ValueError(f"{self._table}: {image} is in two splits, {splits[image]} and {split}")
        if not has_splits:
            splits = self._held_out(list(captions))
        records: dict[Split, list[Record]] = {"train": [], "val": [], "test": []}
        for image, texts in captions.items():
            records[splits[image]].append(Record(image, texts))
        return records

    def _held_out(self, images: list[str]) -> dict[str, Split]:
        """Holds out at least one of few images: a share of their number, not a probability."""
        order = sorted(images, key=lambda image: draw(image, self.split_seed))
        counts = [
            max(1, round(share * len(images))) if share else 0 for share in (self.val_fraction, self.test_fraction)
        ]
        val, test = counts[0], sum(counts)
        return {image: "val" if i < val else "test" if i < test else "train" for i, image in enumerate(order)}
