"""What the published data sets of labelled text share: where their files are, and how they are made from an archive."""

from pathlib import Path
from typing import Any, ClassVar

from zoo.data.classification.base import LabeledData
from zoo.data.common.base import Split
from zoo.data.common.download import RemoteFile, fetch
from zoo.data.common.published import Published


class PublishedTexts(Published, LabeledData):
    """A published data set of labelled text.

    The files are tables with a header, or JSON lines, a common form for the authors' different ones. They cannot be
    downloaded themselves; if `archive` is given, they are made from it.

    Attributes:
        upstream: URL of the authors' page or archive.
        archive: the authors' archive.
    """

    places = ("{}", "text/{}", "", "text")
    upstream: ClassVar[str]
    archive: ClassVar[RemoteFile | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__name__.startswith("_"):
            cls.published[cls.__name__] = cls

    def fetch(self) -> None:
        """Downloads and unpacks the archive, if there is one and a needed file is missing.

        Raises:
            FileNotFoundError: a file is missing and could not be downloaded.
            ValueError: the download has the wrong checksum or content.
        """
        learning: list[Split] = [] if self.is_pretrained() else ["train"]  # the vocabulary is learnt from it
        for split in dict.fromkeys(learning + self._splits()):
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
