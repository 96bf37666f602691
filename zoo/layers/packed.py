"""Sequences of different lengths side by side, without a single pad.

Sequences are kept *flat*: the items of all sequences in one row, (P, ...), with `lengths` (N,) beside it. A recurrence sorts them by
length in its mind: at step t it runs the sequences that have an item t, the longest first, so they are the first rows of the step
before. Both directions share the steps: the second one reads each sequence from its end.

A whole recurrence is one autograd function, whose backward pass is written by hand and forms each weight gradient in one matrix
product.

Shapes: N sequences, P items of all of them, D directions (1 or 2), H hidden size, G = 3 H (GRU) or 4 H (LSTM) gates.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.layers.elementwise import tanh_
from zoo.layers.steps import product_dtype


class Packing(NamedTuple):
    """Where each item of flat sequences goes in a recurrence over all of them.

    Attributes:
        counts: sequences running at each step, never rising; their sum is P.
        items: (P, D) flat number of the item that is read at each place, in the order of the steps.
        places: (P, D) the inverse: the place of each item.
        last: (N, 1) the place where each sequence ends its run; -1 for an empty sequence.
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
    places = offsets[steps] + rank[owner].unsqueeze(1) if len(owner) else steps
    back = torch.empty_like(places).scatter_(0, places, items.unsqueeze(1).expand_as(places))
    last = torch.full_like(lengths, -1)
    real = lengths > 0
    last[real] = offsets[lengths[real] - 1] + rank[real]
    return Packing(counts.tolist(), back, places, last.unsqueeze(1))


def _spans(counts: list[int]) -> list[tuple[int, int]]:
    """(first place, sequences) of each step."""
    spans, first = [], 0
    for count in counts:
        spans.append((first, count))
        first += count
    return spans


def _product(hidden: Tensor, weight: Tensor) -> Tensor:
    """One product for each direction: hidden (n, D, K), weight (D, K, G) in the precision of the product -> (n, D, G)."""
    return torch.bmm(hidden.transpose(0, 1).to(weight.dtype), weight).transpose(0, 1)


def _gather(table: Tensor, index: Tensor) -> Tensor:
    """Rows (R, G) of a table at index (P, D) -> (P, D, G), at least fp32, the caller's own."""
    gates = table.index_select(0, index.flatten()).view(*index.shape, table.size(-1))
    return gates.float() if gates.dtype in (torch.float16, torch.bfloat16) else gates


def _scatter(grad: Tensor, index: Tensor, inverse: Tensor | None, table: tuple[int, torch.dtype]) -> Tensor:
    """Gradient of `_gather` for the table; quicker where it only rearranged the rows."""
    grad = grad.flatten(0, 1)
    if inverse is not None:
        return grad.index_select(0, inverse.flatten()).to(table[1])
    return torch.ops.aten.embedding_dense_backward(grad, index.flatten(), table[0], -1, False).to(table[1])


def _weight_gradient(grads: Tensor, states: Tensor, counts: list[int], dtype: torch.dtype) -> Tensor:
    """Of the hidden products: gradients of the gates (P, D, G), states after each step (P, D, H) -> (D, G, H)."""
    spans = _spans(counts)
    if len(spans) < 2:
        return grads.new_zeros(grads.size(1), grads.size(2), states.size(2))
    before = torch.cat([states[first : first + after] for (first, _), (_, after) in zip(spans, spans[1:])]).to(dtype)  # each step's input
    after = grads[counts[0] :].to(dtype)
    return torch.stack([torch.mm(after[:, d].t(), before[:, d]) for d in range(grads.size(1))]).to(grads.dtype)


class _GRUScan(torch.autograd.Function):
    """Gates in torch's order r, z, n; n = tanh(W x + r (U h)); h' = (1 - z) n + z h. Starts from zeros."""

    @staticmethod
    def forward(ctx, table, index, inverse, weight, counts, dtype):
        size = weight.size(-1)
        hidden_weight = weight.transpose(1, 2).to(dtype).contiguous()
        rz = _gather(table[:, : 2 * size].contiguous(), index)  # the gates r, z
        new = _gather(table[:, 2 * size :].contiguous(), index)  # n
        states = torch.empty_like(new)
        inner = torch.empty_like(new) if any(ctx.needs_input_grad) else None  # U_n h, for the backward pass
        before = 0
        for first, n in _spans(counts):
            step = slice(first, first + n)
            if first:
                hidden = states[before : before + n]
                product = _product(hidden, hidden_weight)
                gate = rz[step].add_(product[..., : 2 * size]).sigmoid_()
                u = product[..., 2 * size :]
                candidate = tanh_(new[step].addcmul_(gate[..., :size], u))
                if inner is not None:
                    inner[step] = u
                torch.lerp(candidate, hidden, gate[..., size:], out=states[step])
            else:
                gate = rz[step].sigmoid_()
                candidate = tanh_(new[step])
                if inner is not None:
                    inner[step].zero_()
                torch.addcmul(candidate, candidate, gate[..., size:], value=-1, out=states[step])
            before = first
        ctx.save_for_backward(rz, new, inner, states, weight, index, inverse)
        ctx.counts, ctx.dtype, ctx.table = counts, dtype, (len(table), table.dtype)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_states):
        rz, new, inner, states, weight, index, inverse = ctx.saved_tensors
        size = weight.size(-1)
        hidden_weight = weight.to(ctx.dtype)
        d_gates = rz.new_empty(*new.shape[:2], 3 * size)
        d_hidden_gates = torch.empty_like(d_gates)
        spans = _spans(ctx.counts)
        carry = new.new_zeros(ctx.counts[0] if ctx.counts else 0, new.size(1), size)  # d h from the step after
        for t in range(len(spans) - 1, -1, -1):
            first, n = spans[t]
            step = slice(first, first + n)
            r, z = rz[step].split(size, dim=-1)
            candidate = new[step]
            d_r, d_z, d_n = d_gates[step].split(size, dim=-1)
            grad = grad_states[step] + carry[:n]
            kept = torch.mul(grad, z, out=carry[:n])  # z g
            torch.sub(grad, kept, out=d_n)  # (1 - z) g
            if t:
                torch.sub(states[spans[t - 1][0] : spans[t - 1][0] + n], candidate, out=d_z).mul_(kept)  # (h - n) z g
            else:
                torch.mul(candidate, kept, out=d_z).neg_()
            d_z.addcmul_(d_z, z, value=-1)  # ... (1 - z)
            d_n.addcmul_(d_n, candidate * candidate, value=-1)  # ... tanh'
            through = d_n * r
            torch.mul(through, inner[step], out=d_r)
            d_r.addcmul_(d_r, r, value=-1)
            if t:
                whole = d_hidden_gates[step]
                whole[..., : 2 * size] = d_gates[step][..., : 2 * size]
                whole[..., 2 * size :] = through
                kept.add_(_product(whole, hidden_weight))
        d_weight = _weight_gradient(d_hidden_gates, states, ctx.counts, ctx.dtype).to(weight.dtype)
        return _scatter(d_gates, index, inverse, ctx.table), None, None, d_weight, None, None


class _LSTMScan(torch.autograd.Function):
    """Gates in torch's order i, f, g, o; c' = f c + i g; h' = o tanh(c'). Starts from zeros. Returns all h and all c."""

    @staticmethod
    def forward(ctx, table, index, inverse, weight, counts, dtype):
        size = weight.size(-1)
        gates = _gather(table, index)  # becomes i, f, g, o
        hidden_weight = weight.transpose(1, 2).to(dtype).contiguous()
        states, cells, squashed = (gates.new_empty(*gates.shape[:2], size) for _ in range(3))
        before = 0
        for first, n in _spans(counts):
            step, part = slice(first, first + n), gates[first : first + n]
            if first:
                part.add_(_product(states[before : before + n], hidden_weight))
            i, f, g, o = part.split(size, dim=-1)
            g.mul_(2)
            part.sigmoid_()  # all four in one call: tanh(g) = 2 sigmoid(2g) - 1
            g.mul_(2).sub_(1)
            cell = torch.mul(i, g, out=cells[step])
            if first:
                cell.addcmul_(f, cells[before : before + n])
            tanh_(squashed[step].copy_(cell))
            torch.mul(o, squashed[step], out=states[step])
            before = first
        ctx.save_for_backward(gates, states, cells, squashed, weight, index, inverse)
        ctx.counts, ctx.dtype, ctx.table = counts, dtype, (len(table), table.dtype)
        ctx.set_materialize_grads(False)
        return states, cells

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_states, grad_cells):
        gates, states, cells, squashed, weight, index, inverse = ctx.saved_tensors
        size = weight.size(-1)
        hidden_weight = weight.to(ctx.dtype)
        d_gates = torch.empty_like(gates)
        spans = _spans(ctx.counts)
        top = ctx.counts[0] if ctx.counts else 0
        carry, cell_carry, grad, work = (gates.new_zeros(top, gates.size(1), size) for _ in range(4))
        for t in range(len(spans) - 1, -1, -1):
            first, n = spans[t]
            step = slice(first, first + n)
            part, s = gates[step], squashed[step]
            i, f, g, o = part.split(size, dim=-1)
            g_h = carry[:n] if grad_states is None else torch.add(grad_states[step], carry[:n], out=grad[:n])
            g_c = cell_carry[:n]
            if grad_cells is not None:
                g_c.add_(grad_cells[step])
            torch.mul(g_h, o, out=work[:n])
            g_c.add_(work[:n])
            work[:n].mul_(s)
            g_c.addcmul_(work[:n], s, value=-1)  # d c' = d c' + d h' o (1 - tanh(c')^2)
            out = d_gates[step]
            torch.addcmul(part, part, part, value=-1, out=out)  # sigmoid'
            d_i, d_f, d_g, d_o = out.split(size, dim=-1)
            torch.mul(g, g, out=d_g)
            d_g.neg_().add_(1)  # tanh'
            d_i.mul_(g).mul_(g_c)
            d_g.mul_(i).mul_(g_c)
            d_o.mul_(s).mul_(g_h)
            if t:
                before = spans[t - 1][0]
                d_f.mul_(cells[before : before + n]).mul_(g_c)
                g_c.mul_(f)
                carry[:n] = _product(out, hidden_weight)
            else:
                d_f.zero_()
        d_weight = _weight_gradient(d_gates, states, ctx.counts, ctx.dtype).to(weight.dtype)
        return _scatter(d_gates, index, inverse, ctx.table), None, None, d_weight, None, None


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
    column = torch.arange(directions, device=table.device)
    items, places = (x * directions + column for x in (packing.items, packing.places))
    index = items if rows is None else rows[packing.items] * directions + column
    table = table.reshape(len(table) * directions, gates)
    inverse = places if rows is None else None
    found = _SCANS[gates // size].apply(table, index, inverse, weight, packing.counts, product_dtype(weight))
    found = found if isinstance(found, tuple) else (found,)
    flat = [x.flatten(0, 1) for x in found]
    outputs = _Rearrange.apply(flat[0], places.flatten(), items.flatten()).view(len(places), directions * size)
    ended = packing.last >= 0
    last = packing.last.clamp(min=0) * directions + column
    finals = tuple((x[last] * ended.unsqueeze(-1)).flatten(1) if len(x) else x.new_zeros(len(last), directions * size) for x in flat)
    return outputs, finals


class _SegmentSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lengths, owner):
        ctx.save_for_backward(owner)
        if not len(lengths):
            return x.new_zeros(0, *x.shape[1:])
        return torch.segment_reduce(x, "sum", lengths=lengths, axis=0, initial=0)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (owner,) = ctx.saved_tensors
        return grad.index_select(0, owner), None, None


def segment_sum(x: Tensor, lengths: Tensor) -> Tensor:
    """Sum over each flat sequence: x (P, ...), lengths (N,) -> (N, ...); zeros for an empty one."""
    return _SegmentSum.apply(x.contiguous(), lengths, segment_ids(lengths))


def segment_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """Softmax in fp32 over each flat sequence: scores (P,), lengths (N,) -> (P,)."""
    owner = segment_ids(lengths)
    scores = scores.float()
    top = scores.new_full((len(lengths),), -torch.inf).scatter_reduce(0, owner, scores.detach(), "amax")
    weights = (scores - top[owner]).exp()
    return weights / _SegmentSum.apply(weights, lengths, owner)[owner]
