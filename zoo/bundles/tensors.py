"""The tensors of a file of weights, in the safetensors format, read without trusting it.

A weight may be stored in 8 bits: whole numbers from -127 to 127 (`NAME`, int8) and a scale for each row (`NAME.scale`,
fp32); the weight is their product.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, deserialize
from torch import Tensor

from zoo.bundles.files import DamagedError

MAX_HEADER_BYTES = 2**20  # of a file
SCALE = ".scale"  # ends the name of the scales of a weight in 8 bits
LARGEST = 127  # of a weight in 8 bits
LEAST_ROW = 16  # elements of a row that is worth a scale

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "BOOL": torch.bool,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
}  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its shape, its dtype code and its bytes, and the scales of its rows if it is in 8 bits."""

    shape: tuple[int, ...]
    code: str
    data: bytearray
    scale: "Stored | None" = None

    @property
    def dtype(self) -> torch.dtype | str:
        """The dtype that it has once it is read, or its code if models may not have it."""
        return torch.float32 if self.scale else _DTYPES.get(self.code, self.code)

    def tensor(self) -> Tensor:
        """The tensor itself; not in 8 bits, it shares the memory of `data`.

        Raises:
            ValueError: Models may not have its dtype.
        """
        dtype = _DTYPES.get(self.code)
        if dtype is None:
            raise ValueError(f"dtype {self.code} is not supported")
        if not self.data:
            return torch.empty(self.shape, dtype=dtype)
        found = torch.frombuffer(self.data, dtype=dtype).view(self.shape)
        return found if self.scale is None else scaled(found, self.scale.tensor())


def parse(content: bytes, path: Path) -> dict[str, Stored]:
    """The tensors of a file of the safetensors format.

    Args:
        content: Content of the file.
        path: Its name, for messages.

    Raises:
        DamagedError: It is not such a file, or its header is too large.
    """
    if int.from_bytes(content[:8], "little") > MAX_HEADER_BYTES:
        raise DamagedError(f"{path} is damaged: its header would be larger than {MAX_HEADER_BYTES >> 20} MB")
    try:
        found = deserialize(content)
    except SafetensorError as error:
        raise DamagedError(f"{path} is damaged: {one_line(error)}") from error
    stored = {name: Stored(tuple(about["shape"]), str(about["dtype"]), about["data"]) for name, about in found}
    for name, part in [*stored.items()]:
        scale = stored.get(name + SCALE)
        if part.code == "I8" and scale and scale.code == "F32" and scale.shape == part.shape[:1]:
            stored[name] = Stored(part.shape, part.code, part.data, stored.pop(name + SCALE))
    return stored


def in_8_bits(name: str, t: Tensor) -> dict[str, Tensor]:
    """A weight in 8 bits and its scales, which are the largest absolute value of each row over 127.

    Args:
        name: Its name in the file.
        t: The weight, (R, ...).

    Returns:
        The tensors of the file; a vector, or a weight of short rows, in fp16, and whole numbers as they are.
    """
    if not t.is_floating_point():
        return {name: t.contiguous()}
    if t.ndim < 2 or t[0].numel() < LEAST_ROW:
        return {name: t.to(torch.float16).contiguous()}
    rows = t.float().reshape(len(t), -1)
    scale = rows.abs().amax(1) / LARGEST
    whole = (rows / scale.clamp_min(torch.finfo(torch.float32).tiny).unsqueeze(1)).round()
    return {name: whole.to(torch.int8).view(t.shape).contiguous(), name + SCALE: scale.contiguous()}


def differs_in_8_bits(name: str, t: Tensor) -> bool:
    """Whether a weight has other values in 8 bits; not if it was read from 8 bits."""
    parts = in_8_bits(name, t)
    again = scaled(parts[name], parts[name + SCALE]) if name + SCALE in parts else parts[name].to(t.dtype)
    return not torch.allclose(again, t, rtol=1e-6, atol=0)


def scaled(whole: Tensor, scale: Tensor) -> Tensor:
    """The weight of whole numbers (R, ...) and the scales (R,) of their rows."""
    return whole * scale.view(-1, *[1] * (whole.ndim - 1))


def one_line(error: BaseException) -> str:
    """At most 300 printable characters; a library may quote the file, and with it terminal control characters."""
    text = " ".join(str(error).split())[:300] or type(error).__name__
    return "".join(c if c.isprintable() else "?" for c in text)
