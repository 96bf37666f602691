"""The base of the kernels: an autograd function with a hand-written gradient that can be differentiated again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def wants_gradient(*inputs: Tensor | None) -> bool:
    """Whether a backward pass may follow. Ask outside an autograd function: inside, gradients are always off."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


def is_differentiated_again() -> bool:
    """Inside a backward pass: whether its result will be differentiated (`create_graph=True`)."""
    return torch.is_grad_enabled()


def gradients_of_plain(
    plain: Callable[..., Any], inputs: tuple[Tensor | None, ...], grads: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """The gradients that plain torch gives, as a part of the graph.

    Args:
        plain: The function that the kernel replaces.
        inputs: Its tensors, as saved by the forward pass.
        grads: Gradients of its outputs; None for an output without one.

    Returns:
        The gradient of each input; None for one that needs none.
    """
    with torch.enable_grad():
        # separate views: if one input was computed from another, the gradient must not reach that one through the first
        inputs = tuple(None if x is None else x.view_as(x) for x in inputs)
        outputs = plain(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if grad is not None and output.requires_grad
        ]
        wanted = [x for x in inputs if x is not None and x.requires_grad]
        if not pairs or not wanted:
            return [None] * len(inputs)
        outputs, grads = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if x is not None and x.requires_grad else None for x in inputs]
