"""What all models of exported graphs share."""

from typing import Any

from zoo.runtime.graphs import Exported
from zoo.verbs.base import Verbs


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
