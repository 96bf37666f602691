"""Eval mode without switching a mode: copies that share all tensors, and torch's usual defaults inside."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

M = TypeVar("M", bound=nn.Module)


def without_dropout(model: M) -> M:
    """A copy in eval mode that shares parameters, buffers and all other attributes."""
    copies: dict[nn.Module, nn.Module] = {}
    for module in model.modules():
        copies[module] = copied = object.__new__(type(module))
        copied.__dict__.update(module.__dict__, training=False)
    for copied in copies.values():
        children = {name: child if child is None else copies[child] for name, child in copied._modules.items()}
        copied.__dict__["_modules"] = children
    return cast(M, copies[model])


class _AsUsual(TorchFunctionMode):
    """Context: in this thread, new floating-point tensors are in single precision unless a dtype is given."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        found = func(*args, **(kwargs or {}))
        double = isinstance(found, Tensor) and found.dtype == torch.float64
        wanted = double and (func is Tensor.double or _asks_for_double([*args, *(kwargs or {}).values()]))
        return found.float() if double and not wanted else found


def _asks_for_double(values: Sequence[Any]) -> bool:
    return any(
        value is torch.float64
        or isinstance(value, Tensor)
        and value.dtype == torch.float64
        or isinstance(value, (list, tuple))
        and _asks_for_double(value)
        for value in values
    )


@contextmanager
def usual_defaults() -> Iterator[None]:
    """Context: torch's own defaults, float32 and the CPU, in this thread."""
    with ExitStack() as stack:
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if (dtype := torch.get_default_dtype()) not in (torch.float32, torch.float64):
            raise ValueError(
                f"torch's default dtype must be float32 or float64; got {dtype}: use torch.autocast instead"
            )
        if dtype != torch.float32:
            stack.enter_context(_AsUsual())
        yield
