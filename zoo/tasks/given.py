"""Attention weights given from outside, in a search with torch.

Shapes: B inputs, K hypotheses, T first steps, S positions to attend to.
"""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from zoo.layers.search import Step
from zoo.verbs.given import NO_ATTENTION


def takes_given(step: Callable[..., Any]) -> bool:
    """Whether a model's `step` takes the weights `given` (B, K, S) that replace its own."""
    return "given" in inspect.signature(step).parameters


def following(step: Callable[..., Any]) -> Step:
    """A step whose memory is (memory, plan): it attends at step t < T as row t of the plan (B, T, S) says.

    The plan is part of the memory because a search drops the rows of finished inputs from it.

    Raises:
        ValueError: the model has no attention.
    """
    if not takes_given(step):
        raise ValueError(NO_ATTENTION)

    def planned(tokens: Tensor, state: Any, memory: Any, t: int) -> tuple[Tensor, Any, Tensor | None]:
        memory, plan = memory
        given = plan[:, t : t + 1].expand(-1, tokens.size(1), -1) if t < plan.size(1) else None
        found = step(tokens, state, memory, t, given=given)
        if found[2] is None:
            raise ValueError(NO_ATTENTION)
        return found

    return planned
