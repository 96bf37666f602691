"""Base classes of the published data sets: found in a local folder, or downloaded."""

from pathlib import Path
from typing import ClassVar

from zoo.data.download import RemoteFile, fetch
from zoo.data.files import data_root
from zoo.data.labeled import LabeledData
from zoo.data.module import Split
from zoo.data.pairs import PairData


class Published:
    """What data modules of published data sets share; a subclass says which files it has and which a split needs.

    A file is looked for, plain, .gz or .xz, in `places` below the root (`root` or else `ZOO_DATA`) and in the cache.

    Attributes:
        folder: name of the folder that holds the data set.
        places: folders below the root; "{}" stands for `folder`.
    """

    folder: str
    places: ClassVar[tuple[str, ...]]

    def files(self, split: Split) -> list[str]:
        """Names of the files that a split is read from."""
        raise NotImplementedError

    def path(self, name: str) -> Path:
        """Where the file `name` lies.

        Raises:
            FileNotFoundError: nowhere.
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
            f"to the folder that holds {self._advice(name)}"
        )

    def _advice(self, name: str) -> str:
        """What the folder must hold, and what else to do, if the file `name` is missing."""
        raise NotImplementedError


class PublishedPairs(Published, PairData):
    """A published data set of sentence pairs; a file that is nowhere is downloaded to the cache.

    Attributes:
        remote: addresses of the files.
    """

    places = ("{}", "nmt/{}", "")
    remote: ClassVar[dict[str, RemoteFile]]

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

    def _splits(self) -> list[Split]:
        splits = super()._splits()
        return splits if self._model_tokenizers() else list(dict.fromkeys(["train", *splits]))

    def _advice(self, name: str) -> str:
        return f"{self.folder}/, or run once on a machine with a network connection"


class PublishedTexts(Published, LabeledData):
    """A published data set of labelled text.

    The files are tables with a header, or JSON lines: the form into which the authors' own, all different, forms are
    brought. Those tables have no address; where `archive` is given they are made from it.

    Attributes:
        upstream: address of the authors' page or archive.
        archive: the authors' archive.
    """

    places = ("{}", "text/{}", "", "text")
    upstream: ClassVar[str]
    archive: ClassVar[RemoteFile | None] = None

    def fetch(self) -> None:
        """Downloads and unpacks the archive, if there is one and a file that is needed is nowhere to be found.

        Raises:
            FileNotFoundError: a file is neither here nor could it be downloaded.
            ValueError: the download has the wrong checksum or content.
        """
        learning = [] if self.is_pretrained() else ["train"]  # the vocabulary comes from the training text
        for split in dict.fromkeys([*learning, *self._splits()]):
            for name in self.files(split):
                if self._find(name) is None:
                    self._fetch_archive(name)

    def unpack(self, archive: Path, folder: Path) -> None:
        """Writes the files of all splits, made from the archive, into `folder`."""
        raise NotImplementedError

    def _fetch_archive(self, name: str) -> None:
        if self.archive is None:
            raise self._missing(name, "")
        path = self._downloads() / Path(self.archive.url).name
        try:
            fetch(self.archive, path)
        except ConnectionError as error:
            raise self._missing(name, f"; {error}") from error
        self.unpack(path, self._downloads())
        path.unlink()

    def signature(self, split: Split) -> list[object]:
        return [type(self).__name__, *map(self.path, self.files(split))]

    def source(self, split: Split) -> str:
        return ", ".join(str(self.path(name)) for name in self.files(split))

    def _advice(self, name: str) -> str:
        connect = "" if self.archive is None else ", or run once on a machine with a network connection"
        return f"it{connect}. It is made from {self.upstream}, see the documentation of {type(self).__name__}"
