"""Matrix products inside a loop over steps."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def product_dtype(weight: Tensor) -> torch.dtype:
    """Precision of products with this weight: autocast's where it is on, else the weight's own."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def wants_gradient(*inputs: Tensor) -> bool:
    """Whether a backward pass may follow. To be asked outside an autograd function: inside, under no_grad, needs_input_grad says yes."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in inputs)


def row_product(weight: Tensor, pack: bool) -> Callable[[Tensor], Tensor]:
    """The function x (B, K) -> x @ weight^T (B, N) outside autograd, in the precision of weight (N, K).

    Args:
        weight: (N, K).
        pack: for many calls. A product of few rows spends up to half its time on laying out the weight for the processor; oneDNN does that
            once, here, where there is oneDNN.
    """
    if not pack or weight.device.type != "cpu" or weight.dtype not in _packable():
        return lambda x: torch.mm(x, weight.t())
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


@functools.cache
def _packable() -> tuple[torch.dtype, ...]:
    """What oneDNN packs on this processor."""
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()):  # the second: x86
        return ()
    return (torch.float32, torch.bfloat16) if torch.ops.mkldnn._is_mkldnn_bf16_supported() else (torch.float32,)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):  # the dtype was chosen before
        return torch.matmul(x, weight.transpose(-1, -2))


class _Collect(torch.autograd.Function):
    """Root of the steps of one StepProduct: its backward runs after all of theirs and forms the weight gradient at once."""

    @staticmethod
    def forward(ctx, weight, tape):
        ctx.tape, ctx.dtype, ctx.dim = tape, weight.dtype, weight.dim()
        return weight.new_zeros((), dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx, _):
        if not ctx.tape:
            return None, None
        grads, inputs = zip(*ctx.tape)
        ctx.tape.clear()
        if ctx.dim == 2:  # one weight for all rows: (rows of all steps, N or K)
            grads, inputs = [g.flatten(0, -2) for g in grads], [x.flatten(0, -2) for x in inputs]
        grad, x = torch.cat(grads, dim=-2), torch.cat(inputs, dim=-2)
        return torch.matmul(grad.transpose(-1, -2), x).to(ctx.dtype), None


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, token, weight, tape):
        ctx.x, ctx.weight, ctx.tape, ctx.dtype = x.to(weight.dtype), weight, tape, x.dtype
        return _product(ctx.x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        grad = grad.to(ctx.weight.dtype)
        ctx.tape.append((grad, ctx.x))
        return torch.matmul(grad, ctx.weight).to(ctx.dtype), grad.new_zeros((), dtype=torch.float32), None, None


class StepProduct:
    """x @ weight^T for many steps whose weight gradient is one matrix product at the end instead of one a step.

    Under autocast the weight is cast once here, not once a step.

    Args:
        weight: (N, K), or (B, N, K) for a product per batch row (attention keys and values) or per direction.
        dtype: of the products; autocast's if not given.
    """

    def __init__(self, weight: Tensor, dtype: torch.dtype | None = None):
        self.tape: list[tuple[Tensor, Tensor]] = []
        self.weight = weight.detach().to(dtype or product_dtype(weight))
        self.needs_grad = torch.is_grad_enabled() and weight.requires_grad
        self.token = _Collect.apply(weight, self.tape) if self.needs_grad else None

    def __call__(self, x: Tensor) -> Tensor:
        """x: (..., K) -> (..., N); with a weight per row x is (B, T, K)."""
        if self.needs_grad:
            return _Step.apply(x, self.token, self.weight, self.tape)
        return _product(x.to(self.weight.dtype), self.weight)
