"""Attention through several layers: rollout and flow.

Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", https://arxiv.org/abs/2005.00928. Half of what a
layer passes on is its input (the residual connection), half is what it attends to, as the mean over its heads.

Shapes: L layers, H heads, N words.
"""

from collections import deque

import torch
from torch import Tensor


def with_residual(maps: Tensor) -> Tensor:
    """(A + I) / 2 of the mean A over the heads: (L, H, N, N) -> (L, N, N)."""
    mean = maps.mean(1)
    return (mean + torch.eye(mean.size(-1), dtype=mean.dtype)) / 2


def rollout(maps: Tensor) -> Tensor:
    """How much of each word in the last layer comes from each word of the input: (L, H, N, N) -> (N, N).

    Rows sum to 1, like those of the maps.
    """
    layers = with_residual(maps)
    found = layers[0]
    for layer in layers[1:]:
        found = layer @ found
    return found


def flow(maps: Tensor, top: Tensor) -> Tensor:
    """Maximum flow to each word of the input from a reader of the last layer, with sum 1.

    The weights are the capacities of the edges between neighbouring layers.

    Args:
        maps: (L, H, N, N).
        top: (N,) attention of the reader to the words of the last layer.
    """
    layers = with_residual(maps).tolist()
    size, depth = maps.size(-1), len(layers)
    capacities = {
        ((number + 1, upper), (number, lower)): layer[upper][lower]
        for number, layer in enumerate(layers)
        for upper in range(size)
        for lower in range(size)
    }
    reader = (depth + 1, 0)
    capacities |= {(reader, (depth, word)): weight for word, weight in enumerate(top.tolist())}
    found = torch.tensor([max_flow(capacities, reader, (0, word)) for word in range(size)])
    return found / found.sum()


Node = tuple[int, int]


def max_flow(capacities: dict[tuple[Node, Node], float], source: Node, sink: Node) -> float:
    """The maximum flow of a network, by shortest augmenting paths (Edmonds and Karp 1972).

    Args:
        capacities: of each directed edge.
        source: where the flow begins.
        sink: where it ends.
    """
    left: dict[Node, dict[Node, float]] = {}
    for (begin, end), capacity in capacities.items():
        left.setdefault(begin, {})[end] = capacity
        left.setdefault(end, {}).setdefault(begin, 0.0)
    total = 0.0
    while path := _shortest_path(left, source, sink):
        least = min(left[begin][end] for begin, end in path)
        for begin, end in path:
            left[begin][end] -= least
            left[end][begin] += least
        total += least
    return total


def _shortest_path(left: dict[Node, dict[Node, float]], source: Node, sink: Node) -> list[tuple[Node, Node]]:
    """Edges of a shortest path with capacity left; none if there is none."""
    before, queue = {source: source}, deque([source])
    while queue and sink not in before:
        node = queue.popleft()
        for end, capacity in left.get(node, {}).items():
            if capacity > 1e-9 and end not in before:
                before[end] = node
                queue.append(end)
    if sink not in before:
        return []
    path, node = [], sink
    while node != source:
        path.append((before[node], node))
        node = before[node]
    return path[::-1]
