"""Next-word prediction on windows of a user's own plain text, as a task for a many-to-one model."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

from zoo.data.classification.arrays import Example
from zoo.data.classification.base import LabeledData, LabeledOptions
from zoo.data.common.base import Split
from zoo.data.common.files import check_encoding, draw, held_out_below, named_file, read_lines
from zoo.text import Tokenizer
from zoo.utils.numbers_given import check_at_least
from zoo.utils.unpack import Unpack


class NextWord(LabeledData):
    """Each word of a plain text as the label of the previous words on its line.

    The labels are the words that occur at least `min_frequency` times in the training text, most frequent first. Other
    words are context but never labels. A text file has one sentence or paragraph per line; it may be .gz or .xz.

    Args:
        train: training text.
        val: validation text; if left out, `val_fraction` of the training lines is held out.
        test: test text.
        context: maximum number of previous words.
        num_labels: maximum number of labels.
        encoding: of the files.
        **options: see `LabeledData`; relative paths start from `root` (else `ZOO_DATA`) if they exist there,
            otherwise from the working directory.
    """

    of_vocabulary: ClassVar[Sequence[str]] = ("vocab_size",)  # the words themselves are lowercased

    def __init__(
        self,
        train: str,
        val: str | None = None,
        test: str | None = None,
        context: int = 20,
        num_labels: int = 10_000,
        encoding: str = "utf-8",
        **options: Unpack[LabeledOptions],
    ) -> None:
        super().__init__(**options)
        check_at_least(context=(context, 1), num_labels=(num_labels, 2))
        check_encoding(encoding)
        self.paths: dict[Split, str | None] = {"train": train, "val": val, "test": test}
        self.context, self.num_labels, self.encoding = context, num_labels, encoding
        self._names: list[str] | None = None

    def signature(self, split: Split) -> list[object]:
        options = (self.context, self.num_labels, self.min_frequency, self.lowercase, self.encoding)
        held_out = None if self.paths["val"] else [split, self._limit, self.split_seed]
        return [self._path(split), self._path("train"), options, held_out]

    def source(self, split: Split) -> str:
        return str(self._path(split))

    def examples(self, split: Split) -> Iterator[Example]:
        names = set(self._own_label_names())
        for words in self._lines(split):
            for i, word in enumerate(words[1:], 1):
                if word in names:
                    yield Example(" ".join(words[max(0, i - self.context) : i]), None, (word,))

    def _own_label_names(self) -> list[str]:
        if self._names is None:
            counts = Counter(word for words in self._lines("train") for word in words[1:])
            frequent = [word for word, count in counts.most_common(self.num_labels) if count >= self.min_frequency]
            if len(frequent) < 2:
                raise ValueError(
                    f"{self.source('train')}: fewer than two words occur {self.min_frequency} times or more"
                )
            self._names = frequent
        return self._names

    def _lines(self, split: Split) -> Iterator[list[str]]:
        cut = self.paths["val"] is None and split != "test"
        for line in read_lines(self._path(split), self.encoding):
            if cut and (draw(line, self.split_seed) < self._limit) != (split == "val"):
                continue
            yield _splitter().words(line.lower() if self.lowercase else line)

    @cached_property
    def _limit(self) -> float:
        lines = read_lines(self._path("train"), self.encoding)
        alike = f"{self.source('train')} has no two different lines"
        return held_out_below(lines, self.val_fraction, self.split_seed, alike)

    def _all_splits(self) -> list[Split]:
        return ["train", "val", *(["test"] if self.paths["test"] else [])]

    def _path(self, split: Split) -> Path:
        name = self.paths[split] or (self.paths["train"] if split == "val" else None)
        if name is None:
            raise ValueError(f"there is no {split} text: give {split}= (--data.{split}) a file")
        return named_file(self.root, split, name)


@lru_cache(maxsize=1)
def _splitter() -> Tokenizer:
    """Splits text into words; has no vocabulary."""
    return Tokenizer.train([], "word_punct")
