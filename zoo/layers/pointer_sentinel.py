"""Merity, Xiong, Bradbury, Socher 2017: Pointer Sentinel Mixture Models.

https://arxiv.org/abs/1609.07843, section 2. A language model gives a part of its probability to words of the text that
it has read. Each state h_t scores the states of the last L words x_i, and the sentinel, a vector of its own:

    q_t = tanh(W h_t + b),  z_i = q_t . h_i,  a = softmax([z; q_t . s])
    p(w) = g p_vocab(w) + sum_i 1[w = x_i] a_i,  g = a_sentinel

The weights a are those of the L words alone; their sum is 1 - g.

Shapes: T steps, B batch, L window, H hidden, V vocabulary.
"""

import torch
from torch import Tensor, nn

from zoo.layers.kernels import wide
from zoo.layers.masking import masked_softmax
from zoo.layers.window import window_mask


class PointerSentinel(nn.Module):
    """The weights of the words before.

    Args:
        size: H.
        window: L.
    """

    def __init__(self, size: int, window: int):
        super().__init__()
        if window < 1:
            raise ValueError(f"window must be at least 1; got {window}")
        self.window = window
        self.query = nn.Linear(size, size)  # W, b
        self.sentinel = nn.Parameter(torch.empty(size).uniform_(-(size**-0.5), size**-0.5))  # s

    def forward(self, outputs: Tensor, known: Tensor) -> Tensor:
        """Weights of the words 1 .. L steps back, 0 where there are none.

        Args:
            outputs: (L + T, B, H), the L before the first step and those of the steps.
            known: (B,) number of the first L that are real.

        Returns:
            (T, B, L), in at least fp32.
        """
        now = self.window
        query, keys = torch.tanh(wide(self.query(outputs[now:]))), wide(outputs[:-1])
        mask = window_mask(known, len(query), now)
        with torch.autocast(query.device.type, enabled=False):
            scores = torch.matmul(query.transpose(0, 1), keys.permute(1, 2, 0)).transpose(0, 1)  # (T, B, L + T - 1)
            of_sentinel = torch.matmul(query, wide(self.sentinel)).unsqueeze(-1)
        steps = torch.arange(len(query), device=scores.device).view(-1, 1, 1)
        back = torch.arange(1, now + 1, device=scores.device)
        scores = scores.gather(-1, (steps + now - back).expand(-1, scores.size(1), -1))  # (T, B, L)
        mask = torch.cat([mask, mask.new_ones(of_sentinel.shape)], dim=-1)
        return masked_softmax(torch.cat([scores, of_sentinel], dim=-1), mask)[..., :now]


def mixed_losses(log_probs: Tensor, weights: Tensor, words: Tensor, labels: Tensor) -> Tensor:
    """-log p(w) of each label.

    Args:
        log_probs: (N,) log p_vocab of the labels.
        weights, words: (N, L) a_i and x_i.
        labels: (N,) w.
    """
    pointed = (weights * (words == labels.unsqueeze(-1))).sum(-1)
    return -_log(_share(weights) * wide(log_probs).exp() + pointed)


def mixed_log_probs(logits: Tensor, weights: Tensor, words: Tensor) -> Tensor:
    """log p of all words: logits (..., V) of p_vocab, weights and words (..., L) -> (..., V)."""
    vocabulary = _share(weights).unsqueeze(-1) * wide(logits).softmax(-1)
    return _log(vocabulary.scatter_add(-1, words, weights.to(vocabulary.dtype)))


def _share(weights: Tensor) -> Tensor:
    """g, at least the smallest number that its rounding leaves of 1."""
    return (1 - weights.sum(-1)).clamp(min=torch.finfo(weights.dtype).eps)


def _log(probabilities: Tensor) -> Tensor:
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()
