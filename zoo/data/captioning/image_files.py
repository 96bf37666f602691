"""Image files in a folder, or in tar archives that are read without unpacking."""

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import PIL.Image

from zoo.data.common.files import fingerprint, state
from zoo.vision.images import ImageError, open_file, open_image


class ImageFiles(Protocol):
    """Image files by name. Each access opens them again, so that processes do not disturb one another."""

    def __contains__(self, image: str) -> bool: ...

    def open(self, image: str) -> BinaryIO:
        """Opens the file of an image for reading; raises `ImageError` if that fails."""
        ...

    def where(self, image: str) -> str:
        """Name of the image in messages."""
        ...


def decode(files: ImageFiles, image: str) -> PIL.Image.Image:
    """An image, upright and RGB; raises `ImageError` with the file's name if it is damaged."""
    with files.open(image) as file:
        return open_image(file.read(), files.where(image))


class FolderImages:
    """Images in folders; the name is the path below one of them.

    Args:
        folders: searched in order; the first that has the file is used.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def __contains__(self, image: str) -> bool:
        try:
            return self._path(image).is_file()
        except (OSError, ValueError):  # too long for a file name, or not a file name
            return False

    def open(self, image: str) -> BinaryIO:
        return open_file(self._path(image), self.where(image))

    def where(self, image: str) -> str:
        return str(self._path(image))

    def _path(self, image: str) -> Path:
        paths = [folder / image for folder in self._folders]
        return next((path for path in paths if path.is_file()), paths[0])


class TarImages:
    """Images in uncompressed tar archives; names are those in the archive.

    Args:
        paths: the archives; their tables of contents are read immediately.

    Raises:
        ValueError: a file is not a tar archive, is compressed or is damaged.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._places: dict[str, tuple[Path, int, int]] = {}
        for path in paths:
            try:
                with tarfile.open(path, "r:") as archive:
                    members = [member for member in archive if member.isreg()]
            except tarfile.TarError as error:
                raise ValueError(f"{path}: not a complete, uncompressed tar archive ({error})") from error
            for member in members:
                self._places[member.name.removeprefix("./")] = (path, member.offset_data, member.size)

    def __contains__(self, image: str) -> bool:
        return image in self._places

    def open(self, image: str) -> BinaryIO:
        path, offset, size = self._places[image]
        with open_file(path, str(path)) as archive:
            archive.seek(offset)
            content = archive.read(size)
        if len(content) < size:
            raise ImageError(f"{self.where(image)}: the archive ends within this file; copy it again")
        return io.BytesIO(content)

    def where(self, image: str) -> str:
        path = self._places[image][0]
        return f"{path}: {image}"


def state_of(folder: Path) -> str:
    """A short hash of the names and the state of all files below a folder, including linked ones."""
    seen: set[tuple[int, int]] = set()

    def walk(directory: str) -> list[tuple[str, tuple[int, ...]]]:
        found, status = [], os.stat(directory)
        if (status.st_dev, status.st_ino) in seen:  # a link to a folder above
            return found
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir():
                    found += walk(entry.path)
                else:  # a broken link is hashed as a link
                    found.append(
                        (
                            os.path.relpath(entry.path, folder),
                            state(entry.stat(follow_symlinks=os.path.exists(entry.path))),
                        )
                    )
        return found

    return fingerprint(sorted(walk(str(folder))))
