"""The precision in which verbs compute, and whether a device computes in bf16."""

import functools
import logging
import os
import platform
from contextlib import AbstractContextManager, nullcontext

import torch

from zoo.utils.cores import processor

PRECISIONS = ("fp32", "bf16")
log = logging.getLogger(__name__)


def in_precision(precision: str, device: str) -> AbstractContextManager[object]:
    """Context: products in a precision of PRECISIONS, but in fp32 on a device type where bf16 would only be slower.

    With "fp32" an autocast around it stays in force.
    """
    return torch.autocast(device, torch.bfloat16) if chosen(precision, device) == "bf16" else nullcontext()


def for_scores(precision: str, device: str) -> torch.autocast:
    """As `in_precision`, but with "fp32" an autocast around it, that of a training, is off."""
    return torch.autocast(device, torch.bfloat16, enabled=chosen(precision, device) == "bf16")


def chosen(precision: str, device: str) -> str:
    """The precision itself; instead of bf16 fp32, with a warning, where bf16 would only be slower."""
    if precision == "bf16" and (why := lacks_bf16(device)):
        _warn(f"zoo: fp32 instead of bf16: {why}")
        return "fp32"
    return precision


def check_training(precision: str) -> None:
    """Raises ValueError for a precision of Lightning's trainer in which weights are stored in half precision."""
    if precision in ("16-true", "bf16-true"):
        mixed = precision.replace("true", "mixed")
        raise ValueError(
            f"precision must not be {precision}: weights in half precision lose small updates; use {mixed}, whose "
            "products have the same precision, or 32-true"
        )


@functools.cache  # each line once
def _warn(line: str) -> None:
    log.warning(line)


@functools.cache
def widest(device: str) -> torch.dtype:
    """float64, or float32 on a device type that lacks it, such as Apple's GPUs."""
    try:
        return torch.empty(0, dtype=torch.float64, device=device).dtype
    except TypeError:
        return torch.float32


def lacks_bf16(device: str) -> str | None:
    """Why bfloat16 is slow or missing on a device type; None if the device computes in it."""
    if device == "cuda":
        return None if torch.cuda.is_bf16_supported(including_emulation=False) else "this GPU has no bf16 arithmetic"
    if device == "mps":
        return "bf16 is not faster on Apple GPUs"
    if device == "cpu" and not _cpu_has_bf16():
        if _cpu_is_from_intel() and torch.cpu._is_avx512_bf16_supported():
            return "this processor offers no AMX, and Intel's bf16 is slower than fp32 without it"
        return "this processor has no bf16 instructions (AVX512-BF16, AMX or ARM BF16) that torch uses"
    return None


def _cpu_has_bf16() -> bool:
    """Whether the processor has fast bf16 matrix instructions.

    Without any, torch converts each number, slower than in fp32. Those of AVX-512 double the speed of fp32 on an AMD
    EPYC, but halve it on an Intel Xeon, which has AMX for them; a virtual machine may hide AMX.
    """
    if platform.machine().lower() in ("arm64", "aarch64"):
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    # On x86 the function for ARM is also true for AVX-512 without bf16.
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    unlimited = limit in ("", "ALL", "DEFAULT")
    if torch.cpu._is_amx_tile_supported() and (unlimited or "AMX" in limit):
        return True
    allowed = unlimited or any(name in limit for name in ("BF16", "FP16", "AVX10"))
    return torch.cpu._is_avx512_bf16_supported() and allowed and not _cpu_is_from_intel()


def _cpu_is_from_intel() -> bool:
    return "intel" in processor().lower()
