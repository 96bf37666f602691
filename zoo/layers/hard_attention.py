"""Hard attention: one position drawn from the weights (Xu et al. 2015, section 4.1)."""

import torch
from torch import Tensor

from zoo.layers.kernels import wide


def draw(weights: Tensor) -> Tensor:
    """Multinoulli samples, one for each distribution: (..., L) -> one-hot (..., L), without a gradient."""
    cumulated = weights.detach().cumsum(-1)
    threshold = torch.rand_like(cumulated[..., :1]) * cumulated[..., -1:]
    index = torch.searchsorted(cumulated, threshold, right=True).clamp_(max=weights.size(-1) - 1)
    return one_hot(index.squeeze(-1), cumulated)


def one_hot(index: Tensor, like: Tensor) -> Tensor:
    """Index (...) -> one-hot (..., L), with the type and the L of another tensor."""
    return torch.zeros_like(like).scatter_(-1, index.unsqueeze(-1), 1.0)


def log_weights(weights: Tensor) -> Tensor:
    """log alpha, in fp32 at least, finite where a weight is 0."""
    return wide(weights).clamp(min=torch.finfo(torch.float32).tiny).log()
