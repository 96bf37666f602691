"""Running text as parallel streams; each batch continues every stream by a segment (continuous batching)."""

import json
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from zoo.batches.language_modelling import LMBatch
from zoo.data.common.arrays import chunks, token_type
from zoo.data.common.cache import appearing_when_complete, is_intact
from zoo.data.language_modelling.soft_targets import SoftTargets
from zoo.text import EOS, PAD, UNK, Tokenizer

MARKED_UNKNOWN = "<unk>"  # an unknown word in tokenised corpora
_CHUNK = 8192  # lines tokenised together
_COUNTED = 1 << 22  # words counted together
_MARKED = 100_000  # words that a `mark` looks at


class TextArray:
    """The words of a text in a memory-mapped file, with EOS after each line, read from the folder that `build` wrote.

    Attributes:
        ids: (N,) the words.
        unknown: number of unknown words among them that the text does not mark as such by "<unk>".
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        meta = json.loads((folder / "meta.json").read_text())
        self.ids = np.memmap(folder / "words", meta["dtype"], "r")
        self.unknown: int = meta["unknown"]

    def __reduce__(self) -> tuple:
        return TextArray, (self.folder,)  # a worker process maps the file itself

    def __len__(self) -> int:
        return len(self.ids)

    def counts(self, vocab_size: int) -> np.ndarray:
        """Frequency of each word of a vocabulary, (vocab_size,) int64."""
        found = np.zeros(vocab_size, np.int64)
        for first in range(0, len(self), _COUNTED):
            found += np.bincount(self.ids[first : first + _COUNTED], minlength=vocab_size)
        return found

    @staticmethod
    def build(folder: Path, lines: Iterable[str], tokenizer: Tokenizer, source: str) -> None:
        """Tokenises lines into `folder`, which appears only when complete; does nothing if it exists and is intact.

        Raises:
            ValueError: no line has a word; the message starts with `source`.
        """
        if is_intact(folder):
            return
        with appearing_when_complete(folder) as temporary:
            dtype, words, unknown = token_type(tokenizer), 0, 0
            has_marks = tokenizer.encode(MARKED_UNKNOWN) == [UNK]
            with (temporary / "words").open("wb") as file:
                for chunk in chunks(lines, _CHUNK):
                    rows = tokenizer.encode_batch(chunk)
                    ids = np.fromiter(chain.from_iterable([*row, EOS] for row in rows), dtype)
                    words, unknown = words + len(ids) - len(rows), unknown + int((ids == UNK).sum())
                    if has_marks:
                        unknown -= sum(line.split().count(MARKED_UNKNOWN) for line in chunk)
                    file.write(ids.tobytes())
            if not words:
                raise ValueError(f"{source}: it has no words")
            (temporary / "meta.json").write_text(json.dumps({"dtype": dtype, "unknown": unknown}))


class _Epoch(NamedTuple):
    offset: int  # where in the text the first stream begins
    batches: range


class TextStream:
    """The batches of one process, in the form that `TrainLoader` expects.

    A text of N words is cut into equal streams (some are a word longer). Every word is a label once per epoch. The
    first word of the text follows the text's last word, which is a line end.

    Args:
        text: the words.
        streams: number of parallel streams over all processes.
        segment: words of each stream in a batch.
        seed: each epoch begins at another place in the text and wraps around at its end; None: all begin at the
            beginning.
        rank: rank of this process.
        world_size: number of processes; each has its own streams.
        soft: what is expected in each place of the text.
    """

    pools = 1

    def __init__(
        self,
        text: TextArray,
        streams: int,
        segment: int,
        seed: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        soft: SoftTargets | None = None,
    ) -> None:
        self.text, self._segment, self._seed, self._soft = text, segment, seed, soft
        bounds = len(text) * np.arange(streams + 1) // streams
        self._steps = int(np.diff(bounds).max())  # steps of the longest stream of all processes
        mine = np.array_split(np.arange(streams), world_size)[rank]
        if len(mine):
            self._starts, self._lengths = bounds[mine], bounds[mine + 1] - bounds[mine]
        else:
            # as many batches as the other processes, without words
            self._starts, self._lengths = np.zeros((2, 1), np.int64)

    def mark(self) -> int:
        """A number that changes with the text: of its length, and of words all over it."""
        places = np.linspace(0, len(self.text) - 1, min(len(self.text), _MARKED)).astype(np.int64)
        return zlib.crc32(self.text.ids[places].astype(np.int64).tobytes(), len(self.text))

    def batches_per_epoch(self) -> int:
        """Number of batches in an epoch."""
        return -(-self._steps // self._segment)

    def pool(self, epoch: int, pool: int) -> _Epoch:
        """An epoch."""
        offset = 0 if self._seed is None else int(np.random.default_rng((self._seed, epoch)).integers(len(self.text)))
        return _Epoch(offset, range(self.batches_per_epoch()))

    def load(self, pool: _Epoch, number: int) -> LMBatch:
        """One batch of an epoch."""
        columns = np.arange(number * self._segment, min((number + 1) * self._segment, self._steps))
        places = (pool.offset + self._starts[:, None] + columns) % len(self.text)  # (B, T)
        real = columns < self._lengths[:, None]
        inputs, labels = (np.where(real, self.text.ids[at], PAD).astype(np.int64) for at in (places - 1, places))
        soft = self._soft.at(places) if self._soft else None
        return LMBatch(torch.from_numpy(inputs), torch.from_numpy(labels), number == 0, soft)


class TextLoader:
    """Validation or test batches: the streams of a `TextStream` once, from the beginning of the text."""

    def __init__(self, stream: TextStream) -> None:
        self.stream = stream

    def __len__(self) -> int:
        return self.stream.batches_per_epoch()

    def __iter__(self) -> Iterator[LMBatch]:
        epoch = self.stream.pool(0, 0)
        for number in epoch.batches:
            yield self.stream.load(epoch, number)
