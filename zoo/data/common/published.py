"""What the data modules of published data sets share: files in a local folder, or in the download cache."""

from pathlib import Path
from typing import ClassVar

from zoo.data.common.base import Split
from zoo.data.common.files import data_root


class Published:
    """Base class of published data sets; a subclass says which files it has and which of them a split needs.

    A file, plain, .gz or .xz, is searched in `places` below the root (`root`, else `ZOO_DATA`) and in the cache.

    Attributes:
        folder: name of the data set's folder.
        places: folders below the root; "{}" means `folder`.
    """

    folder: str
    root: str | None
    cache: Path
    places: ClassVar[tuple[str, ...]]

    def files(self, split: Split) -> list[str]:
        """Names of the files that a split is read from."""
        raise NotImplementedError

    def path(self, name: str) -> Path:
        """The path of the file `name`.

        Raises:
            FileNotFoundError: it is nowhere.
        """
        found = self._find(name)
        if found is None:
            raise self._missing(name, "")
        return found

    def _downloads(self) -> Path:
        return self.cache / "downloads" / self.folder

    def _folders(self) -> list[Path]:
        root = data_root(self.root)
        local = [] if root is None else [root / place.format(self.folder) for place in self.places]
        return [*local, self._downloads()]

    def _find(self, name: str) -> Path | None:
        paths = (folder / f"{name}{suffix}" for folder in self._folders() for suffix in ("", ".gz", ".xz"))
        return next((path for path in paths if path.is_file()), None)

    def _missing(self, name: str, reason: str) -> FileNotFoundError:
        folders = ", ".join(str(folder) for folder in self._folders())
        return FileNotFoundError(
            f"{type(self).__name__}: no file {name} (or .gz, .xz) in {folders}{reason}. Pass root= or set ZOO_DATA "
            f"to the folder with {self._advice(name)}"
        )

    def _advice(self, name: str) -> str:
        """What the folder must contain, and what else to do, if the file `name` is missing."""
        raise NotImplementedError
