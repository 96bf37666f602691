"""The images of a batch: decoded pixels, or rows of a memory-mapped file (pixels or features) computed once."""

import json
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from zoo.data.captioning.image_files import ImageFiles, decode
from zoo.data.common.cache import is_intact, replace_file, write_checksums
from zoo.data.common.download import locked
from zoo.utils.atomic import replace
from zoo.vision.images import ImageError, ImageTransform

_META, _VALUES, _PARTIAL, _PROGRESS, _LOCK = "meta.json", "values", "partial", "progress", "lock"


class BatchImages(Protocol):
    """Source of a batch's images; an `index` is an array of image indices, (N,)."""

    def get(self, index: np.ndarray, flips: np.ndarray) -> Tensor:
        """The images `index`, those with `flips`, (N,) bool, mirrored."""
        ...

    def release(self) -> None:
        """Releases the pages read so far."""


class DecodedImages:
    """Images that are decoded when needed.

    Args:
        files: image files.
        names: their names, by image index.
        transform: transform to pixels.
    """

    def __init__(self, files: ImageFiles, names: Sequence[str], transform: ImageTransform) -> None:
        self._files, self._names, self._transform = files, names, transform

    def get(self, index: np.ndarray, flips: np.ndarray) -> Tensor:
        """The images `index`, (N, 3, S, S) uint8.

        Raises:
            ImageError: one of them is damaged.
        """
        try:
            pixels = [self._transform.pixels(decode(self._files, self._names[int(i)])) for i in index.tolist()]
        except ImageError as error:
            raise ImageError(
                f"{error}, or pass check_images='decode' (--data.check_images decode) to leave such images out"
            ) from error
        return _mirrored(torch.stack(pixels), flips)

    def release(self) -> None:
        """Does nothing: no memory is held."""


class StoredImages:
    """Images whose pixels or features are in memory-mapped files.

    Args:
        folder: written by `build_rows`.
        flipped: the same for the mirrored images, if a row cannot be mirrored itself.
    """

    def __init__(self, folder: Path, flipped: Path | None = None) -> None:
        self._folders = folder, flipped
        self._rows = StoredRows(folder)
        self._flipped = None if flipped is None else StoredRows(flipped)

    def __reduce__(self) -> tuple:
        return StoredImages, self._folders  # a worker process maps the files itself

    def get(self, index: np.ndarray, flips: np.ndarray) -> Tensor:
        """The images `index`, (N, 3, S, S) uint8 or (N, L, D) fp16."""
        rows = self._rows.rows(index)
        if self._flipped is None:
            return _mirrored(torch.from_numpy(rows), flips)
        rows[flips] = self._flipped.rows(index[flips])
        return torch.from_numpy(rows)

    def release(self) -> None:
        """Releases the pages read so far."""
        self._rows.release()
        if self._flipped is not None:
            self._flipped.release()


def _mirrored(pixels: Tensor, flips: np.ndarray) -> Tensor:
    mirrored = torch.from_numpy(flips)
    if flips.any():
        pixels[mirrored] = pixels[mirrored].flip(-1)
    return pixels


class StoredRows:
    """Arrays of one shape in a memory-mapped file, read from the folder that `build_rows` wrote."""

    def __init__(self, folder: Path) -> None:
        meta = json.loads((folder / _META).read_text())
        with (folder / _VALUES).open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._values = np.frombuffer(self._map, meta["dtype"]).reshape(-1, *meta["shape"])

    def rows(self, index: np.ndarray) -> np.ndarray:
        """Copies of the rows `index`, (N, ...)."""
        return self._values[index]

    def release(self) -> None:
        """Releases the pages read so far, which would otherwise count as this process's memory."""
        if hasattr(self._map, "madvise"):  # not on every system
            self._map.madvise(mmap.MADV_DONTNEED)


def is_complete(folder: Path, count: int) -> bool:
    """Whether `folder` holds `count` intact rows; logs one line if they are damaged."""
    if not (folder / _VALUES).exists() or not is_intact(folder):
        return False
    return (folder / _VALUES).stat().st_size == count * _row_bytes(json.loads((folder / _META).read_text()))


def build_rows(
    folder: Path, count: int, rows: Callable[[np.ndarray], np.ndarray], chunk: int, description: str
) -> None:
    """Computes `count` rows into a file; continues an interrupted run, and excludes other processes.

    Args:
        folder: target; nothing is done if it is complete.
        count: number of rows, at least 1.
        rows: computes rows by index, (chunk,) -> (chunk, ...), always of the same shape and dtype.
        chunk: rows per call.
        description: text of the progress bar.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / _LOCK, f"computing {folder}"):
        if is_complete(folder, count):
            return
        done = _done(folder, count)
        with (
            (folder / _PARTIAL).open("r+b" if done else "wb") as file,
            tqdm(total=count, initial=done, unit="img", desc=description, disable=None) as progress,
        ):
            if done:
                file.truncate(done * _row_bytes(json.loads((folder / _META).read_text())))
                file.seek(0, os.SEEK_END)
            while done < count:
                index = np.arange(done, min(done + chunk, count))
                values = np.ascontiguousarray(rows(index))
                if not done:
                    (folder / _PROGRESS).unlink(missing_ok=True)
                    meta = {"shape": values.shape[1:], "dtype": values.dtype.name}
                    replace_file(folder / _META, json.dumps(meta).encode())
                file.write(values.data)
                file.flush()
                os.fsync(file.fileno())  # the recorded progress must never be ahead of the rows
                done += len(index)
                replace_file(folder / _PROGRESS, str(done).encode())
                progress.update(len(index))
        replace(folder / _PARTIAL, folder / _VALUES)
        (folder / _PROGRESS).unlink()
        write_checksums(folder, [_META, _VALUES])


def _done(folder: Path, count: int) -> int:
    """Number of rows that an interrupted run has written."""
    try:
        meta = json.loads((folder / _META).read_text())
        done = int((folder / _PROGRESS).read_text())
        whole = (folder / _PARTIAL).stat().st_size >= done * _row_bytes(meta)
    except (FileNotFoundError, ValueError):
        return 0
    return done if whole and 0 < done <= count else 0


def _row_bytes(meta: dict) -> int:
    return int(np.prod(meta["shape"], dtype=np.int64)) * np.dtype(meta["dtype"]).itemsize


def feature_rows(
    images: BatchImages, extract: Callable[[Tensor], Tensor], device: torch.device, flipped: bool
) -> Callable[[np.ndarray], np.ndarray]:
    """Arguments of `build_rows` that store the features of images.

    Args:
        images: their pixels.
        extract: (B, 3, S, S) uint8 -> (B, L, D) floating point.
        device: device of the pixels given to `extract`.
        flipped: store those of the mirrored images.
    """

    def rows(index: np.ndarray) -> np.ndarray:
        pixels = images.get(index, np.full(len(index), flipped)).to(device)
        with torch.no_grad():
            features = extract(pixels).to(torch.float16).cpu()  # (B, L, D)
        images.release()
        if not features.isfinite().all():
            raise ValueError("features of the encoder are too large for fp16, or NaN; pass cache_features=False")
        return features.numpy()

    return rows
