"""Tokenised text in memory-mapped files: a corpus of any size needs no resident memory."""

import json
import mmap
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from zoo.batches.translation import PairBatch, pad_batch
from zoo.data.common.cache import appearing_when_complete, is_intact
from zoo.text import UNK, Tokenizer

_CHUNK = 8192  # pairs tokenised together


class Ragged:
    """Rows of integers of different lengths: one flat file of the integers and one of `rows + 1` offsets."""

    def __init__(self, folder: Path, side: str, dtype: str) -> None:
        self._maps = [_map(folder / f"{side}.{suffix}") for suffix in ("tokens", "offsets")]
        self._tokens = np.frombuffer(self._maps[0], dtype)
        self._offsets = np.frombuffer(self._maps[1], np.int64)

    def lengths(self, index: np.ndarray) -> np.ndarray:
        """Lengths of the rows `index`, (N,) int32."""
        return (self._offsets[index + 1] - self._offsets[index]).astype(np.int32)

    def rows(self, index: np.ndarray) -> list[np.ndarray]:
        """The rows `index`, each a view into the file."""
        tokens = self._tokens
        bounds = zip(self._offsets[index].tolist(), self._offsets[index + 1].tolist(), strict=True)
        return [tokens[start:end] for start, end in bounds]

    def count(self, number: int) -> int:
        """How often each integer occurs."""
        parts = (self._tokens[i : i + _CHUNK**2] for i in range(0, len(self._tokens), _CHUNK**2))
        return sum(int(np.count_nonzero(part == number)) for part in parts)

    def release(self) -> None:
        """Releases the pages read so far, which would otherwise count as this process's memory."""
        for mapped in self._maps:
            if hasattr(mapped, "madvise"):  # not on every system
                mapped.madvise(mmap.MADV_DONTNEED)


def _map(path: Path) -> Any:
    with path.open("rb") as file:
        if not path.stat().st_size:
            return b""  # an empty file cannot be mapped
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class RaggedWriter:
    """Writes the two files of a `Ragged`."""

    def __init__(self, folder: Path, side: str, dtype: str) -> None:
        self._dtype = dtype
        self.end = 0  # numbers written
        self._tokens, self._offsets = ((folder / f"{side}.{suffix}").open("wb") for suffix in ("tokens", "offsets"))
        self._offsets.write(np.zeros(1, np.int64).tobytes())

    def write(self, rows: Sequence[Sequence[float]]) -> None:
        """Appends rows."""
        offsets = self.end + np.cumsum(list(map(len, rows)), dtype=np.int64)
        self.end = int(offsets[-1]) if rows else self.end
        self._offsets.write(offsets.tobytes())
        self._tokens.write(np.fromiter(chain.from_iterable(rows), self._dtype).tobytes())

    def close(self) -> None:
        """Closes the files."""
        self._tokens.close()
        self._offsets.close()


def as_lists(rows: list[np.ndarray]) -> Sequence[Sequence[int]]:
    """The same rows, for the functions of `zoo.batches`, which take lists and integer arrays and declare lists."""
    return cast(Sequence[Sequence[int]], rows)


def token_type(tokenizer: Tokenizer) -> str:
    """Name of the smallest integer dtype that holds the tokenizer's ids."""
    return "uint16" if len(tokenizer) <= 2**16 else "uint32"


class PairArrays:
    """Tokenised sentence pairs without special tokens, read from the folder that `build` wrote.

    Attributes:
        too_long: number of pairs left out because a side was longer than `max_length`.
        empty: number of pairs left out because a side was empty.
        tokens: number of tokens of both sides.
        texts: number of sentences of both sides.
    """

    noun = "pairs"
    special = 1  # tokens added to a sentence that count in its length

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        meta = json.loads((folder / "meta.json").read_text())
        self._size: int = meta["pairs"]
        self.too_long: int = meta["too_long"]
        self.empty: int = meta["empty"]
        self.tokens: int = meta["tokens"]
        self.texts = 2 * self._size
        self._sides = [Ragged(folder, side, dtype) for side, dtype in zip(("src", "tgt"), meta["dtypes"], strict=True)]

    def __reduce__(self) -> tuple:
        return PairArrays, (self.folder,)  # a worker process maps the files itself

    def __len__(self) -> int:
        return self._size

    def lengths(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source and target token counts of the pairs `index`, (N,) int32 each."""
        src, tgt = self._sides
        return src.lengths(index), tgt.lengths(index)

    def rows(self, index: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Source and target tokens of the pairs `index`."""
        src, tgt = self._sides
        return src.rows(index), tgt.rows(index)

    def unknown(self) -> int:
        """Number of tokens that are UNK."""
        return sum(side.count(UNK) for side in self._sides)

    def batch(self, index: np.ndarray) -> PairBatch:
        """The pairs `index`, padded."""
        src, tgt = self.rows(index)
        return pad_batch(as_lists(src), as_lists(tgt))

    def release(self) -> None:
        """Releases the pages read so far, which would otherwise count as this process's memory."""
        for side in self._sides:
            side.release()

    @staticmethod
    def build(
        folder: Path,
        pairs: Iterable[tuple[str, str]],
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        max_length: int | None,
    ) -> None:
        """Tokenises `pairs` into `folder`, which appears only when it is complete.

        Args:
            folder: target; nothing is done if it already exists and is intact.
            pairs: source and target sentences, read once and never held in memory together.
            src_tokenizer: tokenizer of the source side.
            tgt_tokenizer: tokenizer of the target side.
            max_length: pairs with a side of more tokens are left out (and counted), as are pairs with an empty side.

        Raises:
            ValueError: there is no pair, or none is short enough.
        """
        if is_intact(folder):
            return
        with appearing_when_complete(folder) as temporary:
            _write(temporary, pairs, (src_tokenizer, tgt_tokenizer), max_length)


def _write(
    folder: Path, pairs: Iterable[tuple[str, str]], tokenizers: tuple[Tokenizer, Tokenizer], max_length: int | None
) -> None:
    dtypes = [token_type(tokenizer) for tokenizer in tokenizers]
    limit = max_length or np.inf
    counts = {"pairs": 0, "too_long": 0, "empty": 0}
    writers = [RaggedWriter(folder, side, dtype) for side, dtype in zip(("src", "tgt"), dtypes, strict=True)]
    try:
        for chunk in chunks(pairs, _CHUNK):
            encoded = [tokenizer.encode_batch(side) for tokenizer, side in zip(tokenizers, zip(*chunk), strict=True)]
            kept = []
            for src, tgt in zip(*encoded, strict=True):
                if not src or not tgt:
                    counts["empty"] += 1
                elif max(len(src), len(tgt)) > limit:
                    counts["too_long"] += 1
                else:
                    kept.append((src, tgt))
            counts["pairs"] += len(kept)
            for writer, rows in zip(writers, zip(*kept)):
                writer.write(rows)
    finally:
        for writer in writers:
            writer.close()
    if not counts["pairs"]:
        if counts["too_long"]:
            raise ValueError(
                f"no training pair is within max_length={max_length} tokens "
                f"({counts['too_long']:,} pairs are longer); raise max_length"
            )
        raise ValueError("the training text is empty: it has no pair with words on both sides")
    tokens = sum(writer.end for writer in writers)
    (folder / "meta.json").write_text(json.dumps({**counts, "tokens": tokens, "dtypes": dtypes}))


def chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of `size` items, the last one shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
