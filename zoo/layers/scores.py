"""Score functions: how well does a query match each memory position?

Every score is a small module with two methods. `project(memory)` computes the part that does not depend on the query,
once per sentence; `forward(query, keys)` computes the rest, for any number of queries at once. The module stores
nothing in between.

Shapes: B batch, T queries (target steps or hypotheses), S memory positions, H query size, M memory size, K attention
size.
"""

import torch
from torch import Tensor, nn

from zoo.layers.checks import check_shape
from zoo.layers.kernels import wide
from zoo.layers.kernels.additive import fast_additive_score


class DotScore(nn.Module):
    """score(h_t, h_s) = h_t . h_s (Luong et al. 2015, section 3.1, dot)."""

    def __init__(
        self, query_size: int, memory_size: int, attention_size: int | None = None, max_length: int | None = None
    ):
        super().__init__()
        if query_size != memory_size:
            raise ValueError(
                f"score 'dot' needs query and memory of one size; got query {query_size} and memory {memory_size}. "
                "Make them equal or use score 'general' or 'concat'"
            )

    def project(self, memory: Tensor) -> Tensor:
        """Keys of the memory, in fp32 at least: (B, S, M) -> (B, S, H)."""
        return wide(memory)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores of queries (B, T, H) against keys (B, S, H) -> (B, T, S).

        Raises:
            ValueError: another shape.
        """
        _check_pair(query, keys)
        return torch.matmul(query.to(keys.dtype), keys.transpose(1, 2))


class ScaledDotScore(DotScore):
    """score(h_t, h_s) = h_t . h_s / sqrt(H) (Vaswani et al. 2017, Eq. 1)."""

    def project(self, memory: Tensor) -> Tensor:
        return wide(memory) * memory.size(-1) ** -0.5


class GeneralScore(nn.Module):
    """score(h_t, h_s) = h_t^T W_a h_s (Luong et al. 2015, section 3.1, general); W_a h_s is the key."""

    def __init__(
        self, query_size: int, memory_size: int, attention_size: int | None = None, max_length: int | None = None
    ):
        super().__init__()
        self.w_a = nn.Linear(memory_size, query_size, bias=False)

    def project(self, memory: Tensor) -> Tensor:
        return wide(self.w_a(memory))  # (B, S, H)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        _check_pair(query, keys)
        return torch.matmul(query.to(keys.dtype), keys.transpose(1, 2))  # (B, T, S)


def _check_pair(query: Tensor, keys: Tensor, compared: bool = True) -> None:
    """Raises ValueError unless query (B, T, K) and keys (B, S, K) have one B, and one K if they are `compared`."""
    check_shape("keys", keys, "B, S, K", None, None, None)
    check_shape("query", query, "B, T, K", keys.size(0), None, keys.size(2) if compared else None)


def additive_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """v^T tanh(query + key), in fp32 at least: query (B, T, K), keys (B, S, K), v (K,) -> (B, T, S).

    Raises:
        ValueError: another shape.
    """
    _check_pair(query, keys)
    if (found := fast_additive_score(query, keys, v)) is not None:  # the same without tanh, where it is faster
        return found
    hidden = torch.tanh(wide(query).unsqueeze(2) + wide(keys).unsqueeze(1))  # (B, T, S, K)
    with torch.autocast(hidden.device.type, enabled=False):
        return torch.matmul(hidden, wide(v))


class ConcatScore(nn.Module):
    """score = v^T tanh(W [h_t; h_s]) (Luong et al. 2015, section 3.1, concat).

    The same function as the additive score v^T tanh(W_a s + U_a h) of Bahdanau et al. 2015 (A.1.2), with W split in
    two.
    """

    def __init__(
        self, query_size: int, memory_size: int, attention_size: int | None = None, max_length: int | None = None
    ):
        super().__init__()
        size = attention_size or query_size
        self.w_query = nn.Linear(query_size, size, bias=False)
        self.w_memory = nn.Linear(memory_size, size, bias=False)
        self.v = nn.Parameter(torch.empty(size).uniform_(-(size**-0.5), size**-0.5))

    def project(self, memory: Tensor) -> Tensor:
        return wide(self.w_memory(memory))  # (B, S, K)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return additive_score(self.w_query(query), keys, self.v)


class LocationScore(nn.Module):
    """scores = W_a h_t, one per position, independent of the memory (Luong et al. 2015, Eq. 8).

    W_a is (L_max, H); a shorter source uses its first S rows, positions beyond L_max are ignored.
    """

    def __init__(
        self, query_size: int, memory_size: int, attention_size: int | None = None, max_length: int | None = None
    ):
        super().__init__()
        self.w_a = nn.Linear(query_size, max_length or 100, bias=False)

    def project(self, memory: Tensor) -> Tensor:
        return memory  # only its length is used

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        _check_pair(query, keys, compared=False)
        scores = self.w_a(query)  # (B, T, L_max)
        # a test of the length would be fixed in a trace
        padded = nn.functional.pad(scores, (0, keys.size(1)), value=torch.finfo(scores.dtype).min)
        return padded[..., : keys.size(1)]  # (B, T, S)


class UniformScore(nn.Module):
    """score = 0 at every position: softmax makes equal weights of it, and the context the mean of the values."""

    def __init__(
        self, query_size: int, memory_size: int, attention_size: int | None = None, max_length: int | None = None
    ):
        super().__init__()

    def project(self, memory: Tensor) -> Tensor:
        return memory  # only its length is used

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        _check_pair(query, keys, compared=False)
        return wide(query.new_zeros(query.size(0), query.size(1), keys.size(1)))  # (B, T, S)


SCORES = {
    "dot": DotScore,
    "scaled_dot": ScaledDotScore,
    "general": GeneralScore,
    "concat": ConcatScore,
    "location": LocationScore,
    "uniform": UniformScore,
}
