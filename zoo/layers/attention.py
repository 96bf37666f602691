"""Attention = a score, a choice of positions (global or a local window), a normalisation of the scores to weights
(softmax or sparsemax), and a weighted mean of the values.

Shapes: B batch, T queries, S memory positions, H query size, M memory size, K key size.
"""

from typing import NamedTuple, TypedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from zoo.layers.checks import check_given, check_mask, check_prefix, check_scores_mask, check_shape
from zoo.layers.kernels import as_weight, wide
from zoo.layers.masking import masked_softmax, masked_sparsemax
from zoo.layers.scores import SCORES
from zoo.utils.numbers_given import check_at_least
from zoo.utils.unpack import Unpack

NORMALIZATIONS = {"softmax": masked_softmax, "sparsemax": masked_sparsemax}


class AttentionMemory(NamedTuple):
    """A memory prepared for attention: computed once per sentence and never stored on a module."""

    keys: Tensor  # (B, S, K) projected by the score
    values: Tensor  # (B, S, M)
    mask: Tensor  # (B, S) bool, True where attention may go
    gate: Tensor  # (B, S) float, factor on the normalised weights (1 except for local_p_star)
    lengths: Tensor  # (B,) real positions


class AttentionOptions(TypedDict, total=False):
    """Keywords of `GlobalAttention`."""

    score: str
    attention_size: int | None
    max_length: int | None
    window: int
    renormalize: bool
    normalize: str


class GlobalAttention(nn.Module):
    """Attention over all real positions (Luong et al. 2015, section 3.1; with score "concat" Bahdanau et al. 2015).

    Args:
        query_size: H.
        memory_size: M.
        score: one of SCORES: "dot", "scaled_dot", "general", "concat", "location", "uniform".
        attention_size: K of score "concat"; the query size if not given.
        max_length: L_max of score "location"; 100 if not given.
        window: D of the local variants.
        renormalize: local_p variants: divide the weights by their sum after the Gaussian or the gate (off in the
            paper).
        normalize: one of NORMALIZATIONS: "softmax", "sparsemax".

    Raises:
        ValueError: a name that does not exist, a number below 1, or sizes that the score cannot compare.
    """

    def __init__(
        self,
        query_size: int,
        memory_size: int,
        score: str = "general",
        attention_size: int | None = None,
        max_length: int | None = None,
        window: int = 10,
        renormalize: bool = False,
        normalize: str = "softmax",
    ):
        super().__init__()
        if score not in SCORES:
            raise ValueError(f"score must be one of {', '.join(map(repr, SCORES))}; got {score!r}")
        if normalize not in NORMALIZATIONS:
            raise ValueError(f"normalize must be one of {', '.join(map(repr, NORMALIZATIONS))}; got {normalize!r}")
        check_at_least(window=(window, 1), attention_size=(attention_size, 1), max_length=(max_length, 1))
        self.score = SCORES[score](query_size, memory_size, attention_size, max_length)
        self.query_size, self.memory_size = query_size, memory_size
        self.window, self.renormalize = window, renormalize
        self.normalize = NORMALIZATIONS[normalize]

    def project(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        """memory (B, S, M), mask (B, S) bool, True = real.

        Raises:
            ValueError: another shape or type.
        """
        check_shape("memory", memory, "B, S, M", None, None, self.memory_size)
        check_mask("mask", mask, "B, S", *memory.shape[:2])
        return AttentionMemory(self.score.project(memory), memory, mask, mask.to(wide(memory[:0]).dtype), mask.sum(-1))

    def forward(
        self,
        query: Tensor,
        memory: AttentionMemory,
        position: Tensor | int | None = None,
        given: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend with all queries at once.

        Args:
            query: (B, T, H).
            memory: from `project`.
            position: target position of the queries: (T,) int, an int that all have, or None for 0 ... T - 1, a whole
                target; read by local_m only. A decoder that calls with one query a step must say at which it is.
            given: (B, T, S) weights to use instead of the computed ones, see `replaced`.

        Returns:
            context (B, T, M) and weights (B, T, S), fp32 at least.

        Raises:
            ValueError: another shape, or numbers given that are no attention weights.
        """
        check_shape("query", query, "B, T, H", memory.mask.size(0), None, self.query_size)
        if isinstance(position, Tensor) and position.dim():
            check_shape("position", position, "T", query.size(1))
        query = as_weight(query, memory.values)
        weights = self.weights(wide(self.score(query, memory.keys)), query, memory, position)
        weights = replaced(weights, given)
        return torch.matmul(weights.to(memory.values.dtype), memory.values), weights

    def weights(self, scores: Tensor, query: Tensor, memory: AttentionMemory, position: Tensor | int | None) -> Tensor:
        """Scores (B, T, S), fp32 at least -> weights (B, T, S)."""
        return self.normalize(scores, memory.mask.unsqueeze(1))


class LocalMonotonicAttention(GlobalAttention):
    """local-m: a window of D positions on either side of p_t = t (Luong et al. 2015, section 3.2).

    A target longer than the source keeps looking at the last source position, as in the authors' code.
    """

    def project(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        """As in GlobalAttention; `mask` is True on the first positions of each row, from which a window counts."""
        found = super().project(memory, mask)
        check_prefix(mask)
        return found

    def weights(self, scores: Tensor, query: Tensor, memory: AttentionMemory, position: Tensor | int | None) -> Tensor:
        last = (memory.lengths - 1).clamp(min=0).reshape(-1, 1, 1)
        if position is None:
            position = torch.arange(scores.size(1), device=scores.device)
        if isinstance(position, Tensor):
            centre = torch.minimum(position.reshape(1, -1, 1), last)  # (B, T, 1)
        else:
            centre = last.clamp(max=position)
        return self.normalize(scores, self._window(centre, scores) & memory.mask.unsqueeze(1))

    def _window(self, centre: Tensor, scores: Tensor) -> Tensor:
        s = torch.arange(scores.size(-1), device=scores.device)
        return (s - centre).abs() <= self.window  # (B, T, S)


class LocalPredictiveAttention(LocalMonotonicAttention):
    """local-p: softmax over a window around a predicted position p_t, times a Gaussian (Luong et al. 2015, Eq. 9-10).

    p_t = S sigmoid(v_p^T tanh(W_p h_t)); the weights are softmax_window(score) exp(-(s - p_t)^2 / (2 sigma^2)) with
    sigma = D / 2. S is the true length of the sentence; the window is centred at floor(p_t).
    """

    def __init__(self, query_size: int, memory_size: int, **options: Unpack[AttentionOptions]):
        super().__init__(query_size, memory_size, **options)
        self.w_p = nn.Linear(query_size, query_size, bias=False)
        self.v_p = nn.Linear(query_size, 1, bias=False)

    def aligned_position(self, query: Tensor, memory: AttentionMemory) -> Tensor:
        """p_t for each query: (B, T, H) -> (B, T), real numbers in (0, length)."""
        return torch.sigmoid(wide(self.v_p(torch.tanh(self.w_p(query))).squeeze(-1))) * memory.lengths.unsqueeze(-1)

    def weights(self, scores: Tensor, query: Tensor, memory: AttentionMemory, position: Tensor | int | None) -> Tensor:
        p = self.aligned_position(query, memory).unsqueeze(-1)  # (B, T, 1)
        align = self.normalize(scores, self._window(p.detach().floor(), scores) & memory.mask.unsqueeze(1))
        s = torch.arange(scores.size(-1), device=scores.device)
        weights = align * torch.exp((s - p) ** 2 * (-2 / self.window**2))  # 1 / (2 sigma^2) = 2 / D^2
        return _normalized(weights) if self.renormalize else weights


class LocalPredictiveFullAttention(LocalPredictiveAttention):
    """local-p without truncation: softmax over all real positions, times the same Gaussian around p_t.

    Only the Gaussian makes it local (Luong et al. 2015, Eq. 10, taken alone; ongunuzaymacar/attention-mechanisms).
    """

    def _window(self, centre: Tensor, scores: Tensor) -> Tensor:
        return torch.ones_like(scores, dtype=torch.bool)


class LocalPredictiveStarAttention(GlobalAttention):
    """local-p*: gated attention to the D best real positions, softmax_D(score) p_s.

    Each source position predicts how relevant it is, p_s = sigmoid(v_p^T tanh(W_p h_s)). Only the gate trains W_p and
    v_p. A corrected form of the layer of that name in ongunuzaymacar/attention-mechanisms. With D >= S it is gated
    global attention.
    """

    def __init__(self, query_size: int, memory_size: int, **options: Unpack[AttentionOptions]):
        super().__init__(query_size, memory_size, **options)
        self.w_p = nn.Linear(memory_size, memory_size, bias=False)
        self.v_p = nn.Linear(memory_size, 1, bias=False)

    def project(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        check_shape("memory", memory, "B, S, M", None, None, self.memory_size)
        check_mask("mask", mask, "B, S", *memory.shape[:2])
        gate = torch.sigmoid(wide(self.v_p(torch.tanh(self.w_p(memory))).squeeze(-1))) * mask  # (B, S)
        rank = gate.argsort(dim=-1, descending=True, stable=True).argsort(-1)  # of each position, the best first
        return super().project(memory, mask & (rank < self.window))._replace(gate=gate)

    def weights(self, scores: Tensor, query: Tensor, memory: AttentionMemory, position: Tensor | int | None) -> Tensor:
        weights = self.normalize(scores, memory.mask.unsqueeze(1)) * memory.gate.unsqueeze(1)
        return _normalized(weights) if self.renormalize else weights


class NoAttention(nn.Module):
    """In place of an attention where there is none: the context has no numbers, (B, T, 0), and all weights are 0."""

    def project(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        return AttentionMemory(memory, memory[..., :0], mask, mask.to(wide(memory[:0]).dtype), mask.sum(-1))

    def forward(
        self,
        query: Tensor,
        memory: AttentionMemory,
        position: Tensor | int | None = None,
        given: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        check_shape("query", query, "B, T, H", memory.mask.size(0), None, None)
        weights = memory.gate.new_zeros(query.size(0), query.size(1), memory.mask.size(1))
        return query[..., :0], weights


def _normalized(weights: Tensor) -> Tensor:
    total = weights.sum(-1, keepdim=True)
    # a row of zeros stays zero, with gradient 0
    return weights / total.where(total > torch.finfo(weights.dtype).tiny, 1)


ATTENTIONS = {
    "global": GlobalAttention,
    "local_m": LocalMonotonicAttention,
    "local_p": LocalPredictiveAttention,
    "local_p_full": LocalPredictiveFullAttention,
    "local_p_star": LocalPredictiveStarAttention,
}


def make_attention(
    attention: str, query_size: int, memory_size: int, **options: Unpack[AttentionOptions]
) -> GlobalAttention:
    """One of ATTENTIONS by name; `options` as in GlobalAttention.

    Raises:
        ValueError: unknown attention, or location scores outside global attention.
    """
    if attention not in ATTENTIONS:
        raise ValueError(f"attention must be one of {', '.join(map(repr, ATTENTIONS))}; got {attention!r}")
    if options.get("score") == "location" and attention != "global":
        raise ValueError(f"score 'location' works only with attention 'global'; got attention {attention!r}")
    return ATTENTIONS[attention](query_size, memory_size, **options)


def replaced(weights: Tensor, given: Tensor | None) -> Tensor:
    """Attention weights, some of them chosen from outside: an intervention ("what if it had looked there?").

    Args:
        weights: (..., S) as computed.
        given: of their shape, or 1 in place of any dimension but the last. Rows are at least 0 and sum to 1, or less if
            a part of the attention is to be missing; a row of zeros leaves the computed weights. None: no row is given.

    Raises:
        ValueError: weights that these cannot be; numbers are looked at on a CPU only.
    """
    if given is None:
        return weights
    check_given(given, weights)
    return torch.where(given.sum(-1, keepdim=True) > 0, given.to(weights.dtype), weights)


def check_heads_mask(mask: Tensor | None, queries: Tensor, keys: Tensor, causal: bool) -> None:
    """Raises ValueError for a mask that multi-head attention cannot use: arguments as in `dot_product_attention`."""
    if mask is None:
        return
    if causal:
        raise ValueError("causal attention has its own mask: give None, or a mask that is also causal without `causal`")
    check_scores_mask(mask, (*queries.shape[:3], keys.size(2)))


def dot_product_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, dropout: float, causal: bool
) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V (Vaswani et al. 2017, Eq. 1), computed by torch's fused kernel.

    On a CPU it computes in at least fp32, because the backward pass of the bf16 kernel takes ten times as long.

    Args:
        queries: (B, H, N, d).
        keys: (B, H, M, d).
        values: (B, H, M, d).
        mask: Bool, broadcastable to (B, H, N, M), True where attention may go; None: everywhere.
        dropout: On the weights.
        causal: Position n attends only to positions up to n; requires mask None.

    Returns:
        (B, H, N, d).

    Raises:
        ValueError: a mask of another type or shape, or beside `causal`.
    """
    check_heads_mask(mask, queries, keys, causal)
    if queries.is_cuda:
        return scaled_dot_product_attention(queries, keys, values, mask, dropout, causal)
    with torch.autocast(queries.device.type, enabled=False):
        found = scaled_dot_product_attention(wide(queries), wide(keys), wide(values), mask, dropout, causal)
    return found.to(values.dtype)
