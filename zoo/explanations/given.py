"""Models with given attention weights or given embeddings: context managers, for a copy of a model."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from zoo.layers.attention import GlobalAttention
from zoo.layers.multi_head import MultiHeadAttention
from zoo.layers.packed import segment_sum, to_padded
from zoo.models.han import ContextAttention
from zoo.models.structured_self_attention import HopAttention

Choose = Callable[[Tensor], Tensor]  # the model's own weights -> those to use


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


# What a layer answers with given weights; a layer's own answer is its result and its weights.
RESULTS: dict[type[nn.Module], Callable[[Any, tuple, Tensor], Tensor]] = {
    GlobalAttention: _of_positions,
    HopAttention: _of_hops,
    ContextAttention: _of_items,
    MultiHeadAttention: _of_heads,
}


def attention_layers(model: nn.Module) -> list[nn.Module]:
    """The attention layers of a model whose weights can be given.

    Raises:
        ValueError: it has none.
    """
    found = [module for module in model.modules() if isinstance(module, tuple(RESULTS))]
    if not found:
        names = ", ".join(kind.__name__ for kind in RESULTS)
        raise ValueError(f"{type(model).__name__} has no attention layer whose weights can be replaced ({names})")
    return found


@contextmanager
def given_attention(layers: list[nn.Module], choose: Choose) -> Iterator[None]:
    """Context: each call of an attention layer uses the weights that `choose` makes of its own ones."""

    def replace(layer: nn.Module, inputs: tuple, found: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        weights = choose(found[1])
        if weights is found[1]:
            return found
        result = next(make for kind, make in RESULTS.items() if isinstance(layer, kind))
        return result(layer, inputs, weights), weights

    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_hook(replace).remove)
        yield
