"""Batches of images with captions."""

from typing import NamedTuple

from torch import Tensor


class CaptionBatch(NamedTuple):
    """`N` images with up to `K` captions each; images of `S` x `S` pixels, or `L` cached features of size `D`.

    Attributes:
        images: (N, 3, S, S) uint8 RGB; or (N, L, D) floating point, features of a frozen encoder.
        captions: (N, K, T) int64, BOS w_1 .. w_n EOS PAD; a missing caption is all PAD. Decoder input
            `captions[..., :-1]`, labels `captions[..., 1:]`.
        lengths: (N, K) int64, number of labels (words and EOS); 0 for a missing caption.
        references: all captions of each image as raw text, only in validation and test batches.
    """

    images: Tensor
    captions: Tensor
    lengths: Tensor
    references: list[list[str]] | None = None

    def known_references(self) -> list[list[str]]:
        """`references`.

        Raises:
            ValueError: a batch for training has none.
        """
        if self.references is None:
            raise ValueError("this batch has no reference captions; a score needs them as references")
        return self.references
