"""Captioners as graphs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.runtime.graphs import Exported
from zoo.runtime.search import SearchResult
from zoo.runtime.searching import GIVEN, SearchingModel
from zoo.verbs.captioning import MAX_WORDS, Captioner


class GraphCaptioner(Captioner, SearchingModel):
    """A captioner as graphs."""

    def __init__(self, exported: Exported) -> None:
        super().__init__(exported)
        self.cells = self._step.shapes.get(GIVEN, [0])[-1]

    def hypotheses(self, pixels: Sequence[np.ndarray], beam_size: int, **options: Any) -> SearchResult:
        return self.find({"images": np.stack(pixels)}, max_length=MAX_WORDS, beam_size=beam_size, **options)
