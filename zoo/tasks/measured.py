"""What was measured of a model's weights, and is true of them alone: it is gone once they have other values."""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from zoo.verbs.base import Verbs
from zoo.verbs.confidence import Calibration

SAMPLES = 8  # values of each parameter that are looked at each time
_constant: ContextVar[tuple[nn.Module, ...]] = ContextVar("constant", default=())  # models whose weights do not change


class Weights:
    """Remembers the values of a model's parameters.

    The check sums of all values take some milliseconds. So they are computed again only if a parameter is another
    tensor, was written to, or has other values at a few places: a fused optimiser and `p.data` leave no other trace.
    """

    def __init__(self, model: nn.Module) -> None:
        self._sums = check_sums(dict(model.named_parameters()))
        self._look(model)

    def unchanged(self, model: nn.Module) -> bool:
        """Whether the parameters have the values that they had, wherever and in whatever copy they are."""
        if self._seen == _versions(model) and torch.equal(_values(self._views), self._samples):
            return True
        if self._sums != check_sums(dict(model.named_parameters())):
            return False
        self._look(model)
        return True

    def _look(self, model: nn.Module) -> None:
        """Takes notes that are cheap to compare."""
        self._seen = _versions(model)
        parameters = [p.detach().flatten() for p in model.parameters()]
        self._views = [p[:: max(1, len(p) // SAMPLES)] for p in parameters]
        self._samples = _values(self._views).clone()

    def __getstate__(self) -> dict[str, Any]:
        """For copies, whose parameters are other tensors."""
        return {"_sums": self._sums, "_seen": None}


def check_sums(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Name -> check sum of the values in single precision, whatever the dtype and device."""
    values = {name: t.detach().float().cpu().contiguous().numpy() for name, t in tensors.items() if not t.is_meta}
    return {name: zlib.crc32(array.data) for name, array in values.items()}


def _versions(model: nn.Module) -> dict[str, tuple[int, int, int | None]]:
    """Name -> which tensor a parameter is, where its values are, and how often they were written; not by every way."""
    return {
        name: (id(p), p.data_ptr(), None if p.is_inference() else p._version) for name, p in model.named_parameters()
    }


def _values(views: list[Tensor]) -> Tensor:
    """The values of some tensors as one."""
    return torch.cat([view.to(views[0].device) for view in views])


class Measured(nn.Module, Verbs):
    """Gives a model the attributes of `Verbs` that were measured of its weights: None once these have changed."""

    _calibration: Calibration | None = None
    _explains: str | None = None
    _weights: Weights | None = None  # those measured

    @property
    def calibration(self) -> Calibration | None:
        """How confidence follows from evidence, for these weights; None if it was not measured."""
        self.forget_if_changed()
        return self._calibration

    @calibration.setter
    def calibration(self, found: Calibration | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._remember_weights(found)
        self._calibration = found

    @property
    def explains(self) -> str | None:
        """Whether the attention of these weights explains their answers; None if it was not measured."""
        self.forget_if_changed()
        return self._explains

    @explains.setter
    def explains(self, found: str | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._remember_weights(found)
        self._explains = found

    def forget_if_changed(self) -> None:
        """Forgets what was measured if the weights have other values now."""
        if any(model is self for model in _constant.get()):
            return
        if self._weights is not None and not self._weights.unchanged(self):
            self._calibration = self._explains = self._weights = None

    def _remember_weights(self, found: Any) -> None:
        self.forget_if_changed()
        if found is not None and self._weights is None:
            self._weights = Weights(self)


@contextmanager
def constant(model: Measured) -> Iterator[None]:
    """Context in which, for this thread, a model's weights do not change, so that they are not compared again."""
    token = _constant.set((*_constant.get(), model))
    try:
        yield
    finally:
        _constant.reset(token)
