"""The precision that suits a device for training."""

import os
import platform

import torch
from lightning.pytorch.accelerators import MPSAccelerator

_BF16 = ("bf16", "bf16-mixed")


def device_type(accelerator: object) -> str:
    """The device type that the trainer setting `accelerator` selects, e.g. "cpu"."""
    if accelerator in ("auto", "gpu", None):
        return "cuda" if torch.cuda.is_available() else "mps" if MPSAccelerator.is_available() else "cpu"
    return str(accelerator)


def lacks_bf16(device: str) -> str | None:
    """Why bfloat16 is slow or missing on a device type; None if the device computes in it."""
    if device == "cuda":
        return None if torch.cuda.is_bf16_supported(including_emulation=False) else "this GPU has no bf16 arithmetic"
    if device == "mps":
        return "bf16 is not faster on Apple GPUs"
    if device == "cpu":
        return (
            None
            if _cpu_has_bf16()
            else "this processor has no bf16 instructions (AVX512-BF16, AMX or ARM BF16) that torch uses"
        )
    return None


def _cpu_has_bf16() -> bool:
    """Whether the processor has bf16 matrix instructions; else torch converts each number, slower than in fp32."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    # On x86 that function is also true for AVX-512 without bf16.
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    limited = limit not in ("", "ALL", "DEFAULT") and not any(
        name in limit for name in ("BF16", "FP16", "AMX", "AVX10")
    )
    has_instructions = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return has_instructions and not limited and torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def choose(precision: object, device: str, asked: bool) -> tuple[object, str | None]:
    """The precision to train in, and a one-line notice if there is a reason for one.

    Args:
        precision: the trainer setting.
        device: a device type, see `device_type`.
        asked: whether it was set on the command line, not only in a recipe. Then it is used as given.
    """
    why = lacks_bf16(device) if precision in _BF16 else None
    if why is None:
        return precision, None
    if asked:
        return precision, f"trainer.precision {precision} may be slow here: {why}; 32-true is usually faster"
    return "32-true", f"training in 32-true instead of the recipe's {precision}: {why}"
