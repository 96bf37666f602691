"""Faster replacements for parts of the plain layers, on a CPU.

Every layer of this package is written in plain torch first, and that form is the reference. A kernel may replace it in
a call only if `usable` says so: in eager mode, on a CPU, without function transforms. It keeps parameter names and
hooks and gives the same numbers up to rounding. If a backward pass is differentiated itself (`create_graph=True`), it
runs the plain form.

`with plain():` or the environment variable ZOO_PLAIN=1 switches all kernels off. docs/kernels.md describes each;
benchmarks/kernels.py measures it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as global_hooks

_off: ContextVar[frozenset[str]] = ContextVar("switched_off", default=frozenset())

# Kernel names, as arguments of `plain`.
KERNELS = ("recurrence", "dropout", "cross_entropy", "products", "additive")


@contextmanager
def plain(*names: str) -> Iterator[None]:
    """Context in which the named kernels, or all, are switched off.

    Raises:
        ValueError: Unknown kernel name.
    """
    if unknown := set(names) - set(KERNELS):
        raise ValueError(f"kernels are {', '.join(KERNELS)}; got {', '.join(sorted(unknown))}")
    token = _off.set(_off.get() | frozenset(names or KERNELS))
    try:
        yield
    finally:
        _off.reset(token)


def usable(name: str, *tensors: Tensor | None) -> bool:
    """Whether the kernel of this name may replace plain torch in a call with these tensors."""
    # torch imports torch.onnx at its first use, which takes 0.1 s
    if torch.compiler.is_compiling() or ("torch.onnx" in sys.modules and torch.onnx.is_in_onnx_export()):
        return False
    if torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]  # public, but torch does not list it
        return False
    if name in _off.get() or os.environ.get("ZOO_PLAIN", "0") not in ("", "0"):
        return False
    if is_transformed():
        return False
    return all(t is None or (type(t) in (Tensor, nn.Parameter) and t.device.type == "cpu") for t in tensors)


def is_transformed() -> bool:
    """Whether a transform of torch.func, or forward-mode differentiation, is active."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_hooked(module: nn.Module) -> bool:
    """Whether this module has hooks, so that it must really be called."""
    own = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    everywhere = (global_hooks._global_forward_hooks, global_hooks._global_forward_pre_hooks)
    backward = (global_hooks._global_backward_hooks, global_hooks._global_backward_pre_hooks)
    return any(own) or any(everywhere) or any(backward)


def methods_of(kind: type[nn.Module], *names: str) -> dict[str, Any]:
    """The methods of a class that a kernel stands in for, for `is_as_written`; ask when the class has been written."""
    return {name: getattr(kind, name) for name in names}


def is_as_written(module: nn.Module, kind: type[nn.Module], methods: dict[str, Any]) -> bool:
    """Whether a module has no hooks, is of exactly this class, and nobody has replaced one of these methods.

    Else it must really be called.
    """
    replaced = any(name in vars(module) or getattr(kind, name) is not method for name, method in methods.items())
    return type(module) is kind and not replaced and not is_hooked(module)


def wide(x: Tensor) -> Tensor:
    """x in fp32, or unchanged if it is float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def as_weight(x: Tensor, weight: Tensor) -> Tensor:
    """x in the precision of the weight that it meets: states are wide, weights may be half. Autocast does it itself."""
    return x if torch.is_autocast_enabled(x.device.type) else x.to(weight.dtype)


def product_dtype(weight: Tensor) -> torch.dtype:
    """Precision of products with this weight: that of autocast if it is on, else the weight's own."""
    device = weight.device.type
    if torch.is_autocast_enabled(device) and weight.dtype != torch.float64:  # autocast leaves double precision alone
        return torch.get_autocast_dtype(device)
    return weight.dtype
