"""Multi-head attention (Vaswani et al. 2017, section 3.2.2).

Shapes: B batch, N queries, M keys, D model, H heads, d_k size of a key.
"""

import torch
from torch import Tensor, nn

from zoo.layers.attention import check_heads_mask, dot_product_attention, replaced
from zoo.layers.checks import check_shape
from zoo.layers.dropout import Dropout
from zoo.layers.kernels import is_as_written, methods_of
from zoo.layers.masking import masked_softmax


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (3.2.2).

    Args:
        size: D.
        num_heads: H; 1: plain scaled dot-product attention.
        key_size: d_k.
        output_projection: multiply by W^O; else the result is the concatenated heads.
        dropout: on the weights.
    """

    def __init__(self, size: int, num_heads: int, key_size: int, output_projection: bool, dropout: float):
        super().__init__()
        self.num_heads, self.dropout = num_heads, Dropout(dropout)
        self.sizes = [num_heads * key_size, size]  # of all keys and of all values
        self.query = nn.Linear(size, num_heads * key_size, bias=False)
        self.key_value = nn.Linear(size, sum(self.sizes), bias=False)
        self.output = nn.Linear(size, size, bias=False) if output_projection else nn.Identity()

    def split(self, x: Tensor) -> Tensor:
        """(B, N, H * d) -> (B, H, N, d)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, H, N, d_k) and values (B, H, N, D / H) of x (B, N, D)."""
        keys, values = self.key_value(x).split(self.sizes, dim=-1)
        return self.split(keys), self.split(values)

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Q K^T / sqrt(d_k) of Eq. 1: (B, H, N, d_k), (B, H, M, d_k) -> (B, H, N, M)."""
        return queries @ keys.transpose(-1, -2) * keys.size(-1) ** -0.5

    def _is_fusible(self) -> bool:
        """Whether torch's fused kernel computes the same: nobody has replaced the scores or the dropout."""
        own = type(self).scores is _SCORES and "scores" not in vars(self)
        return own and is_as_written(self.dropout, Dropout, _DROPOUT)

    def forward(
        self,
        x: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        show: bool = False,
        given: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from x (B, N, D) to keys (B, H, M, d_k) and values (B, H, M, D / H).

        Args:
            mask: bool (B, H, N, M), or 1 in place of any of these, True where attention may go; None: everywhere.
            causal: position n attends only to positions up to n; requires mask None.
            show: return the weights as well.
            given: weights (B, N, M) that all heads use instead of their own, see `replaced`.

        Returns:
            (B, N, D), and the weights (B, H, N, M) if `show` or `given`, else None. In training dropout acts on them
            after they are returned, as where they are not.

        Raises:
            ValueError: another shape, or numbers given that are no attention weights.
        """
        batch, heads, size = keys.size(0), self.num_heads, self.sizes[1]
        check_shape("x", x, "B, N, D", batch, None, size)
        check_shape("keys", keys, "B, H, M, d_k", batch, heads, None, self.sizes[0] // heads)
        check_shape("values", values, "B, H, M, D / H", batch, heads, keys.size(2), size // heads)
        queries, weights = self.split(self.query(x)), None
        shown = show or given is not None
        if shown or not self._is_fusible():
            check_heads_mask(mask, queries, keys, causal)
            if causal:
                mask = torch.ones(1, 1, x.size(1), keys.size(2), dtype=torch.bool, device=x.device).tril()
            elif mask is None:
                mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=x.device)
            weights = masked_softmax(self.scores(queries, keys), mask)
            weights = replaced(weights, None if given is None else given.unsqueeze(1))
            found = self.dropout(weights).to(values.dtype) @ values
        else:
            dropout = self.dropout.p if self.dropout.training else 0.0
            found = dot_product_attention(queries, keys, values, mask, dropout, causal)
        return self.output(found.transpose(1, 2).flatten(2)), weights if shown else None


_SCORES = MultiHeadAttention.scores
_DROPOUT = methods_of(Dropout, "forward")
