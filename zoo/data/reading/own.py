"""Questions of your own."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

from zoo.data.common.base import Split
from zoo.data.common.files import check_encoding, check_fraction, draw, held_out_below, named_file
from zoo.data.common.tables import read_table
from zoo.data.reading.arrays import Question
from zoo.data.reading.base import ClozeData, ClozeOptionsWithoutTokenizer
from zoo.text.words import BLANK
from zoo.utils.unpack import Unpack


class Cloze(ClozeData):
    """Your own questions: tab-separated or .csv tables with a header, or JSON lines (.jsonl); also .gz or .xz.

    Args:
        train: training questions.
        val: validation questions; if left out, those of `val_fraction` of the training documents are held out.
        test: test questions.
        document_column: column or field of the document.
        query_column: that of the query.
        answer_column: that of the answer.
        candidates_column: that of the candidates, joined by "|" in a table, as a list in JSON; None: any word of
            the document.
        blank: mark of the missing word in the queries.
        val_fraction: share of the documents held out, at least one; repeated documents are never on both sides.
        split_seed: selects the documents that are held out.
        encoding: of the files.
        tokenizer: as in `ClozeData`; plain text is expected.
        **options: see `ClozeData`; relative paths start from `root` (else `ZOO_DATA`) if they exist there,
            otherwise from the working directory.
    """

    own_files: ClassVar[Mapping[str, str]] = {
        "train": f"a table with the columns document, query ({BLANK} in place of the missing word) and answer"
    }

    def __init__(
        self,
        train: str,
        val: str | None = None,
        test: str | None = None,
        document_column: str = "document",
        query_column: str = "query",
        answer_column: str = "answer",
        candidates_column: str | None = "candidates",
        blank: str = BLANK,
        val_fraction: float = 0.1,
        split_seed: int = 0,
        encoding: str = "utf-8",
        tokenizer: Literal["word", "word_punct"] = "word_punct",
        **options: Unpack[ClozeOptionsWithoutTokenizer],
    ) -> None:
        super().__init__(tokenizer=tokenizer, **options)
        check_fraction("val_fraction", val_fraction)
        check_encoding(encoding)
        if not blank.strip():
            raise ValueError(f"blank must be the mark of the missing word, e.g. '____'; got {blank!r}")
        self.paths: dict[Split, str | None] = {"train": train, "val": val, "test": test}
        self.columns = [
            document_column,
            query_column,
            answer_column,
            *([candidates_column] if candidates_column else []),
        ]
        self.blank, self.encoding = blank, encoding
        self.val_fraction, self.split_seed = val_fraction, split_seed

    def _check_files(self, splits: Sequence[Split]) -> None:
        for split in splits:
            self._path(split)

    def signature(self, split: Split) -> list[object]:
        held_out = None if self.paths["val"] else [split, self.val_fraction, self.split_seed]
        return ["Cloze", self._path(split), self.columns, self.blank, self.encoding, held_out]

    def source(self, split: Split) -> str:
        return str(self._path(split))

    def examples(self, split: Split) -> Iterator[Question]:
        wanted = None if self.paths["val"] or split == "test" else split == "val"
        limit = 0.0 if wanted is None else self._limit
        for document, query, answer, *rest in read_table(
            self._path(split), self.columns, self.encoding, self.columns[3:]
        ):
            if query.strip() and self.blank not in query:
                raise ValueError(
                    f"{self._path(split)}: a query must have {self.blank} in place of the missing word; got "
                    f"{query!r:.100}; another mark is named by blank= (--data.blank)"
                )
            if wanted is None or (draw(document, self.split_seed) < limit) == wanted:
                yield Question(
                    document.split("\n"), query.replace(self.blank, f" {BLANK} "), answer, list(chain(*rest))
                )

    @cached_property
    def _limit(self) -> float:
        """What is drawn below it is held out: `val_fraction`, or what holds out one document and keeps the others.

        Raises:
            ValueError: there is only one document.
        """
        documents = (name for (name,) in read_table(self._path("train"), self.columns[:1], self.encoding))
        alike = f"{self._path('train')}: all questions are about one document"
        return held_out_below(documents, self.val_fraction, self.split_seed, alike)

    def _all_splits(self) -> list[Split]:
        return ["train", "val", *(["test"] if self.paths["test"] else [])]

    def _path(self, split: Split) -> Path:
        name = self.paths[split] or (self.paths["train"] if split == "val" else None)
        if name is None:
            raise ValueError(f"there is no {split} set: give {split}= (--data.{split}) a file")
        return named_file(self.root, split, name)
