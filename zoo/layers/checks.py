"""Checks of what attention layers are called with. Without them broadcasting mixes sentences and says nothing.

Shapes and types are known without waiting for a device, also while a graph is compiled or exported. Numbers are looked
at on a CPU only. While torch.jit traces nothing is checked: there even sizes are tensors.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from zoo.layers.kernels import is_transformed

_ROUNDING = 0.01  # of a sum of weights, also of bf16


def check_shape(name: str, x: Tensor, dimensions: str, *sizes: int | None) -> None:
    """Raises ValueError unless a tensor has these sizes.

    Args:
        name: of the tensor, in messages.
        x: any tensor.
        dimensions: names of its dimensions, such as "B, T, H".
        sizes: of each dimension; None: any.
    """
    if _is_traced():
        return
    if x.dim() != len(sizes) or any(want not in (None, have) for have, want in zip(x.shape, sizes, strict=True)):
        raise ValueError(f"{name} must be ({dimensions}){_here(dimensions, sizes)}; got {tuple(x.shape)}")


def check_mask(name: str, mask: Tensor, dimensions: str, *sizes: int | None) -> None:
    """Raises ValueError unless a mask is bool and has these sizes, as in `check_shape`."""
    _check_bool(mask, name)
    check_shape(name, mask, dimensions, *sizes)


def check_scores_mask(mask: Tensor, shape: Sequence[int]) -> None:
    """Raises ValueError unless a mask is bool and has the shape of the scores, or 1 in place of any dimension."""
    _check_bool(mask)
    if not _is_traced() and mask.dim() and not _fits(mask.shape, shape):
        raise ValueError(
            f"mask must have the shape of the scores, {tuple(shape)}, or 1 in place of any dimension; "
            f"got {tuple(mask.shape)}"
        )


def check_given(given: Tensor, weights: Tensor) -> None:
    """Raises ValueError unless these can be attention weights in place of the computed ones.

    Args:
        given: the shape of `weights`, or 1 in place of any dimension but the last; rows sum to at most 1.
        weights: (..., S).
    """
    if _is_traced():
        return
    if given.shape[-1:] != weights.shape[-1:] or not _fits(given.shape, weights.shape):
        shape = tuple(weights.shape)
        raise ValueError(f"given weights must have the shape of the computed ones, {shape}; got {tuple(given.shape)}")
    if not _has_numbers(given):
        return
    totals = given.detach().sum(-1)
    is_right = (given >= 0).all(-1) & (totals <= 1 + _ROUNDING)  # NaN is neither
    if not bool(is_right.all()):
        row = given[~is_right][0]
        raise ValueError(
            "given weights must be at least 0 everywhere and sum to at most 1 in each row, to 0 where it decides; "
            f"got a row with the sum {row.sum().item():.4g} and the smallest {row.min().item():.4g}"
        )


def check_labels(labels: Tensor, count: int) -> None:
    """Raises ValueError unless there is a label for each of `count` rows, and none is negative."""
    check_shape("labels", labels, "N", count)
    if not _is_traced() and _has_numbers(labels) and count and int(labels.min()) < 0:
        raise ValueError(f"labels must be from 0 to V - 1; got {int(labels.min())}: leave out rows that do not count")


def check_lengths(lengths: Tensor, size: int, most: int | None = None, total: int | None = None) -> Tensor:
    """Lengths of sequences, as int64.

    Args:
        lengths: any tensor.
        size: N, the number of sequences.
        most: the number of places that each has; None: any.
        total: the number of items of all of them; None: any.

    Raises:
        ValueError: another shape or type, or a number below 0 or above `most`, or another sum.
    """
    if _is_traced():
        return lengths
    check_shape("lengths", lengths, "N", size)
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(f"lengths must be whole numbers; got {lengths.dtype}")
    if size and _has_numbers(lengths):
        least, largest = int(lengths.min()), int(lengths.max())
        if least < 0 or most is not None and largest > most:
            limit = "" if most is None else f" and at most the {most:,} positions of the input"
            raise ValueError(f"lengths must be at least 0{limit}; got {least:,} to {largest:,}")
        if total is not None and (found := int(lengths.sum())) != total:
            raise ValueError(f"lengths must sum to the number of items, {total:,}; got {found:,}")
    return lengths.long()


def check_prefix(mask: Tensor) -> None:
    """Raises ValueError if a mask (B, S) is True after a False: a window counts the positions from the first on."""
    if not _is_traced() and _has_numbers(mask) and bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ValueError(
            "mask must be True on the first positions of each row: local attention takes padding after them"
        )


def _has_numbers(x: Tensor) -> bool:
    """Whether the values can be looked at now without waiting for a device."""
    plain = type(x) is Tensor and x.device.type == "cpu"
    return plain and not torch.compiler.is_compiling() and not is_transformed()


def _check_bool(mask: Tensor, name: str = "mask") -> None:
    if mask.dtype != torch.bool:
        raise ValueError(f"{name} must be bool, True where attention may go; got {mask.dtype}: use mask != 0")


def _fits(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a shape is the whole one, or has 1 in place of some dimensions; their number is the same."""
    return len(shape) == len(whole) and all(have in (1, want) for have, want in zip(shape, whole, strict=True))


def _is_traced() -> bool:
    return torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]  # public, but torch does not list it


def _here(dimensions: str, sizes: tuple[int | None, ...]) -> str:
    """The dimensions with the sizes that are known, for a message."""
    if all(size is None for size in sizes):
        return ""
    names = dimensions.split(", ")
    return f", here ({', '.join(name if size is None else str(size) for name, size in zip(names, sizes, strict=True))})"
