"""Models that search with an encoder, run once per input, and one decoder step: translators and captioners."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zoo.runtime.base import GraphModel
from zoo.runtime.graphs import Arrays, Exported
from zoo.runtime.search import SearchResult, search
from zoo.text import BOS, PAD, UNK
from zoo.verbs.given import NO_ATTENTION

ENCODER, STEP = "encoder.onnx", "step.onnx"
STRETCH = 1.25  # of lengths that an encoder reads together
GIVEN = "given_attention"  # input of a step: weights to use instead of the model's own, where they are not all zero


class SearchingModel(GraphModel):
    """encoder.onnx and step.onnx."""

    def __init__(self, exported: Exported) -> None:
        super().__init__(exported)
        self._encoder, self._step = exported.graph(ENCODER), exported.graph(STEP)
        self._alone: bool = ENCODER in self.about.get("one_at_a_time", ())  # read inputs one at a time
        self._after: dict[str, str] = self.about["state"]  # name of each part of the state -> of the next one
        self._never: list[int] = self.about["search"]["never"]

    def encode(self, inputs: Arrays) -> tuple[Arrays, Arrays]:
        """Memory, and the state of one hypothesis for each input."""
        found = self._by_length(inputs) if "lengths" in inputs else self._encoder(inputs)
        state = {name: found.pop(name) for name in self._after}
        if GIVEN in self._step.inputs:
            batch, length = len(next(iter(state.values()))), self._step.shapes[GIVEN][-1]
            length = inputs["tokens"].shape[1] if isinstance(length, str) else length  # an image has a fixed number
            found[GIVEN] = np.zeros((batch, 0, length), np.float32)  # (B, T, S): for no step
        return found, state

    def _by_length(self, inputs: Arrays) -> Arrays:
        """Outputs of the encoder, which reads texts of similar length together: it computes padding like text."""
        tokens, lengths = inputs["tokens"], inputs["lengths"]
        parts = [
            self._encoder({"tokens": tokens[rows, : lengths[rows].max()], "lengths": lengths[rows]})
            for rows in _similar(lengths.tolist(), 1 if self._alone else len(lengths))
        ]
        return parts[0] if len(parts) == 1 else {name: _stacked([part[name] for part in parts]) for name in parts[0]}

    def step(
        self, tokens: np.ndarray, state: Arrays, memory: Arrays, t: int
    ) -> tuple[np.ndarray, Arrays, np.ndarray | None]:
        """A step of `zoo.runtime.search`."""
        values = {"tokens": tokens, "position": np.array(t), **memory, **state}
        if (plan := memory.get(GIVEN)) is not None:
            values[GIVEN] = _row(plan, tokens.shape[1], t)
        found = self._step(values)
        return found["log_probs"], {name: found[after] for name, after in self._after.items()}, found.get("attention")

    def find(
        self,
        inputs: Arrays,
        max_length: int | np.ndarray,
        length_penalty: float | None = None,
        allow_unk: bool = False,
        given: np.ndarray | None = None,
        **options: Any,
    ) -> SearchResult:
        """Searches; options as in the verbs, `given` as in their `hypotheses`."""
        memory, state = self.encode(inputs)
        if given is not None:
            if GIVEN not in memory:
                raise ValueError(NO_ATTENTION)
            memory[GIVEN] = given
        allowed: Sequence[int] = (BOS, PAD, UNK) if allow_unk else (BOS, PAD)
        return search(
            self.step,
            state,
            memory,
            max_length=max_length,
            forbid=[token for token in self._never if token not in allowed],
            length_penalty=self.config["length_penalty"] if length_penalty is None else length_penalty,
            **options,
        )


def _similar(lengths: list[int], most: int) -> Iterator[slice]:
    """Successive rows, at most `most`, the longest of which has at most STRETCH times the length of the shortest."""
    first, shortest, longest = 0, lengths[0], lengths[0]
    for n, length in enumerate(lengths):
        shortest, longest = min(shortest, length), max(longest, length)
        if n - first == most or longest > STRETCH * shortest:
            yield slice(first, n)
            first, shortest, longest = n, length, length
    yield slice(first, len(lengths))


def _stacked(parts: list[np.ndarray]) -> np.ndarray:
    """Arrays (B, ...) of several sizes -> (sum of B, ...) of the largest size of each axis, zeros after their ends."""
    out = np.zeros((sum(map(len, parts)), *np.max([part.shape[1:] for part in parts], axis=0)), parts[0].dtype)
    first = 0
    for part in parts:
        out[(slice(first, first + len(part)), *map(slice, part.shape[1:]))] = part
        first += len(part)
    return out


def _row(plan: np.ndarray, width: int, t: int) -> np.ndarray:
    """The weights (B, K, S) given for step t by a plan (B, T, S), zeros after its end."""
    if t < plan.shape[1]:
        return plan[:, t : t + 1].repeat(width, axis=1)
    return np.zeros((len(plan), width, plan.shape[2]), np.float32)
