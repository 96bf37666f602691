"""Products of a few rows with a large weight that oneDNN rearranges ("packs") for the processor once.

Otherwise each such product rearranges the weight again, which takes a quarter to two thirds of its time. Recurrences
and searches multiply by the same weights at every step.

Shapes: n rows, K inner size, N columns.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.layers.kernels import product_dtype, usable

_LARGE = 2**18  # elements of a weight; with a smaller one calling oneDNN costs more than it saves
_ROWS = {torch.float32: 8, torch.bfloat16: 64}  # that a search has multiplied by a weight when packing starts to pay


def worth_packing(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether repeated products with this weight (N, K) in precision `dtype` are faster once it is packed."""
    return weight.numel() >= _LARGE and dtype in _packable()


@functools.cache
def _packable() -> tuple[torch.dtype, ...]:
    """Weight dtypes that oneDNN packs on this processor."""
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()):  # the second: x86
        return ()
    return (torch.float32, torch.bfloat16) if torch.ops.mkldnn._is_mkldnn_bf16_supported() else (torch.float32,)


def pack(weight: Tensor) -> Tensor:
    """A weight (N, K) for `multiply_packed`."""
    return torch.ops.mkldnn._reorder_linear_weight(weight)


def multiply_packed(x: Tensor, packed: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., K) weight^T + bias -> (..., N), all of one dtype."""
    return torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "none", [], "")


@dataclass
class _Use:
    """What a search has done with a weight. Holding the weight keeps its id its own."""

    weight: Tensor
    rows: int = 0
    packed: Tensor | None = None


_uses: ContextVar[dict[tuple[int, torch.dtype], _Use] | None] = ContextVar("uses", default=None)


@contextmanager
def constant_weights() -> Iterator[None]:
    """Context in which no weight changes: `linear` may pack it. Also a decorator."""
    token = _uses.set({})
    try:
        yield
    finally:
        _uses.reset(token)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`functional.linear`; inside `constant_weights` a large weight is packed, if several rows at a time meet it."""
    if (uses := _uses.get()) is None:
        return functional.linear(x, weight, bias)
    rows, dtype = x.numel() // x.size(-1), product_dtype(weight)
    if not isinstance(weight, nn.Parameter):  # computed anew at each step, as by a parametrization
        return functional.linear(x, weight, bias)
    if rows < 2 or not worth_packing(weight, dtype) or not usable("products", x, weight, bias):
        return functional.linear(x, weight, bias)
    use = uses.setdefault((id(weight), dtype), _Use(weight))
    use.rows += rows
    if use.rows < _ROWS[dtype]:
        return functional.linear(x, weight, bias)
    if use.packed is None:
        use.packed = pack(weight.detach().to(dtype))
    return multiply_packed(x.to(dtype), use.packed, None if bias is None else bias.to(dtype))
