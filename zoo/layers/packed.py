"""Sequences of different lengths side by side, without a single pad.

Sequences are kept *flat*: the items of all sequences in one row, (P, ...), with `lengths` (N,) beside it. A recurrence sorts them by
length in its mind: at step t it runs the sequences that have an item t, the longest first, so they are the first rows of the step
before. Both directions share the steps: the second one reads each sequence from its end. The place of what a step computes is that of
its step, then its direction, then its sequence, so that a step is one block (D, n, ...) of memory.

A whole recurrence is one autograd function, whose backward pass is written by hand and forms each weight gradient in one matrix
product.

Shapes: N sequences, P items of all of them, D directions (1 or 2), H hidden size, G = 3 H (GRU) or 4 H (LSTM) gates.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from zoo.layers.elementwise import tanh_
from zoo.layers.steps import product_dtype, wants_gradient


class Packing(NamedTuple):
    """Where each item of flat sequences goes in a recurrence over all of them.

    Attributes:
        counts: sequences running at each step, never rising; their sum is P.
        items: (P * D,) what is read at each place, as flat number of the item times D plus direction.
        places: (P, D) the inverse: the place of each item in each direction.
        last: (N, D) the place where each sequence ends its run; -1 for an empty sequence.
    """

    counts: list[int]
    items: Tensor
    places: Tensor
    last: Tensor


def segment_ids(lengths: Tensor) -> Tensor:
    """Number of the sequence that each flat item belongs to: lengths (N,) -> (P,)."""
    return torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)


def to_padded(flat: Tensor, mask: Tensor) -> Tensor:
    """Flat items (P, ...) at the True places of mask (B, S), zeros elsewhere -> (B, S, ...)."""
    padded = flat.new_zeros(*mask.shape, *flat.shape[1:])
    padded[mask] = flat
    return padded


def pack(lengths: Tensor, directions: int = 2) -> Packing:
    """Plans a recurrence over flat sequences.

    Args:
        lengths: (N,) int64 items of each sequence; 0 is allowed.
        directions: 2 to run from the end to the start as well.
    """
    owner = segment_ids(lengths)  # (P,)
    items = torch.arange(len(owner), device=lengths.device)
    position = items - (lengths.cumsum(0) - lengths)[owner]
    order = lengths.argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    counts = torch.bincount(position) if len(owner) else lengths.new_zeros(0)
    offsets = counts.cumsum(0) - counts
    steps = torch.stack([position, lengths[owner] - 1 - position][:directions], dim=1)  # (P, D)
    column = torch.arange(directions, device=lengths.device)
    places = steps
    if len(owner):
        places = directions * offsets[steps] + column * counts[steps] + rank[owner].unsqueeze(1)
    codes = torch.arange(places.numel(), device=lengths.device)
    back = torch.empty_like(codes).scatter_(0, places.flatten(), codes)
    last = lengths.new_full((len(lengths), directions), -1)
    real = lengths > 0
    end = (lengths[real] - 1).unsqueeze(1)
    last[real] = directions * offsets[end] + column * counts[end] + rank[real].unsqueeze(1)
    return Packing(counts.tolist(), back, places, last)


def _blocks(x: Tensor, counts: list[int], directions: int) -> list[Tensor]:
    """Each step's part (D, n, K) of what lies in the order of places, (P * D, K)."""
    parts = x.split([directions * n for n in counts])
    return [part.view(directions, n, x.size(-1)) for part, n in zip(parts, counts, strict=True)]


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """One product for each direction: x (D, n, K), weight (D, K, G) in the precision of the product -> (D, n, G)."""
    return torch.bmm(x.to(weight.dtype), weight)


def _gather(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table at index, at least fp32, the caller's own."""
    gates = table.index_select(0, index)
    return gates.float() if gates.dtype in (torch.float16, torch.bfloat16) else gates


def _scatter(grad: Tensor, index: Tensor, inverse: Tensor | None, table: tuple[int, torch.dtype]) -> Tensor:
    """Gradient of `_gather` for the table; quicker where it only rearranged the rows."""
    if inverse is not None:
        return grad.index_select(0, inverse).to(table[1])
    return torch.ops.aten.embedding_dense_backward(grad, index, table[0], -1, False).to(table[1])


def _weight_gradient(grads: list[Tensor], states: list[Tensor], weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Of the hidden products: gradients of the gates and states after each step, in blocks -> (D, G, H)."""
    if len(grads) < 2:
        return torch.zeros_like(weight)
    found = []
    for d in range(len(weight)):
        before = torch.cat([state[d, : grad.size(1)] for state, grad in zip(states, grads[1:])]).to(dtype)  # each step's input
        found.append(torch.mm(torch.cat([grad[d] for grad in grads[1:]]).to(dtype).t(), before))
    return torch.stack(found).to(weight.dtype)


class _GRUScan(torch.autograd.Function):
    """Gates in torch's order r, z, n; n = tanh(W x + r (U h)); h' = (1 - z) n + z h. Starts from zeros."""

    @staticmethod
    def forward(ctx, table, index, inverse, weight, counts, dtype, train):
        size, directions = weight.size(-1), len(weight)
        hidden_weight, minus_one = weight.transpose(1, 2).to(dtype, copy=True), weight.new_tensor(-1.0, dtype=torch.float32)
        hidden_weight[..., 2 * size :] *= 2  # tanh(x) = 2 sigmoid(2x) - 1
        hidden_weight = hidden_weight.contiguous()
        to_gates, to_candidate = (w.contiguous() for w in hidden_weight.split((2 * size, size), dim=-1))
        rz = _gather(table[:, : 2 * size].contiguous(), index)  # the gates r, z
        new = _gather(2 * table[:, 2 * size :], index)  # n, twice until the sigmoid
        states = torch.empty_like(new)
        inner = torch.empty_like(new) if train else None  # U_n h, for the backward pass
        gates, candidates, after = (_blocks(x, counts, directions) for x in (rz, new, states))
        kept = [None] * len(counts) if inner is None else _blocks(inner, counts, directions)
        hidden = None
        for gate, candidate, state, u in zip(gates, candidates, after, kept, strict=True):
            if hidden is None:
                gate.sigmoid_()
                torch.add(minus_one, candidate.sigmoid_(), alpha=2, out=candidate)
                torch.addcmul(candidate, candidate, gate[..., size:], value=-1, out=state)
                if u is not None:
                    u.zero_()
            else:
                hidden = hidden[:, : gate.size(1)]
                if gate.dtype == dtype:
                    of_candidate = torch.bmm(hidden, to_candidate)
                    gate.baddbmm_(hidden, to_gates)
                else:  # there each new shape of a product has a price of its own
                    of_gates, of_candidate = _product(hidden, hidden_weight).split((2 * size, size), dim=-1)
                    gate.add_(of_gates)
                r, z = gate.sigmoid_().split(size, dim=-1)
                torch.add(minus_one, candidate.addcmul_(r, of_candidate).sigmoid_(), alpha=2, out=candidate)
                torch.lerp(candidate, hidden, z, out=state)
                if u is not None:
                    torch.mul(of_candidate, 0.5, out=u)
            hidden = state
        ctx.save_for_backward(rz, new, inner, states, weight, index, inverse)
        ctx.counts, ctx.dtype, ctx.table = counts, dtype, (len(table), table.dtype)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_states):
        rz, new, inner, states, weight, index, inverse = ctx.saved_tensors
        size, directions = weight.size(-1), len(weight)
        hidden_weight = weight.to(ctx.dtype)
        d_gates = rz.new_empty(len(new), 3 * size)
        d_hidden_gates = torch.empty_like(d_gates)
        tensors = (rz, new, inner, states, d_gates, d_hidden_gates, grad_states)
        blocks = list(zip(*(_blocks(x, ctx.counts, directions) for x in tensors), strict=True))
        carry = new.new_zeros(directions, ctx.counts[0] if ctx.counts else 0, size)  # d h from the step after
        for t in range(len(blocks) - 1, -1, -1):
            gate, candidate, u, _, d_gate, whole, grad_state = blocks[t]
            n = gate.size(1)
            r, z = gate.split(size, dim=-1)
            d_r, d_z, d_n = d_gate.split(size, dim=-1)
            grad = grad_state + carry[:, :n]
            kept = torch.mul(grad, z, out=carry[:, :n])  # z g
            torch.sub(grad, kept, out=d_n)  # (1 - z) g
            if t:
                torch.sub(blocks[t - 1][3][:, :n], candidate, out=d_z).mul_(kept)  # (h - n) z g
            else:
                torch.mul(candidate, kept, out=d_z).neg_()
            d_z.addcmul_(d_z, z, value=-1)  # ... (1 - z)
            d_n.addcmul_(d_n, candidate * candidate, value=-1)  # ... tanh'
            through = d_n * r
            torch.mul(through, u, out=d_r)
            d_r.addcmul_(d_r, r, value=-1)
            if t:
                whole[..., : 2 * size] = d_gate[..., : 2 * size]
                whole[..., 2 * size :] = through
                kept.add_(_product(whole, hidden_weight))
        d_weight = _weight_gradient([block[5] for block in blocks], [block[3] for block in blocks], weight, ctx.dtype)
        return _scatter(d_gates, index, inverse, ctx.table), None, None, d_weight, None, None, None


class _LSTMScan(torch.autograd.Function):
    """Gates in torch's order i, f, g, o; c' = f c + i g; h' = o tanh(c'). Starts from zeros. Returns all h and all c."""

    @staticmethod
    def forward(ctx, table, index, inverse, weight, counts, dtype, train):
        size, directions = weight.size(-1), len(weight)
        gates = _gather(table, index)  # becomes i, f, g, o
        hidden_weight, minus_one = weight.transpose(1, 2).to(dtype).contiguous(), gates.new_tensor(-1.0)
        states, cells, squashed = (gates.new_empty(len(gates), size) for _ in range(3))
        hidden = before = None
        for part, state, cell, s in zip(*(_blocks(x, counts, directions) for x in (gates, states, cells, squashed)), strict=True):
            n = part.size(1)
            if hidden is not None and gates.dtype == dtype:
                part.baddbmm_(hidden[:, :n], hidden_weight)
            elif hidden is not None:
                part.add_(_product(hidden[:, :n], hidden_weight))
            i, f, g, o = part.split(size, dim=-1)
            g.mul_(2)
            part.sigmoid_()  # all four in one call: tanh(g) = 2 sigmoid(2g) - 1
            torch.add(minus_one, g, alpha=2, out=g)
            torch.mul(i, g, out=cell)
            if before is not None:
                cell.addcmul_(f, before[:, :n])
            tanh_(s.copy_(cell))
            torch.mul(o, s, out=state)
            hidden, before = state, cell
        ctx.save_for_backward(gates, states, cells, squashed, weight, index, inverse)
        ctx.counts, ctx.dtype, ctx.table = counts, dtype, (len(table), table.dtype)
        ctx.set_materialize_grads(False)
        return states, cells

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_states, grad_cells):
        gates, states, cells, squashed, weight, index, inverse = ctx.saved_tensors
        size, directions = weight.size(-1), len(weight)
        hidden_weight = weight.to(ctx.dtype)
        d_gates = torch.empty_like(gates)
        parts, hiddens, befores, tanhs, outs = (_blocks(x, ctx.counts, directions) for x in (gates, states, cells, squashed, d_gates))
        of_states, of_cells = ([] if x is None else _blocks(x, ctx.counts, directions) for x in (grad_states, grad_cells))
        top = ctx.counts[0] if ctx.counts else 0
        carry, cell_carry, grad, work = (gates.new_zeros(directions, top, size) for _ in range(4))
        for t in range(len(parts) - 1, -1, -1):
            part, s, out = parts[t], tanhs[t], outs[t]
            n = part.size(1)
            i, f, g, o = part.split(size, dim=-1)
            g_h = torch.add(of_states[t], carry[:, :n], out=grad[:, :n]) if of_states else carry[:, :n]
            g_c, product = cell_carry[:, :n], work[:, :n]
            if of_cells:
                g_c.add_(of_cells[t])
            torch.mul(g_h, o, out=product)
            g_c.add_(product)
            product.mul_(s)
            g_c.addcmul_(product, s, value=-1)  # d c' = d c' + d h' o (1 - tanh(c')^2)
            torch.addcmul(part, part, part, value=-1, out=out)  # sigmoid'
            d_i, d_f, d_g, d_o = out.split(size, dim=-1)
            torch.mul(g, g, out=d_g)
            d_g.neg_().add_(1)  # tanh'
            d_i.mul_(g).mul_(g_c)
            d_g.mul_(i).mul_(g_c)
            d_o.mul_(s).mul_(g_h)
            if t:
                d_f.mul_(befores[t - 1][:, :n]).mul_(g_c)
                g_c.mul_(f)
                carry[:, :n] = _product(out, hidden_weight)
            else:
                d_f.zero_()
        d_weight = _weight_gradient(outs, hiddens, weight, ctx.dtype)
        return _scatter(d_gates, index, inverse, ctx.table), None, None, d_weight, None, None, None


class _Rearrange(torch.autograd.Function):
    """Rows of x in another order."""

    @staticmethod
    def forward(ctx, x, index, inverse):
        ctx.save_for_backward(inverse)
        return x.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (inverse,) = ctx.saved_tensors
        return grad.index_select(0, inverse), None, None


_SCANS = {3: _GRUScan, 4: _LSTMScan}


def packed_recurrence(
    table: Tensor, weight: Tensor, packing: Packing, rows: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One GRU or LSTM layer over flat sequences, in one or both directions, from a state of zeros.

    Args:
        table: (R, D * G) input half of the gates, in the order r, z, n or i, f, g, o for each direction.
        weight: (D, G, H) hidden weights; G = 3 H makes it a GRU, 4 H an LSTM.
        packing: `pack(lengths, D)`.
        rows: (P,) row of the table for each item, for items that repeat; not given: row p is item p.

    Returns:
        outputs (P, D * H) and the state at the end of each sequence, h (and c), (N, D * H) each, zeros for an empty sequence.
        At least fp32.
    """
    directions, gates, size = weight.shape
    index, places = packing.items, packing.places.flatten()
    if rows is not None:
        index = rows[torch.div(index, directions, rounding_mode="floor")] * directions + index % directions
    table = table.reshape(len(table) * directions, gates)
    inverse = places if rows is None else None
    options = packing.counts, product_dtype(weight), wants_gradient(table, weight)
    found = _SCANS[gates // size].apply(table, index, inverse, weight, *options)
    found = found if isinstance(found, tuple) else (found,)
    outputs = _Rearrange.apply(found[0], places, packing.items).view(len(packing.places), directions * size)
    ended, last = packing.last >= 0, packing.last.clamp(min=0)
    finals = tuple((x[last] * ended.unsqueeze(-1)).flatten(1) if len(x) else x.new_zeros(len(last), directions * size) for x in found)
    return outputs, finals


class _SegmentSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weights, lengths, owner):
        ctx.save_for_backward(x, weights, owner)
        ends = lengths.cumsum(0)
        return embedding_bag(torch.arange(len(x), device=x.device), x, ends - lengths, mode="sum", per_sample_weights=weights)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weights, owner = ctx.saved_tensors
        of_item = grad.index_select(0, owner)  # (P, D)
        return of_item * weights.unsqueeze(-1), torch.einsum("pd,pd->p", of_item, x), None, None


def segment_sum(x: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """Weighted sum over each flat sequence: x (P, D), weights (P,), lengths (N,) -> (N, D); zeros for an empty one. At least fp32."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if not len(lengths):
        return x.new_zeros(0, x.size(1))
    return _SegmentSum.apply(x, weights.to(x.dtype), lengths, segment_ids(lengths))


def segment_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """Softmax in fp32 over each flat sequence: scores (P,), lengths (N,) -> (P,)."""
    owner = segment_ids(lengths)
    scores = scores.float()
    top = scores.new_full((len(lengths),), -torch.inf).scatter_reduce(0, owner, scores.detach(), "amax")
    weights = (scores - top[owner]).exp()
    return weights / weights.new_zeros(len(lengths)).index_add(0, owner, weights)[owner]
