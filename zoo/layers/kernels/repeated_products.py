"""The gradient of a matrix that many steps multiply by, formed in one product after the last step instead of one
product a step.

A decoder loop in plain torch multiplies by the same matrices at every step, and autograd forms a product and a sum a
step for the gradient of each. Inside `repeated(steps)` the loop stays the same plain torch and calls the same modules,
but these products are recorded in another way. For each matrix W, `_Root` makes two tensors with a slot for each step.
They carry gradients only and take no memory. Step t passes its slots through `_Product`, whose backward pass gives the
gradient of its output to the one and its input to the other. Autograd stacks the slots, and `_Root` forms

    d W = sum_t (d y_t)^T x_t = [d y_1; ...; d y_T]^T [x_1; ...; x_T]    for    y_t = x_t W^T.

Nothing outlives a call, so partial, repeated and second backward passes are right.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from zoo.layers.kernels import product_dtype, usable, wide


class _Root(torch.autograd.Function):
    """W (N, K) -> slots (T, R, N) and (T, R, K) for T steps with R rows each; W (B, N, K) -> (T, B, R, N) and (T, B, R,
    K).
    """

    @staticmethod
    def forward(ctx, weight, steps, rows, dtype):
        ctx.dtype = weight.dtype
        *batch, n, k = weight.shape
        nothing = weight.new_zeros((), dtype=dtype)
        return nothing.expand(steps, *batch, rows, n), nothing.expand(steps, *batch, rows, k)

    @staticmethod
    def backward(ctx, grads, inputs):
        if grads.dim() == 3:
            grads, inputs = grads.flatten(0, 1), inputs.flatten(0, 1)  # (T R, N), (T R, K)
        else:
            grads, inputs = (x.transpose(0, 1).flatten(1, 2) for x in (grads, inputs))  # (B, T R, ...)
        return torch.matmul(grads.transpose(-1, -2), inputs).to(ctx.dtype), None, None, None


class _Product(torch.autograd.Function):
    """x W^T. The gradient of W is left to `_Root`."""

    @staticmethod
    def forward(ctx, x, weight, grad_slot, input_slot):
        ctx.save_for_backward(x, weight)
        ctx.slot = grad_slot.shape[:-1]
        return torch.matmul(x, weight.transpose(-1, -2))

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        of_x = torch.matmul(grad, weight) if ctx.needs_input_grad[0] else None
        return of_x, None, grad.reshape(*ctx.slot, -1), x.reshape(*ctx.slot, -1)


class _Matrix:
    """A matrix in the precision of its products, with the slots that are left."""

    def __init__(self, weight: Tensor, steps: int, rows: int, dtype: torch.dtype):
        self.source = weight  # keeps its memory, and so its address, from other tensors
        self.weight, self.options = weight.to(dtype), (steps, rows, dtype)
        self.slots: Iterator[tuple[Tensor, Tensor]] = iter(())

    def next_slots(self) -> tuple[Tensor, Tensor]:
        slots = next(self.slots, None)
        if slots is None:  # the first step, or more steps than expected
            self.slots = zip(*(x.unbind(0) for x in _Root.apply(self.source, *self.options)), strict=True)
            slots = next(self.slots)
        return slots


class _Repeated(TorchFunctionMode):
    """Takes over products with parameters and with the tensors given. Modules and their hooks run as they are."""

    def __init__(self, steps: int, given: tuple[Tensor, ...]):
        super().__init__()
        self.steps, self.given = steps, {t.untyped_storage().data_ptr() for t in given}
        self.matrices: dict[tuple, _Matrix] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if not torch.is_grad_enabled():
            pass
        elif func is functional.linear and not kwargs:
            x, weight, *bias = args
            if _is_parameter(weight) and x.dim() > 1:
                y = self._product(x, weight, product_dtype(weight))
                return y if not bias or bias[0] is None else y + bias[0].to(y.dtype)
        elif func in (torch.matmul, Tensor.matmul, Tensor.__matmul__) and len(args) == 2:
            x, other = args
            if (
                other.dim() == 3
                and x.dim() == 3
                and other.requires_grad
                and other.untyped_storage().data_ptr() in self.given
            ):
                # these products of a few rows wait for memory: lower precision would only add conversions
                return self._product(x, other.transpose(1, 2), wide(other[:0]).dtype)
        return func(*args, **(kwargs or {}))

    def _product(self, x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """x (..., K) and W (N, K), or (B, R, K) and (B, N, K)."""
        rows = x.numel() // x.size(-1) if weight.dim() == 2 else x.size(1)
        key = (weight.data_ptr(), weight.shape, weight.stride(), weight._version, rows, dtype)
        if key not in self.matrices:
            self.matrices[key] = _Matrix(weight, self.steps, rows, dtype)
        matrix = self.matrices[key]
        with torch.autocast(x.device.type, enabled=False):  # the precision is chosen
            return _Product.apply(x.to(dtype), matrix.weight, *matrix.next_slots())


def _is_parameter(weight: Tensor) -> bool:
    """Whether it is a parameter, or a part of one, that is trained."""
    return weight.requires_grad and isinstance(weight._base if weight._is_view() else weight, nn.Parameter)


def repeated(steps: int, *memory: Tensor) -> AbstractContextManager:
    """A context for a loop over steps that multiply by the same matrices.

    Args:
        steps: Expected number of them; more or fewer are right as well.
        memory: Tensors (B, S, K) other than parameters that each step multiplies by, such as the keys and values of an
            attention.
    """
    if steps > 1 and torch.is_grad_enabled() and usable("repeated_products", *memory):
        return _Repeated(steps, memory)
    return nullcontext()
