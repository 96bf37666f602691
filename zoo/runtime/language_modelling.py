"""Language models as graphs.

Shapes: B texts, T words, K hypotheses, V vocabulary, L window of the attention.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zoo.runtime.base import GraphModel
from zoo.runtime.graphs import Arrays, Exported, padded
from zoo.runtime.search import SearchResult, search
from zoo.utils.continuous_cache import ContinuousCache
from zoo.verbs.language_modelling import Completer

STEPS_AT_ONCE = 64  # their log-probabilities are (B, steps, V)


class GraphLanguageModel(Completer, GraphModel):
    """A language model as a graph."""

    def __init__(self, exported: Exported) -> None:
        super().__init__(exported)
        self._graph = exported.graph("step.onnx")
        self._after: dict[str, str] = self.about["state"]  # name of each part of the state -> of the next one

    def continued(
        self, rows: Sequence[list[int]], cache: ContinuousCache | None = None, **options: Any
    ) -> tuple[SearchResult, list[np.ndarray] | None]:
        _check_no_cache(cache)
        state, seen = self._start(len(rows)), []
        for found in self._read([row[:-1] for row in rows], state):
            state = self._state(found)
            seen.append(found.get("attention"))
        last = np.array([row[-1] for row in rows])
        found = search(self._step, {n: x[:, None] for n, x in state.items()}, {"last": last}, **options)
        if found.attn_weights is None:
            return found, None
        none = np.zeros((len(rows), 0, found.attn_weights.shape[-1]), np.float32)
        weights = np.concatenate([none, *seen], 1)
        return found, [weights[n, : len(row) - 1] for n, row in enumerate(rows)]

    def total_losses(self, rows: Sequence[list[int]], cache: ContinuousCache | None = None) -> list[float]:
        _check_no_cache(cache)
        labels, lengths = padded([row[1:] for row in rows])
        real, first = np.arange(labels.shape[1]) < lengths[:, None], 0
        totals = np.zeros(len(rows))
        for found in self._read([row[:-1] for row in rows], self._start(len(rows))):
            log_probs = found["log_probs"]  # (B, T, V)
            here = slice(first, first := first + log_probs.shape[1])
            wanted = np.take_along_axis(log_probs, labels[:, here, None], -1)[..., 0]
            totals -= np.where(real[:, here], wanted, 0).sum(1, dtype=np.float64)
        return totals.tolist()

    def _start(self, batch: int) -> Arrays:
        """The state before the first word."""
        first: dict[str, dict[str, Any]] = self.about["first_state"]
        return {name: np.zeros([batch, *x["zeros"][1:]], x["type"]) for name, x in first.items()}

    def _state(self, found: Arrays) -> Arrays:
        return {name: found[after] for name, after in self._after.items()}

    def _read(self, rows: list[list[int]], state: Arrays) -> Iterator[Arrays]:
        """The outputs of the graph for rows of words, a piece at a time."""
        tokens, lengths = padded(rows)
        for first in range(0, int(lengths.max(initial=0)), STEPS_AT_ONCE):
            piece = tokens[:, first : first + STEPS_AT_ONCE]
            found = self._graph({"tokens": piece, "lengths": (lengths - first).clip(0, piece.shape[1]), **state})
            state = self._state(found)
            yield found

    def _step(
        self, tokens: np.ndarray, state: Arrays, memory: Arrays, t: int
    ) -> tuple[np.ndarray, Arrays, np.ndarray | None]:
        """A step of `zoo.runtime.search`: last words (B, K), at first the last given ones."""
        if t == 0:
            tokens = np.broadcast_to(memory["last"][:, None], tokens.shape)
        shape = tokens.shape
        flat = {name: x.reshape(-1, *x.shape[2:]) for name, x in state.items()}
        found = self._graph({"tokens": tokens.reshape(-1, 1), "lengths": np.ones(tokens.size, np.int64), **flat})
        weights = found.get("attention")
        after = {name: x.reshape(*shape, *x.shape[1:]) for name, x in self._state(found).items()}
        return found["log_probs"].reshape(*shape, -1), after, None if weights is None else weights.reshape(*shape, -1)


def _check_no_cache(cache: ContinuousCache | None) -> None:
    """Raises ValueError for a cache: its keys are readouts, which the graphs do not give."""
    if cache is not None:
        raise ValueError("exported graphs have no continuous cache; load the weights with zoo.load, or leave out cache")
