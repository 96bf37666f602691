"""What all models of exported graphs share."""

from typing import TYPE_CHECKING, Any

from zoo.runtime.graphs import Exported
from zoo.verbs.base import Verbs, wrong_verb


class GraphModel(Verbs):
    """A model whose computations are exported graphs.

    Args:
        exported: the opened folder.

    Attributes:
        about: content of onnx.json.
    """

    def __init__(self, exported: Exported) -> None:
        self.about: dict[str, Any] = exported.about
        self.config = dict(exported.about["config"])

    if not TYPE_CHECKING:  # so that a misspelt name is still found

        def __getattr__(self, name: str) -> Any:
            raise wrong_verb(type(self), name) or AttributeError(f"{type(self).__name__} has no attribute {name!r}")
