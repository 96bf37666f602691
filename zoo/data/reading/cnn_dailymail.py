"""CNN and Daily Mail: news stories and sentences of their summaries."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from zoo.data.common.base import Split
from zoo.data.common.files import data_root, fingerprint, read_lines
from zoo.data.reading.arrays import Question
from zoo.data.reading.base import ClozeData, ClozeOptions
from zoo.text.words import BLANK
from zoo.utils.unpack import Unpack


class CNNDailyMail(ClozeData):
    """Anonymised news stories, and a sentence of their summary with one name left out (Hermann et al. 2015).

    Read from the official folders `cnn/questions/training/*.question` (validation, test), likewise `dailymail`. The
    text is tokenised and in lower case; the blank @placeholder is replaced by the one of this package. Candidates are
    all names of the story.

    Args:
        part: "cnn" or "dailymail".
        **options: see `ClozeData`.
    """

    _splits_of: ClassVar[dict[Split, str]] = {"train": "training", "val": "validation", "test": "test"}

    def __init__(self, part: Literal["cnn", "dailymail"] = "cnn", **options: Unpack[ClozeOptions]) -> None:
        super().__init__(**options)
        if part not in ("cnn", "dailymail"):
            raise ValueError(f"part must be one of 'cnn', 'dailymail'; got {part!r}")
        self.part = part
        self._found: dict[Split, list[Path]] = {}

    def signature(self, split: Split) -> list[object]:
        return [type(self).__name__, fingerprint(*self._files(split))]

    def source(self, split: Split) -> str:
        return str(self._files(split)[0].parent)

    def examples(self, split: Split) -> Iterator[Question]:
        for path in self._files(split):
            blocks = [block for block in "\n".join(read_lines(path)).split("\n\n") if block.strip()]
            if len(blocks) not in (4, 5) or "\n" in blocks[3].strip():
                raise ValueError(
                    f"{path}: expected address, story, query, answer and names with blank lines between them; got "
                    f"{len(blocks)} parts"
                )
            _, story, query, answer, *names = blocks
            candidates = [line.partition(":")[0] for name in names for line in name.split("\n") if line.strip()]
            yield Question(story.split("\n"), query.replace("@placeholder", BLANK), answer.strip(), candidates)

    def _files(self, split: Split) -> list[Path]:
        if split not in self._found:
            root, name = data_root(self.root) or Path(), self._splits_of[split]
            places = [root / self.part / "questions" / name, root / "text" / self.part / "questions" / name]
            folder = next((place for place in places if place.is_dir()), None)
            files = sorted(folder.glob("*.question")) if folder else []
            if not files:
                raise FileNotFoundError(
                    f"CNNDailyMail: there are no files *.question in {places[0]}. Pass root= or set ZOO_DATA to the "
                    "folder with "
                    f"{self.part}/questions; see https://github.com/google-deepmind/rc-data"
                )
            self._found[split] = files
        return self._found[split]
