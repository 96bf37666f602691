"""Batches of sentence pairs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from zoo.text import BOS, EOS, PAD


class PairBatch(NamedTuple):
    """A padded batch of sentence pairs; `B` sentences, `S` source tokens, `T` labels.

    Attributes:
        src: (B, S) int64, every row ends with EOS, then PAD.
        src_lengths: (B,) int64, EOS included, so at least 1.
        tgt: (B, T + 1) int64, BOS y_1 .. y_n EOS PAD; decoder input `tgt[:, :-1]`, labels `tgt[:, 1:]`; None at
            inference.
        tgt_lengths: (B,) int64, number of labels (y and EOS); None at inference.
        src_text: raw source sentences, only in validation and test batches.
        tgt_text: raw target sentences, only in validation and test batches.
    """

    src: Tensor
    src_lengths: Tensor
    tgt: Tensor | None
    tgt_lengths: Tensor | None
    src_text: list[str] | None = None
    tgt_text: list[str] | None = None

    def targets(self) -> tuple[Tensor, Tensor]:
        """`tgt` and `tgt_lengths`.

        Raises:
            ValueError: a batch for inference has none.
        """
        if self.tgt is None or self.tgt_lengths is None:
            raise ValueError("this batch has no targets; give pad_batch those of its sentences")
        return self.tgt, self.tgt_lengths

    def references(self) -> list[str]:
        """`tgt_text`.

        Raises:
            ValueError: a batch for training or inference has none.
        """
        if self.tgt_text is None:
            raise ValueError("this batch has no reference translations; a score needs them as tgt_text")
        return self.tgt_text


def pad_batch(
    src: Sequence[Sequence[int]],
    tgt: Sequence[Sequence[int]] | None = None,
    src_text: list[str] | None = None,
    tgt_text: list[str] | None = None,
) -> PairBatch:
    """Adds the special tokens to `B` token lists (which have none) and pads them.

    Args:
        src: `B` lists (or integer arrays) of source tokens; an empty list becomes a lone EOS.
        tgt: `B` lists (or integer arrays) of target tokens, or None at inference.
        src_text: the `B` source sentences as text, passed through.
        tgt_text: the `B` target sentences as text, passed through.
    """
    src_ids, src_lengths = _pad(src, bos=False)
    tgt_ids, tgt_lengths = (None, None) if tgt is None else _pad(tgt, bos=True)
    return PairBatch(src_ids, src_lengths, tgt_ids, tgt_lengths, src_text, tgt_text)


def _pad(rows: Sequence[Sequence[int]], bos: bool) -> tuple[Tensor, Tensor]:
    lengths = np.fromiter((len(row) + 1 for row in rows), np.int64, len(rows))  # (B,) with EOS, without BOS
    ids = np.full((len(rows), int(bos) + int(lengths.max(initial=0))), PAD, np.int64)
    if bos:
        ids[:, 0] = BOS
    for i, row in enumerate(rows):
        end = bos + len(row)
        ids[i, bos:end] = row
        ids[i, end] = EOS
    return torch.from_numpy(ids), torch.from_numpy(lengths)
