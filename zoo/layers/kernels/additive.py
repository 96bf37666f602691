"""The additive score without tanh, a few rows at a time.

With E(x) = exp(2 x), tanh x = 1 - 2 / (1 + E(x)), and E of a sum is a product:

    v^T tanh(q + k) = sum_j v_j - 2 sum_j v_j r_j,    r_j = 1 / (1 + E(q_j) E(k_j))

E(k) is computed once for all queries that meet the same keys. What is left for each pair of query and key, a product
and a reciprocal, takes a fraction of the time of tanh, and (B, T, S, K) never exists as a whole: its rows stay in the
cache, and the backward pass computes them again, d tanh x / dx = 4 r (1 - r).

Shapes: B batch, T queries, S memory positions, K attention size.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from zoo.layers.kernels import usable, wide
from zoo.layers.kernels.function import gradients_of_plain, is_differentiated_again, wants_gradient

# Pairs of query and key, times K, from which it is faster: without a gradient, and with one, which computes r twice.
_SMALLEST = {False: 2**14, True: 2**19}
_MANY = 4  # queries from which E(k) pays for itself at once
_ELEMENTS = 2**19  # pairs of query and key, times K, in the cache at one time
_LARGEST = 20.0  # of |q| and |k|: E(q) E(k) of larger ones could overflow


class _Met(NamedTuple):
    """Keys as they were, and E(k), None if they are too large; no keys if they were met once by few queries."""

    keys: Tensor | None = None
    powers: Tensor | None = None


# By the tensor of the keys. It may change without a word: inference tensors, and parameters in the step of a fused
# optimizer, count no versions.
_met: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def fast_additive_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor | None:
    """`zoo.layers.scores.additive_score`; None where plain torch is better."""
    if not usable("additive", query, keys, v) or len(query) != len(keys):
        return None
    train = wants_gradient(query, keys, v)
    if query.numel() * keys.size(1) < _SMALLEST[train]:
        return None
    of_keys = _powers_of_keys(keys, train or query.size(1) >= _MANY)
    if of_keys is None or (of_query := _powers(query)) is None:
        return None
    with torch.autocast(keys.device.type, enabled=False):
        if train:
            return _AdditiveScore.apply(query, keys, v, of_query, of_keys)
        return _scores(of_query, of_keys, wide(v))


def _powers(x: Tensor) -> Tensor | None:
    """E(x), or None if an element is too large or NaN."""
    x = wide(x.detach())
    return torch.exp(2 * x) if x.abs().amax() <= _LARGEST else None


def _powers_of_keys(keys: Tensor, pays: bool) -> Tensor | None:
    """E of the keys; None if they are too large, or are met for the first time by too few queries to pay for it."""
    met, now = _met.get(keys), keys.detach()
    if met is not None and met.keys is not None and _is_same(met.keys, now):
        return met.powers
    met = _Met(now.clone(), _powers(now)) if pays or met is not None else _Met()
    _met[keys] = met
    return met.powers


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Whether all numbers are the same; NumPy compares them several times faster than torch."""
    if a.dtype == torch.bfloat16 or a.dtype != b.dtype or a.shape != b.shape:  # the first: unknown to NumPy
        return False
    return bool((a.numpy() == b.numpy()).all())


def _parts(of_query: Tensor, of_keys: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some rows after the other, with their r (b, T, S, K), which the next ones overwrite."""
    batch, queries, size = of_query.shape
    rows = max(1, _ELEMENTS // (queries * of_keys.size(1) * size))
    buffer = of_keys.new_empty(min(rows, batch), queries, of_keys.size(1), size)
    for first in range(0, batch, rows):
        part = slice(first, min(first + rows, batch))
        r = buffer[: part.stop - first]
        torch.mul(of_query[part].unsqueeze(2), of_keys[part].unsqueeze(1), out=r)
        yield part, r.add_(1).reciprocal_()


def _scores(of_query: Tensor, of_keys: Tensor, v: Tensor) -> Tensor:
    found = of_keys.new_empty(*of_query.shape[:2], of_keys.size(1))
    for part, r in _parts(of_query, of_keys):
        torch.matmul(r, v, out=found[part])
    return found.mul_(-2).add_(v.sum())


def _with_tanh(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    return torch.tanh(wide(query).unsqueeze(2) + wide(keys).unsqueeze(1)) @ wide(v)


class _AdditiveScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, keys, v, of_query, of_keys):
        ctx.save_for_backward(query, keys, v)
        ctx.powers = of_query, of_keys
        return _scores(of_query, of_keys, wide(v))

    @staticmethod
    def backward(ctx, grad):  # pyright: ignore[reportIncompatibleMethodOverride]  # torch declares any number
        query, keys, v = ctx.saved_tensors
        if is_differentiated_again():
            return *gradients_of_plain(_with_tanh, (query, keys, v), (grad,)), None, None
        of_query, of_keys = ctx.powers
        d_query, d_keys = torch.empty_like(of_query), torch.empty_like(of_keys)
        d_v = of_query.new_zeros(v.shape)
        for part, r in _parts(of_query, of_keys):
            rows = grad[part]  # (b, T, S)
            d_v -= 2 * torch.mv(r.flatten(0, 2).t(), rows.flatten())
            slope = torch.addcmul(r, r, r, value=-1).mul_(rows.unsqueeze(-1))  # grad r (1 - r)
            torch.sum(slope, 2, out=d_query[part])
            torch.sum(slope, 1, out=d_keys[part])
        d_v += grad.sum()
        scale = 4 * wide(v)
        return d_query.mul_(scale).to(query.dtype), d_keys.mul_(scale).to(keys.dtype), d_v.to(v.dtype), None, None
