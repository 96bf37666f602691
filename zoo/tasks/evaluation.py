"""Eval mode without switching a mode: copies that share all tensors, and torch's usual defaults inside."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from zoo.layers.kernels import is_hooked

M = TypeVar("M", bound=nn.Module)
_COMPILED = "_orig_mod"  # the part that torch.compile(part) wraps


def without_dropout(model: M) -> M:
    """A copy in eval mode that shares parameters, buffers and all other attributes; compiled parts run uncompiled.

    Raises:
        ValueError: the `forward` of a part was replaced by a function, which may use the part itself.
    """
    copies: dict[nn.Module, nn.Module] = {}
    for name, module in model.named_modules():
        copies[module] = copied = object.__new__(type(module))
        copied.__dict__.update(module.__dict__, training=False)
        if _COMPILED in module._modules or (forward := module.__dict__.get("forward")) is None:
            continue
        # Lightning leaves the class's own there after a run on several processes, and a compiled one before one
        if getattr(forward, "__func__", None) is type(module).forward or module.__dict__.get("_compiler_ctx"):
            del copied.__dict__["forward"]
        elif module.training:
            raise ValueError(
                f"forward of {name or type(module).__name__} was replaced by a function, which would run in training "
                "mode: call eval() on the model first"
            )
    for module, copied in copies.items():
        copied.__dict__["_compiled_call_impl"] = None  # it is of the original
        children = {
            name: None if child is None else copies[_uncompiled(child)] for name, child in module._modules.items()
        }
        copied.__dict__["_modules"] = children
    return cast(M, copies[_uncompiled(model)])


def is_watched(model: nn.Module) -> bool:
    """Whether all is in eval mode already, and somebody's code meets the modules themselves: hooks, or own classes."""
    parts = list(model.modules())
    own = not type(model).__module__.startswith("zoo.")
    return (own or any(map(is_hooked, parts))) and not any(part.training for part in parts)


def _uncompiled(module: nn.Module) -> nn.Module:
    original = module._modules.get(_COMPILED)
    return module if original is None else original


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
