"""The precision that suits a device for training."""

import torch

from zoo.tasks.precision import lacks_bf16

_BF16 = ("bf16", "bf16-mixed")


def device_type(accelerator: object) -> str:
    """The device type that the trainer setting `accelerator` selects, e.g. "cpu"."""
    from lightning.pytorch.accelerators import MPSAccelerator  # late: `zoo predict` needs the other functions only

    if accelerator in ("auto", "gpu", None):
        return "cuda" if torch.cuda.is_available() else "mps" if MPSAccelerator.is_available() else "cpu"
    return str(accelerator)


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
    return "32-true", f"computing in 32-true instead of the recipe's {precision}: {why}"
