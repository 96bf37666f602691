"""Faster stand-ins for parts of the plain layers, for training on a CPU.

Every layer of this package is written in plain torch first, and that form is the reference. A kernel may take its place
for a call only if `usable` says so: in eager mode, on a CPU, without function transforms. It keeps parameter names and
hooks and gives the same numbers to rounding. A backward pass that is differentiated itself (`create_graph=True`) runs
the plain form.

`with plain():` or the environment variable ZOO_PLAIN=1 switches all kernels off. docs/kernels.md says what each one is;
benchmarks/kernels.py measures it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as global_hooks

_off: ContextVar[frozenset[str]] = ContextVar("switched_off", default=frozenset())

# Names of the kernels, as `plain` takes them.
KERNELS = ("recurrence", "dropout")


@contextmanager
def plain(*names: str) -> Iterator[None]:
    """Switches kernels off inside: those named, or all.

    Raises:
        ValueError: There is no kernel of a name.
    """
    if unknown := set(names) - set(KERNELS):
        raise ValueError(f"kernels are {', '.join(KERNELS)}; got {', '.join(sorted(unknown))}")
    token = _off.set(_off.get() | frozenset(names or KERNELS))
    try:
        yield
    finally:
        _off.reset(token)


def usable(name: str, *tensors: Tensor | None) -> bool:
    """Whether the kernel of this name may stand in for plain torch in a call with these tensors."""
    if torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export():
        return False
    if torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]  # public, but torch does not list it
        return False
    if name in _off.get() or os.environ.get("ZOO_PLAIN", "0") not in ("", "0"):
        return False
    if is_transformed():
        return False
    return all(t is None or (type(t) in (Tensor, nn.Parameter) and t.device.type == "cpu") for t in tensors)


def is_transformed() -> bool:
    """Whether a transform of torch.func, or forward-mode differentiation, is at work."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_hooked(module: nn.Module) -> bool:
    """Whether somebody listens to the calls of this module, so that it must really be called."""
    own = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    everywhere = (global_hooks._global_forward_hooks, global_hooks._global_forward_pre_hooks)
    backward = (global_hooks._global_backward_hooks, global_hooks._global_backward_pre_hooks)
    return any(own) or any(everywhere) or any(backward)


def wide(x: Tensor) -> Tensor:
    """x in fp32, or in float64 if it is that already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def product_dtype(weight: Tensor) -> torch.dtype:
    """Precision of products with this weight: autocast's where it is on, else the weight's own."""
    device = weight.device.type
    if torch.is_autocast_enabled(device) and weight.dtype != torch.float64:  # autocast leaves double precision alone
        return torch.get_autocast_dtype(device)
    return weight.dtype
