"""Translators as graphs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.runtime.graphs import Exported, padded
from zoo.runtime.search import SearchResult
from zoo.runtime.searching import SearchingModel
from zoo.text import BOS, EOS
from zoo.verbs.translation import Translator, longest_translation


class GraphTranslator(Translator, SearchingModel):
    """A translator as graphs."""

    def __init__(self, exported: Exported) -> None:
        super().__init__(exported)
        self.max_source_tokens = self.about["search"]["max_source_tokens"]

    def hypotheses(self, rows: Sequence[list[int]], beam_size: int, **options: Any) -> SearchResult:
        tokens, lengths = padded([[*row, EOS] for row in rows])
        options.setdefault("max_length", longest_translation(lengths))
        return self.find({"tokens": tokens, "lengths": lengths}, beam_size=beam_size, **options)

    def forced_attention(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> np.ndarray | None:
        tokens, lengths = padded([[*row, EOS] for row in sources])
        memory, state = self.encode({"tokens": tokens, "lengths": lengths})
        given, _ = padded([[BOS, *row] for row in targets])
        steps = []
        for t in range(given.shape[1]):
            _, state, weights = self.step(given[:, t : t + 1], state, memory, t)
            if weights is None:
                return None
            steps.append(weights)
        return np.concatenate(steps, 1)
