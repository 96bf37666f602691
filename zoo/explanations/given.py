"""Attention layers with given weights: a context manager, for a copy of a model."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from zoo.layers.attention import GlobalAttention
from zoo.layers.multi_head import MultiHeadAttention
from zoo.layers.packed import segment_sum, to_padded
from zoo.models.han import ContextAttention
from zoo.models.structured_self_attention import HopAttention
from zoo.utils.replaced import replaced


def _of_positions(module: Any, inputs: tuple, weights: Tensor) -> Tensor:
    memory = inputs[1]
    return torch.matmul(weights.to(memory.values.dtype), memory.values)


def _of_hops(module: Any, inputs: tuple, weights: Tensor) -> Tensor:
    states, mask = inputs
    return torch.bmm(weights.to(states.dtype), to_padded(states, mask))


def _of_items(module: Any, inputs: tuple, weights: Tensor) -> Tensor:
    items, lengths = inputs
    return segment_sum(items, weights, lengths)


def _of_heads(module: Any, inputs: tuple, weights: Tensor) -> Tensor:
    values = inputs[2]
    return module.output((weights.to(values.dtype) @ values).transpose(1, 2).flatten(2))


# What a layer answers with given weights: its result; a layer's own answer is that and its weights.
ANSWERS: dict[type[nn.Module], Callable[[Any, tuple, Tensor], Tensor]] = {
    GlobalAttention: _of_positions,
    HopAttention: _of_hops,
    ContextAttention: _of_items,
    MultiHeadAttention: _of_heads,
}


def attention_layers(model: nn.Module) -> list[nn.Module]:
    """The attention layers of a model whose weights can be given.

    Raises:
        ValueError: it has none, or one answers with more than a sum by its weights.
    """
    found = [module for module in model.modules() if isinstance(module, tuple(ANSWERS))]
    if not found:
        names = ", ".join(kind.__name__ for kind in ANSWERS)
        raise ValueError(f"{type(model).__name__} has no attention layer whose weights can be replaced ({names})")
    for module in found:
        kind = _kind(module)
        if type(module).forward is not kind.forward:
            raise ValueError(
                f"{type(module).__name__} has its own `forward`, so what it would answer with given weights is not "
                f"known: keep that of {kind.__name__}, and change its score or its `weights`"
            )
    return found


def _kind(layer: nn.Module) -> type[nn.Module]:
    return next(kind for kind in ANSWERS if isinstance(layer, kind))


@contextmanager
def given_attention(layers: list[nn.Module], give: Callable[[], Tensor]) -> Iterator[None]:
    """Context: each call of an attention layer uses the next weights that are given; its own are not computed."""

    def forward(answer: Callable[..., Tensor], layer: nn.Module, *inputs: Any, **options: Any) -> tuple[Tensor, Tensor]:
        weights = give()
        return answer(layer, inputs, weights), weights

    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(replaced(layer, "forward", partial(forward, ANSWERS[_kind(layer)], layer)))
            if isinstance(layer, GlobalAttention):  # keys are for its own weights only
                stack.enter_context(replaced(layer.score, "project", lambda memory: memory))
        yield
