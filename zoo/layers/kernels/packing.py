"""Products of a search: each step multiplies the same weights with few rows, so oneDNN rearranges them only once.

torch rearranges a weight for the processor at each product. For 64 rows that takes up to half of the time.
"""

from typing import Any

from torch import Tensor, nn, ops
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from zoo.layers.kernels import product_dtype, usable
from zoo.layers.kernels.recurrence import packable

_ROWS = 4  # fewer are not worth the rearrangement, of a weight with fewer numbers than _NUMBERS neither
_NUMBERS = 2**18


class PackedProducts(TorchFunctionMode):
    """Context without gradients, in which no weight changes: `functional.linear` uses weights that are packed once."""

    def __init__(self) -> None:
        super().__init__()
        self._packed: dict[Tensor, tuple[Tensor, Tensor | None]] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func is linear and not kwargs and type(args[1]) is nn.Parameter:
            return self._linear(*args)
        return func(*args, **(kwargs or {}))

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        few = weight.numel() < _NUMBERS or x.numel() < _ROWS * x.size(-1)
        if few or product_dtype(weight) not in packable() or not usable("packing", x, weight, bias):
            return linear(x, weight, bias)
        dtype = product_dtype(weight)
        if weight not in self._packed:
            packed = ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype))
            self._packed[weight] = packed, None if bias is None else bias.detach().to(dtype)
        packed, bias = self._packed[weight]
        return ops.mkldnn._linear_pointwise(x.to(dtype), packed, bias, "none", [], "")
