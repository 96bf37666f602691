"""The interface that publishing needs; every `ZooModule` (zoo/tasks/base.py) implements it. Does not import torch."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from typing_extensions import Self

from zoo.bundles.files import Bundle


class HubTask(Protocol):
    """Its task: the name on the Hub, and a Python expression that uses it."""

    @property
    def hub(self) -> str: ...

    @property
    def example(self) -> str: ...


class Model(Protocol):
    """A model that is saved as a folder, and computes a golden output."""

    config: dict[str, Any]

    @property
    def task(self) -> HubTask: ...

    @classmethod
    def from_pretrained(cls, source: Bundle) -> Self: ...

    def save_pretrained(self, folder: Path, *, golden: bool) -> Path: ...

    def golden(self) -> Mapping[str, Any]: ...

    def own_modules(self) -> list[str]: ...

    def parameters(self) -> Iterator[Any]: ...
