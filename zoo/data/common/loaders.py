"""Batches of texts of similar length, in an order that can be resumed and sharded over processes.

The training data is an endless stream of batches. Epoch e visits the texts (or pairs of texts) in a pseudo-random order
that depends on seed and epoch only. Consecutive positions form pools; each pool is sorted by length and cut into
batches, and the batches are shuffled. So a position in the stream is three numbers, and only one pool of texts is in
memory.
"""

import os
import zlib
from collections.abc import Iterator, Sized
from functools import cached_property
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from zoo.batches.translation import PairBatch, pad_batch
from zoo.data.common.bpe_dropout import BpeDropout

_MARKED = 5_000  # items that a `mark` looks at


class Items(Protocol):
    """The items of batches: pairs of sentences, texts, documents. An `index` is an array of item indices, (N,)."""

    noun: str  # name of the items in messages
    special: int  # tokens added to a text that count in its length

    def __len__(self) -> int: ...

    def lengths(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Token counts of the two texts of each item, (N,) integers each; the same array twice for single texts."""
        ...

    def batch(self, index: np.ndarray) -> Any:
        """A batch of the items."""


class StoredItems(Items, Protocol):
    """Items in memory-mapped files, such as `CaptionArrays`."""

    tokens: int  # in all texts together
    texts: int  # number of texts; a pair counts 2

    def release(self) -> None:
        """Releases the pages read so far."""


@runtime_checkable
class TokenItems(StoredItems, Protocol):
    """Stored items that have only tokens, no images for example: `PairArrays` or `LabeledArrays`."""

    def rows(self, index: np.ndarray) -> tuple[list[np.ndarray], ...]:
        """Tokens of the first and of the second text of each item."""
        ...


ItemsT = TypeVar("ItemsT", bound=StoredItems)


class Batches(Protocol):
    """What `Stream.pool` returns, such as a `Pool`: batches that are made together."""

    @property
    def batches(self) -> Sized: ...


class Stream(Protocol):
    """The endless stream of training batches of one process: `BatchStream` or `TextStream`."""

    pools: int  # in an epoch

    def batches_per_epoch(self) -> int:
        """Number of batches in an epoch of the data."""
        ...

    def mark(self) -> int:
        """A number that changes with the data, but for rare chance."""
        ...

    def pool(self, epoch: int, pool: int) -> Batches:
        """One pool of one epoch."""
        ...

    def load(self, pool: Any, number: int) -> Any:
        """One batch of what `pool` gave."""


def cut_batches(lengths: np.ndarray, batch_size: int | None, batch_tokens: int | None, world_size: int) -> list[int]:
    """End positions of the batches into which sorted sentences are cut.

    A batch is later sharded over `world_size` processes, so it never has fewer sentences than that, if there are
    enough.

    Args:
        lengths: (N,) length of the longer text of each item with special tokens, at least 1.
        batch_size: sentences per batch and process; batches are cut evenly, so none is much smaller than the others.
        batch_tokens: sentences times the longest side, with padding, per batch and process (if `batch_size` is None).
        world_size: number of processes.
    """
    total = len(lengths)
    if batch_size:
        count = max(1, min(-(-total // (batch_size * world_size)), total // world_size))
        return [total * (i + 1) // count for i in range(count)]
    ends, start, budget = [], 0, _budget(batch_tokens)
    while start < total:
        # No more sentences can fit than if all were as short as the first; of these, take as many as do fit.
        window = max(1, budget // int(lengths[start])) * world_size
        widths = np.maximum.accumulate(lengths[start : start + window])
        rows = -(-np.arange(1, len(widths) + 1) // world_size)
        end = start + max(int(np.searchsorted(rows * widths, budget, side="right")), world_size)
        if total - end < world_size:
            end = total
        ends.append(end)
        start = end
    return ends


def _budget(batch_tokens: int | None) -> int:
    if batch_tokens is None:
        raise ValueError("give batch_size or batch_tokens; got neither")
    return batch_tokens


def _by_length(src: np.ndarray, tgt: np.ndarray) -> np.ndarray:
    # By target length; source lengths alternately rise and fall, so they do not jump where the target length changes.
    return np.lexsort((np.where(tgt % 2, src, -src), tgt))


class BatchStream(Generic[ItemsT]):
    """The endless stream of training batches of one process.

    Args:
        arrays: the tokenised items.
        batch_size: sentences per batch and process; None to use `batch_tokens`.
        batch_tokens: tokens per batch and process, see `cut_batches`.
        pool_batches: batches in a pool: more means less padding, fewer means more varied batches.
        seed: selects the order.
        rank: rank of this process.
        world_size: number of processes. Together they take the batches that one process with `world_size` times the
            batch size would take; no pair is repeated or left out.
        dropouts: BPE-dropout of the source and target side, if any.
    """

    def __init__(
        self,
        arrays: ItemsT,
        batch_size: int | None = 64,
        batch_tokens: int | None = None,
        pool_batches: int = 192,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        dropouts: tuple[BpeDropout, BpeDropout] | None = None,
    ) -> None:
        if len(arrays) < world_size:
            raise ValueError(f"cannot shard {len(arrays)} training {arrays.noun} over {world_size} processes")
        self.arrays = arrays
        self._batch_size, self._batch_tokens = batch_size, batch_tokens
        self._seed, self._rank, self._world_size = seed, rank, world_size
        self._dropouts: tuple[TokenItems, tuple[BpeDropout, BpeDropout]] | None = None
        if dropouts is not None:
            if not isinstance(arrays, TokenItems):
                raise ValueError(f"BPE-dropout needs sentence pairs; got {type(arrays).__name__}")
            self._dropouts = arrays, dropouts
        self._order: tuple[int, np.ndarray] | None = None  # the latest epoch, and the order of its items
        tokens = arrays.tokens + arrays.special * arrays.texts
        size = batch_size or max(1, int(_budget(batch_tokens) * arrays.texts / tokens))
        self.pools = max(1, len(arrays) // (size * world_size * pool_batches))

    def pool(self, epoch: int, pool: int) -> "Pool":
        """One pool of one epoch, cut into batches in training order."""
        pairs = self._pairs(epoch, pool)
        rng = np.random.default_rng((self._seed, epoch, pool))
        rows = None
        if self._dropouts:  # before sorting, because it changes the lengths
            arrays, dropouts = self._dropouts
            rows = [dropout(side, rng) for dropout, side in zip(dropouts, arrays.rows(pairs), strict=True)]
            src, tgt = (np.fromiter(map(len, side), np.int32, len(pairs)) for side in rows)
        else:
            src, tgt = self.arrays.lengths(pairs)
        self.arrays.release()
        order = _by_length(src, tgt)
        batches = np.split(order, self._cut(np.maximum(src, tgt)[order])[:-1])
        return Pool(epoch, pairs, rows, [batches[i] for i in rng.permutation(len(batches))])

    def load(self, pool: "Pool", number: int) -> Any:
        """This process's share of one batch of a pool."""
        share = pool.batches[number][self._rank :: self._world_size]
        if pool.rows is None:
            batch = self._batch(pool.pairs[share], pool.epoch)
        else:
            batch = pad_batch(*([side[i] for i in share.tolist()] for side in pool.rows))
        self.arrays.release()
        return batch

    def batches_per_epoch(self) -> int:
        """Number of batches in an epoch.

        Exact for `batch_size`. For `batch_tokens` it is the number in epoch 0 without BPE-dropout; other epochs have
        slightly more or fewer.
        """
        return sum(self._count(pool) for pool in range(self.pools))

    def mark(self) -> int:
        """A number that changes with the data: of the words, or their number, of many items all over them."""
        arrays = self.arrays
        index = np.linspace(0, len(arrays) - 1, min(len(arrays), _MARKED)).astype(np.int64)
        seen = chain.from_iterable(arrays.rows(index)) if isinstance(arrays, TokenItems) else arrays.lengths(index)
        found = len(arrays)
        for row in seen:
            found = zlib.crc32(row.astype(np.int64).tobytes(), found)
        arrays.release()
        return found

    def _batch(self, index: np.ndarray, epoch: int) -> Any:
        return self.arrays.batch(index)

    def _count(self, pool: int) -> int:
        if self._batch_size:
            first, end = self._bounds(pool)
            return len(self._cut(np.zeros(end - first, np.int32)))
        src, tgt = self.arrays.lengths(self._pairs(0, pool))
        self.arrays.release()
        return len(self._cut(np.maximum(src, tgt)[_by_length(src, tgt)]))

    def _pairs(self, epoch: int, pool: int) -> np.ndarray:
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng((self._seed, epoch))
            self._order = epoch, rng.permutation(np.arange(len(self.arrays), dtype=np.uint32))
        return self._order[1][slice(*self._bounds(pool))].astype(np.int64)

    def _bounds(self, pool: int) -> tuple[int, int]:
        total = len(self.arrays)
        return total * pool // self.pools, total * (pool + 1) // self.pools

    def _cut(self, longer: np.ndarray) -> list[int]:
        return cut_batches(longer + self.arrays.special, self._batch_size, self._batch_tokens, self._world_size)


class Pool(NamedTuple):
    """Items that are sorted by length together.

    Attributes:
        epoch: epoch of the data.
        pairs: (N,) indices of the items, which need not be pairs.
        rows: their source and target tokens, if they differ from those of the arrays.
        batches: for each batch of all processes together, positions of its sentences in `pairs`.
    """

    epoch: int
    pairs: np.ndarray
    rows: list[list[list[int]]] | None
    batches: list[np.ndarray]


class _Worker(IterableDataset):
    """Loads the stream from a position on; several worker processes take turns."""

    def __init__(self, stream: Stream, epoch: int, pool: int, batch: int, count: int) -> None:
        self._stream, self._start, self._count = stream, (epoch, pool, batch), count

    def __iter__(self) -> Iterator[tuple[tuple[int, int, int], Any]]:
        worker = get_worker_info()
        turn, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for item, (pool, number, following) in enumerate(self._positions()):
            if item % workers == turn:
                yield following, self._stream.load(pool, number)

    def _positions(self) -> Iterator[tuple[Batches, int, tuple[int, int, int]]]:
        """Each batch as its pool, its index there, and the position after it."""
        epoch, number, first = self._start
        left = self._count
        while left:
            pool = self._stream.pool(epoch, number)
            end = min(first + left, len(pool.batches))
            left -= end - first
            following = (epoch, number + 1, 0) if number + 1 < self._stream.pools else (epoch + 1, 0, 0)
            for batch in range(first, end):
                yield pool, batch, (epoch, number, batch + 1) if batch + 1 < len(pool.batches) else following
            (epoch, number, first) = following


def _identity(item: Any) -> Any:
    return item


class TrainLoader:
    """Training batches; each iteration gives the next `len(loader)` batches of the stream.

    `state_dict` taken after any batch resumes exactly after it; Lightning stores it in its checkpoints.

    Args:
        stream: the batches of this process.
        epoch: data epoch to start with.
        num_workers: worker processes; 0 loads in this process. The batches are the same.
        pin_memory: load the batches into page-locked memory (for copies to an accelerator).
    """

    def __init__(self, stream: Stream, epoch: int = 0, num_workers: int = 0, pin_memory: bool = False) -> None:
        self.stream = stream
        self._num_workers, self._pin_memory = num_workers, pin_memory
        self._position = (epoch, 0, 0)
        self._given = 0
        self._resumed = False
        self._length = stream.batches_per_epoch()

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        if not self._resumed:
            self._given = 0
        self._resumed = False
        count = self._length - self._given
        if self._num_workers:
            # Workers fork and never tokenise; without this the tokenizers library warns in each of them.
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        loader = DataLoader(
            _Worker(self.stream, *self._position, count),
            batch_size=None,
            collate_fn=_identity,
            num_workers=min(self._num_workers, count),
            pin_memory=self._pin_memory,
            generator=torch.Generator(),  # else it draws from the global generator, and a resumed run would differ
        )
        for position, batch in loader:
            # Lightning stops after `len` batches without exhausting the iterator: record all state before each yield.
            epoch, pool, number = position
            self._position = (epoch, pool, number)
            self._given = (self._given + 1) % self._length
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Position in the stream, number of batches given since the iteration began, and the `mark` of the data."""
        return {"position": list(self._position), "given": self._given, "length": self._length, "data": self.mark}

    @cached_property
    def mark(self) -> int:
        """That of the stream."""
        return self.stream.mark()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues after the batch at which `state` was taken.

        Raises:
            ValueError: the batches have changed.
        """
        if state["length"] != self._length:
            raise ValueError(
                f"cannot resume: the checkpoint was made with {state['length']:,} batches per epoch, now there are "
                f"{self._length:,}; use the same data, batch size and number of processes, or start a new training "
                "from the checkpoint's weights"
            )
        epoch, pool, batch = state["position"]
        self._position, self._given = (epoch, pool, batch), state["given"]
        self._resumed = True


class SortedLoader:
    """Validation or test batches, the longest first; every item exactly once over all processes.

    All processes get equally many batches. With fewer items than processes, some get a single batch None.

    Args:
        items: the items to evaluate on.
        batch_size: items per batch and process; None to use `batch_tokens`.
        batch_tokens: tokens per batch and process, see `cut_batches`.
        rank: rank of this process.
        world_size: number of processes.

    Attributes:
        count: number of items, over all processes.
    """

    def __init__(
        self,
        items: Items,
        batch_size: int | None = 64,
        batch_tokens: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._items, self.count = items, len(items)
        self._rank, self._world_size = rank, world_size
        first, second = items.lengths(np.arange(len(items)))
        order = np.lexsort((-second, -first))
        lengths = np.maximum(np.maximum(first, second) + items.special, 1)
        ends = cut_batches(lengths[order], batch_size, batch_tokens, world_size)
        self._batches = np.split(order, ends[:-1])

    def __len__(self) -> int:
        return len(self._batches)

    def __str__(self) -> str:
        """How many items of which kind, e.g. "1,000 sentence pairs"."""
        return f"{self.count:,} {self._items.noun}" if self.count != 1 else f"1 {self._items.noun.removesuffix('s')}"

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            share = batch[self._rank :: self._world_size]
            yield self._items.batch(share) if len(share) else None


class _Pairs:
    """Sentence pairs held in memory, with their texts."""

    noun, special = "sentence pairs", 1

    def __init__(self, pairs: list[tuple[str, str]], tokens: list[tuple[list[int], list[int]]]) -> None:
        self._pairs, self._tokens = pairs, tokens

    def __len__(self) -> int:
        return len(self._pairs)

    def lengths(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        src, tgt = np.array([list(map(len, self._tokens[i])) for i in index.tolist()]).T
        return src, tgt

    def batch(self, index: np.ndarray) -> PairBatch:
        src, tgt = zip(*(self._tokens[i] for i in index.tolist()), strict=True)
        src_text, tgt_text = zip(*(self._pairs[i] for i in index.tolist()), strict=True)
        return pad_batch(src, tgt, list(src_text), list(tgt_text))


class EvalLoader(SortedLoader):
    """Validation or test batches of sentence pairs with their texts, longest source first, see `SortedLoader`.

    Args:
        pairs: source and target text.
        tokens: source and target tokens of each pair.
        batch_size, batch_tokens, rank, world_size: as for `SortedLoader`.
    """

    def __init__(
        self,
        pairs: list[tuple[str, str]],
        tokens: list[tuple[list[int], list[int]]],
        batch_size: int | None = 64,
        batch_tokens: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(_Pairs(pairs, tokens), batch_size, batch_tokens, rank, world_size)
