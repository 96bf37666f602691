"""Base class of the published data sets: found in a local folder, or downloaded."""

from pathlib import Path
from typing import ClassVar, Literal

from zoo.data.download import RemoteFile, fetch
from zoo.data.files import data_root
from zoo.data.pairs import PairData

Split = Literal["train", "val", "test"]


class PublishedPairs(PairData):
    """A data set with an address; a subclass says which files it has and which of them a split needs.

    A file is looked for, plain, .gz or .xz, in `root/<folder>`, `root/nmt/<folder>`, `root` itself (`root` or else
    `ZOO_DATA`) and in the cache; one that is nowhere is downloaded to the cache.
    """

    folder: str
    remote: ClassVar[dict[str, RemoteFile]]

    def files(self, split: Split) -> list[str]:
        """Names in `remote` of the files that a split is read from."""
        raise NotImplementedError

    def fetch(self) -> None:
        """Downloads the files that are needed and nowhere to be found.

        Raises:
            FileNotFoundError: a file is neither here nor could it be downloaded.
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

    def path(self, name: str) -> Path:
        """Where the file `name` of `remote` lies.

        Raises:
            FileNotFoundError: nowhere.
        """
        found = self._find(name)
        if found is None:
            raise self._missing(name, "")
        return found

    def _splits(self) -> list[Split]:
        stage = self.trainer.state.fn if self.trainer else None
        needed: dict[str | None, list[Split]] = {"fit": ["train", "val"], "validate": ["val"], "test": ["test"]}
        splits = needed.get(stage, ["train", "val", "test"])
        return splits if self._model_tokenizers() else list(dict.fromkeys(["train", *splits]))

    def _downloads(self) -> Path:
        return self.cache / "downloads" / self.folder

    def _folders(self) -> list[Path]:
        root = data_root(self.root)
        local = [] if root is None else [root / self.folder, root / "nmt" / self.folder, root]
        return [*local, self._downloads()]

    def _find(self, name: str) -> Path | None:
        paths = (folder / f"{name}{suffix}" for folder in self._folders() for suffix in ("", ".gz", ".xz"))
        return next((path for path in paths if path.is_file()), None)

    def _missing(self, name: str, reason: str) -> FileNotFoundError:
        folders = ", ".join(str(folder) for folder in self._folders())
        return FileNotFoundError(
            f"{type(self).__name__}: no file {name} (or .gz, .xz) in {folders}{reason}. Pass root= or set ZOO_DATA "
            f"to the folder that holds {self.folder}/, or run once on a machine with a network connection"
        )
