"""Tokenised questions about documents in memory-mapped files."""

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zoo.batches.reading import ClozeBatch, collate_questions
from zoo.data.common.arrays import Ragged, RaggedWriter
from zoo.data.common.cache import appearing_when_complete, is_intact
from zoo.text import UNK, Tokenizer
from zoo.text.words import BLANK, BLANK_ID

_DTYPE = "uint32"  # of word numbers


class Question(NamedTuple):
    """A document and a query with one word left out.

    Attributes:
        document: its lines.
        query: a sentence with `BLANK` in place of a word.
        answer: that word.
        candidates: candidate answers; an empty list means all words of the document.
    """

    document: list[str]
    query: str
    answer: str
    candidates: list[str]


def overlap(before: Sequence[str], lines: Sequence[str]) -> int:
    """How many of the first `lines` are the last lines of the previous document, in order."""
    longest = min(len(before), len(lines))
    return next(n for n in range(longest, -1, -1) if before[len(before) - n :] == lines[:n])


def fresh_text(questions: Iterable[Question]) -> Iterator[str]:
    """Documents and queries line by line, without the lines that a document shares with the previous one."""
    before: list[str] = []
    for question in questions:
        yield from question.document[overlap(before, question.document) :]
        yield question.query
        before = question.document


class _Lexicon(dict[str, list[int]]):
    """Numbers words, split at spaces, in order of first occurrence in the whole text.

    Attributes:
        ids: vocabulary id of each word.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._numbers: dict[str, int] = {}
        self.ids: list[int] = []
        self.blank = self._number(BLANK, BLANK_ID)

    def __missing__(self, chunk: str) -> list[int]:
        words = zip(self._tokenizer.words(chunk), self._tokenizer.encode(chunk), strict=True)
        self[chunk] = numbers = [self._number(word, i) for word, i in words]
        return numbers

    def text(self, text: str) -> list[int]:
        """Numbers of the words of a text."""
        return [number for chunk in unicodedata.normalize("NFC", text).split() for number in self[chunk]]

    def word(self, word: str) -> int:
        """Number of an answer; a new number, which occurs in no text, if it has several words."""
        numbers = self.text(word)
        return numbers[0] if len(numbers) == 1 else self._number(word, UNK)

    def _number(self, word: str, i: int) -> int:
        number = self._numbers.setdefault(word, len(self.ids))
        if number == len(self.ids):
            self.ids.append(i)
        return number


class _DocumentWriter:
    """Writes documents as a `Ragged` in which document n is row 2 n: its offsets alternate start and end of documents.

    Lines shared with the end of the previous document are stored once, because windows of a book overlap.
    """

    def __init__(self, folder: Path) -> None:
        self._tokens, self._offsets = ((folder / f"documents.{suffix}").open("wb") for suffix in ("tokens", "offsets"))
        self._lines: list[str] = []
        self._starts = [0]  # start of each line of the last document, and its end

    def write(self, lines: list[str], lexicon: _Lexicon) -> int:
        """Appends a document and returns the number of its words."""
        shared = overlap(self._lines, lines)
        self._starts = self._starts[len(self._lines) - shared :]
        for line in lines[shared:]:
            numbers = np.array(lexicon.text(line), _DTYPE)
            self._tokens.write(numbers.tobytes())
            self._starts.append(self._starts[-1] + len(numbers))
        self._lines = lines
        self._offsets.write(np.array([self._starts[0], self._starts[-1]], np.int64).tobytes())
        return self._starts[-1] - self._starts[0]

    def close(self) -> None:
        """Closes the files."""
        self._tokens.close()
        self._offsets.close()


class ClozeArrays:
    """Tokenised questions, read from the folder that `build` wrote.

    Attributes:
        absent: number of questions whose answer is not in the document; left out unless all are kept.
        empty: number of questions left out because their document or query has no words.
        tokens: number of words of all documents, shared lines counted repeatedly.
        texts: number of documents.
    """

    noun = "questions"
    special = 0  # no tokens are added to a text

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        meta = json.loads((folder / "meta.json").read_text())
        self.texts: int = meta["questions"]
        self.absent: int = meta["absent"]
        self.empty: int = meta["empty"]
        self.tokens: int = meta["tokens"]
        self._documents, self._queries, self._choices = (
            Ragged(folder, part, _DTYPE) for part in ("documents", "queries", "choices")
        )
        self._ids = np.load(folder / "ids.npy")

    def __reduce__(self) -> tuple:
        return ClozeArrays, (self.folder,)  # a worker process maps the files itself

    def __len__(self) -> int:
        return self.texts

    def lengths(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Word counts of the documents `index`, (N,) int32, twice: the queries are short."""
        lengths = self._documents.lengths(2 * index)
        return lengths, lengths

    def batch(self, index: np.ndarray) -> ClozeBatch:
        """The questions `index` as one batch."""
        choices = self._choices.rows(index)  # the answer, then the candidates
        answers, candidates = [int(row[0]) for row in choices], [row[1:] for row in choices]
        return collate_questions(
            self._documents.rows(2 * index), self._queries.rows(index), candidates, answers, self._ids
        )

    def release(self) -> None:
        """Releases the pages read so far, which would otherwise count as this process's memory."""
        for part in (self._documents, self._queries, self._choices):
            part.release()

    @staticmethod
    def build(folder: Path, questions: Iterable[Question], tokenizer: Tokenizer, source: str, keep_all: bool) -> None:
        """Tokenises `questions` into `folder`, which appears only when it is complete.

        Args:
            folder: target; nothing is done if it already exists and is intact.
            questions: read once; memory grows with the number of distinct words, not with the text.
            tokenizer: of kind "word" or "word_punct".
            source: name of the data in messages.
            keep_all: keep questions that cannot be trained on (without words, or without the answer in the
                document), which are otherwise left out and counted.

        Raises:
            ValueError: a query has no blank, or there are no questions.
        """
        if is_intact(folder):
            return
        with appearing_when_complete(folder) as temporary:
            _write(temporary, questions, tokenizer, source, keep_all)


def _write(folder: Path, questions: Iterable[Question], tokenizer: Tokenizer, source: str, keep_all: bool) -> None:
    lexicon = _Lexicon(tokenizer)
    counts = {"questions": 0, "absent": 0, "empty": 0, "tokens": 0}
    documents, queries, choices = (
        _DocumentWriter(folder),
        *(RaggedWriter(folder, part, _DTYPE) for part in ("queries", "choices")),
    )
    try:
        for question in questions:
            query, answer = lexicon.text(question.query), lexicon.word(question.answer)
            if query and lexicon.blank not in query:
                raise ValueError(
                    f"{source}: a query must have {BLANK} in place of the missing word; got {question.query!r:.100}"
                )
            if not keep_all and not (query and any(line.strip() for line in question.document)):
                counts["empty"] += 1
                continue
            has_answer = any(answer in lexicon.text(line) for line in question.document)
            counts["absent"] += not has_answer
            if keep_all or has_answer:
                counts["questions"] += 1
                counts["tokens"] += documents.write(question.document, lexicon)
                queries.write([query])
                choices.write([[answer, *map(lexicon.word, question.candidates)]])
    finally:
        for writer in (documents, queries, choices):
            writer.close()
    if not counts["questions"]:
        left_out = f" ({counts['absent']:,} have an answer that is not in the document)" if counts["absent"] else ""
        raise ValueError(f"{source}: it has no question{'' if keep_all else ' to learn from'}{left_out}")
    np.save(folder / "ids.npy", np.array(lexicon.ids, np.int64))
    (folder / "meta.json").write_text(json.dumps(counts))
