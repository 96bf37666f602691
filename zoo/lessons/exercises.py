"""How an answer is judged: by its results for inputs that the notebook does not show."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LONGEST = 160  # letters of an error message that a hint repeats


@dataclass(frozen=True)
class Exercise:
    """A function that a reader writes.

    Attributes:
        function: Its name in the notebook.
        cases: Gives the arguments of each call.
        reference: What the right function returns; it calls the package where it can.
        mistakes: Typical wrong functions, each after the hint that it gets.
        tolerance: Largest absolute and relative difference of floats; by default what float32 leaves.
    """

    function: str
    cases: Callable[[], Sequence[tuple[Any, ...]]]
    reference: Callable[..., Any]
    mistakes: Sequence[tuple[str, Callable[..., Any]]] = ()
    tolerance: float = 1e-6

    def judge(self, answer: Callable[..., Any]) -> str | None:
        """A hint of one line, or None if the answer is right."""
        if not callable(answer):
            return f"{self.function} must be a function; got {type(answer).__name__}"
        for arguments in self.cases():
            wanted = self.reference(*deepcopy(arguments))  # a function may write into its arguments
            try:
                found = answer(*deepcopy(arguments))
            except Exception as error:  # whatever a reader's code raises is a part of the answer
                return error_hint(error)
            if hint := difference(found, wanted, self.tolerance):
                return self._known(arguments, found, wanted) or hint
        return None

    def _known(self, arguments: tuple[Any, ...], found: Any, wanted: Any) -> str | None:
        """The hint for a typical mistake, if this is one."""
        for hint, mistake in self.mistakes:
            wrong = mistake(*deepcopy(arguments))
            if difference(wrong, wanted, self.tolerance) and difference(found, wrong, self.tolerance) is None:
                return hint
        return None


def difference(found: Any, wanted: Any, tolerance: float) -> str | None:
    """How a result differs from the right one, in one line; None if it does not."""
    if found is None:
        return "it returns nothing yet"
    if isinstance(wanted, Tensor):
        return _of_tensors(found, wanted, tolerance)
    if isinstance(wanted, tuple):
        if not isinstance(found, tuple | list) or len(found) != len(wanted):
            return f"return {len(wanted)} values, separated by commas"
        hints = [difference(one, other, tolerance) for one, other in zip(found, wanted, strict=True)]
        return next((f"value {n} of {len(hints)}: {hint}" for n, hint in enumerate(hints, 1) if hint), None)
    if isinstance(wanted, float):
        found = found.item() if isinstance(found, Tensor) and found.numel() == 1 else found
        if isinstance(found, bool) or not isinstance(found, int | float):
            return f"return a number, not {type(found).__name__}"
        return None if _close(found, wanted, tolerance) else _shortened(f"got {found:.6g} where {wanted:.6g} is right")
    if isinstance(wanted, dict) and isinstance(found, dict) and found.keys() == wanted.keys():
        hints = {key: difference(found[key], wanted[key], tolerance) for key in wanted}
        return next((_shortened(f"at {key!r}: {hint}") for key, hint in hints.items() if hint), None)
    return None if _equal(found, wanted) else _shortened(f"got {found!r} where {wanted!r} is right")


def _equal(found: Any, wanted: Any) -> bool:
    try:
        return bool(found == wanted)
    except Exception:  # arrays of several numbers are neither equal nor not, whatever class a reader takes
        return False


def _of_tensors(found: Any, wanted: Tensor, tolerance: float) -> str | None:
    if not isinstance(found, Tensor):
        return f"return a tensor, not {type(found).__name__}"
    if found.layout != torch.strided or found.device != wanted.device:
        return f"return a dense tensor on the {wanted.device.type.upper()}"
    if found.shape != wanted.shape:
        return f"the shape is {tuple(found.shape)}; it should be {tuple(wanted.shape)}"
    if (found.dtype == torch.bool) != (wanted.dtype == torch.bool):
        return f"the type is {found.dtype}; it should be {wanted.dtype}"
    found, wanted = found.detach().double(), wanted.detach().double()
    if not found.isfinite().all():
        return "there are NaN or infinite values"
    if torch.allclose(found, wanted, rtol=tolerance, atol=tolerance):
        return None
    return f"the shape is right, the values are not: they differ by up to {(found - wanted).abs().max():.3g}"


def _close(found: float, wanted: float, tolerance: float) -> bool:
    return abs(found - wanted) <= tolerance * max(1.0, abs(wanted))


def error_hint(error: Exception) -> str:
    """What a reader's code raised, on one line of at most LONGEST letters."""
    return _shortened(f"{type(error).__name__}: {error}")


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in float64, the same for the same seed and shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
