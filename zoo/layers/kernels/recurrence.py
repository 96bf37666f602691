"""A whole recurrence as one autograd function whose backward pass forms each weight gradient in one matrix product.

The input lies step after step: the block (D, n, ...) of a step holds its n active sequences, the longest first, for
each of the D directions. n never increases, so the sequences of a step are the first rows of the previous step. On a
CPU torch's own LSTM builds a graph of a dozen small operations per step.

Shapes: T steps, N sequences, n of them at a step, D directions, H hidden size, G = 4 H (LSTM) or 3 H (GRU) gates, P
rows of all blocks.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zoo.layers.kernels import product_dtype, wide
from zoo.layers.kernels.function import gradients_of_plain, is_differentiated_again
from zoo.layers.kernels.products import multiply_packed, pack, worth_packing

State = tuple[Tensor, ...]
Update = Callable[[Tensor, Tensor, State], State]  # one step: both halves of the gates, state -> new state


def _blocks(x: Tensor, counts: list[int], directions: int) -> list[Tensor]:
    """The blocks (D, n, K) of the steps of x (P, K)."""
    parts = x.split([directions * n for n in counts])
    return [part.view(directions, n, x.size(-1)) for part, n in zip(parts, counts, strict=True)]


def _products(weight: Tensor, dtype: torch.dtype, steps: int) -> Callable[[Tensor], Tensor]:
    """The function x (D, n, K) -> x weight^T (D, n, N) for weight (D, N, K), in precision `dtype`.

    The large weight of a single direction is packed, see products.py.
    """
    weight = weight.to(dtype)
    if len(weight) == 1 and steps > 3 and worth_packing(weight[0], dtype):
        packed = pack(weight[0])
        return lambda x: multiply_packed(x.to(dtype), packed)
    transposed = weight.transpose(1, 2).contiguous()
    return lambda x: torch.bmm(x.to(dtype), transposed)


def plain_steps(update: Update, gates: Tensor, weight: Tensor, start: State, counts: list[int]) -> State:
    """As `steps`, but in plain torch."""
    state, found = start, []
    for block in _blocks(gates, counts, len(weight)):
        state = tuple(x[:, : block.size(1)] for x in state)
        hidden_gates = torch.bmm(state[0].to(weight.dtype), weight.transpose(1, 2))
        state = update(block, hidden_gates, state)
        found.append(tuple(x.flatten(0, 1) for x in state))
    return tuple(torch.cat(x) for x in zip(*found, strict=True))


def _plain(ctx: Any) -> Callable[..., State]:
    """`plain_steps` as a function of gates, weight and state, for the backward pass of a call."""
    return lambda gates, weight, *start: plain_steps(ctx.update, gates, weight, start, ctx.counts)


def _weight_gradient(
    grads: list[Tensor], states: list[Tensor], start: Tensor, weight: Tensor, dtype: torch.dtype
) -> Tensor:
    """Weight gradient (D, G, H) from the gate gradients and states after each step, in blocks, and the first state."""
    found = []
    for d in range(len(weight)):
        before = [start[d, : grads[0].size(1)], *(state[d, : grad.size(1)] for state, grad in zip(states, grads[1:]))]
        found.append(torch.mm(torch.cat([grad[d] for grad in grads]).to(dtype).t(), torch.cat(before).to(dtype)))
    return torch.stack(found).to(weight.dtype)


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gates, weight, hidden, cell, update, counts, dtype):
        size, directions = weight.size(-1), len(weight)
        acts = gates.to(torch.promote_types(gates.dtype, torch.float32), copy=True)  # becomes i, f, g, o
        states, cells, squashed = (acts.new_empty(len(acts), size) for _ in range(3))
        product, minus_one = _products(weight, dtype, len(counts)), acts.new_tensor(-1.0)
        h, c = hidden, cell
        for part, state, after, s in zip(
            *(_blocks(x, counts, directions) for x in (acts, states, cells, squashed)), strict=True
        ):
            n = part.size(1)
            part.add_(product(h[:, :n]))
            i, f, g, o = part.split(size, dim=-1)
            g.mul_(2)
            part.sigmoid_()  # all four in one call: tanh(g) = 2 sigmoid(2g) - 1
            torch.add(minus_one, g, alpha=2, out=g)
            torch.mul(i, g, out=after)
            after.addcmul_(f, c[:, :n])
            torch.mul(after, 2, out=s).sigmoid_()
            torch.add(minus_one, s, alpha=2, out=s)
            torch.mul(o, s, out=state)
            h, c = state, after
        ctx.save_for_backward(gates, weight, hidden, cell, acts, states, cells, squashed)
        ctx.update, ctx.counts, ctx.dtype = update, counts, dtype
        ctx.set_materialize_grads(False)
        return states, cells

    @staticmethod
    def backward(ctx, grad_states, grad_cells):  # pyright: ignore[reportIncompatibleMethodOverride]  # torch declares any number
        gates, weight, hidden, cell, acts, states, cells, squashed = ctx.saved_tensors
        if is_differentiated_again():
            found = gradients_of_plain(_plain(ctx), (gates, weight, hidden, cell), (grad_states, grad_cells))
            return *found, None, None, None
        size, directions, counts = weight.size(-1), len(weight), ctx.counts
        product = _products(weight.transpose(1, 2), ctx.dtype, len(counts))
        d_gates = torch.empty_like(acts)
        parts, hiddens, befores, tanhs, outs = (
            _blocks(x, counts, directions) for x in (acts, states, cells, squashed, d_gates)
        )
        of_states, of_cells = ([] if x is None else _blocks(x, counts, directions) for x in (grad_states, grad_cells))
        of_start = any(ctx.needs_input_grad[2:4])
        carry, cell_carry, grad, work = (torch.zeros_like(hidden, dtype=acts.dtype) for _ in range(4))
        for t in range(len(parts) - 1, -1, -1):
            part, s, out = parts[t], tanhs[t], outs[t]
            n = part.size(1)
            i, f, g, o = part.split(size, dim=-1)
            g_h = torch.add(of_states[t], carry[:, :n], out=grad[:, :n]) if of_states else carry[:, :n]
            g_c, through = cell_carry[:, :n], work[:, :n]
            if of_cells:
                g_c.add_(of_cells[t])
            torch.mul(g_h, o, out=through)
            g_c.add_(through)
            through.mul_(s)
            g_c.addcmul_(through, s, value=-1)  # d c' = d c' + d h' o (1 - tanh(c')^2)
            torch.addcmul(part, part, part, value=-1, out=out)  # sigmoid'
            d_i, d_f, d_g, d_o = out.split(size, dim=-1)
            torch.mul(g, g, out=d_g)
            d_g.neg_().add_(1)  # tanh'
            d_i.mul_(g).mul_(g_c)
            d_f.mul_(befores[t - 1][:, :n] if t else cell[:, :n]).mul_(g_c)
            d_g.mul_(i).mul_(g_c)
            d_o.mul_(s).mul_(g_h)
            if t or of_start:
                g_c.mul_(f)
                carry[:, :n] = product(out)
        d_weight = _weight_gradient(outs, hiddens, hidden, weight, ctx.dtype)
        of_state = (carry, cell_carry) if of_start else (None, None)
        return d_gates.to(gates.dtype), d_weight, *of_state, None, None, None


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gates, weight, hidden, update, counts, dtype):
        size, directions = weight.size(-1), len(weight)
        acts = gates.to(torch.promote_types(gates.dtype, torch.float32), copy=True)  # becomes r, z, n
        states, inner = (acts.new_empty(len(acts), size) for _ in range(2))  # the second: U_n h, for the backward pass
        product, minus_one = _products(weight, dtype, len(counts)), acts.new_tensor(-1.0)
        h = hidden
        for part, state, u in zip(*(_blocks(x, counts, directions) for x in (acts, states, inner)), strict=True):
            h = h[:, : part.size(1)]
            of_gates, of_candidate = product(h).split((2 * size, size), dim=-1)
            gate, candidate = part.split((2 * size, size), dim=-1)
            r, z = gate.add_(of_gates).sigmoid_().split(size, dim=-1)
            candidate.addcmul_(r, wide(of_candidate)).mul_(2).sigmoid_()
            torch.add(minus_one, candidate, alpha=2, out=candidate)  # tanh(x) = 2 sigmoid(2x) - 1
            torch.lerp(candidate, h, z, out=state)
            u.copy_(of_candidate)
            h = state
        ctx.save_for_backward(gates, weight, hidden, acts, inner, states)
        ctx.update, ctx.counts, ctx.dtype = update, counts, dtype
        return states

    @staticmethod
    def backward(ctx, grad_states):  # pyright: ignore[reportIncompatibleMethodOverride]  # torch declares any number
        gates, weight, hidden, acts, inner, states = ctx.saved_tensors
        if is_differentiated_again():
            found = gradients_of_plain(_plain(ctx), (gates, weight, hidden), (grad_states,))
            return *found, None, None, None
        size, directions, counts = weight.size(-1), len(weight), ctx.counts
        product = _products(weight.transpose(1, 2), ctx.dtype, len(counts))
        d_gates, d_hidden_gates = torch.empty_like(acts), torch.empty_like(acts)
        tensors = (acts, inner, states, d_gates, d_hidden_gates, grad_states)
        parts, inners, hiddens, outs, hidden_outs, of_states = (_blocks(x, counts, directions) for x in tensors)
        of_start = ctx.needs_input_grad[2]
        carry = torch.zeros_like(hidden, dtype=acts.dtype)  # d h from the next step
        for t in range(len(parts) - 1, -1, -1):
            part, out, whole = parts[t], outs[t], hidden_outs[t]
            n = part.size(1)
            r, z, candidate = part.split(size, dim=-1)
            d_r, d_z, d_n = out.split(size, dim=-1)
            grad = of_states[t] + carry[:, :n]
            kept = torch.mul(grad, z, out=carry[:, :n])  # z g
            torch.sub(grad, kept, out=d_n)  # (1 - z) g
            torch.sub(hiddens[t - 1][:, :n] if t else hidden[:, :n], candidate, out=d_z).mul_(kept)  # (h - n) z g
            d_z.addcmul_(d_z, z, value=-1)  # ... (1 - z)
            d_n.addcmul_(d_n, candidate * candidate, value=-1)  # ... tanh'
            through = d_n * r
            torch.mul(through, inners[t], out=d_r)
            d_r.addcmul_(d_r, r, value=-1)
            whole[..., : 2 * size] = out[..., : 2 * size]
            whole[..., 2 * size :] = through
            if t or of_start:
                kept.add_(product(whole))
        d_weight = _weight_gradient(hidden_outs, hiddens, hidden, weight, ctx.dtype)
        return d_gates.to(gates.dtype), d_weight, carry if of_start else None, None, None, None


def steps(update: Update, gates: Tensor, weight: Tensor, start: State, counts: list[int]) -> State:
    """One layer over all steps.

    Args:
        update: The cell's update in plain torch.
        gates: (P, G) input half of the gates with the bias, in the order i, f, g, o or r, z, n.
        weight: (D, G, H) hidden weights.
        start: h (and c) before the first step, (D, N, H) each, the longest sequence first.
        counts: Number of active sequences at each step; at least one step.

    Returns:
        h (and c) after each step, (P, H) each, in fp32 at least.
    """
    start = tuple(x.to(wide(gates[:0]).dtype) for x in start)
    kernel, dtype = _LSTM if len(start) == 2 else _GRU, product_dtype(weight)
    with torch.autocast(gates.device.type, enabled=False):  # the precision is already chosen
        found = kernel.apply(gates, weight, *start, update, counts, dtype)
    return found if isinstance(found, tuple) else (found,)


def steps_without_gradient(
    gates: Tensor, rows: Tensor | None, weight: Tensor, start: State, counts: list[int]
) -> tuple[Tensor, State]:
    """As `steps`, but nothing is kept for a backward pass, and the gates of a step are looked up when it comes.

    So they stay in the processor's cache, which the gates of all steps together are too large for.

    Args:
        gates: (R, G) as in `steps`; overwritten.
        rows: (P,) the row of each place; without it R = P.
        weight: As in `steps`.
        start: As in `steps`.
        counts: As in `steps`.

    Returns:
        h after each step, (P, H), and h (and c) at the end of each sequence, (D, N, H) each.
    """
    dtype, size, directions = product_dtype(weight), weight.size(-1), len(weight)
    gates, last = wide(gates), tuple(x.to(wide(gates[:0]).dtype, copy=True) for x in start)
    candidate = slice(2 * size, 3 * size)  # g or n: tanh(x) = 2 sigmoid(2x) - 1, so both halves are doubled here
    gates[:, candidate] *= 2
    weight = torch.cat([weight[:, : 2 * size], weight[:, candidate] * 2, weight[:, 3 * size :]], 1)
    advance = _advance_lstm if len(last) == 2 else _advance_gru
    outputs = gates.new_empty(sum(counts) * directions, size)
    with torch.autocast(gates.device.type, enabled=False):  # the precision is already chosen
        product, minus_one = _products(weight, dtype, len(counts)), gates.new_tensor(-1.0)
        blocks = (gates if rows is None else rows).split([directions * n for n in counts])
        h = last[0]
        for n, block, output in zip(counts, blocks, _blocks(outputs, counts, directions), strict=True):
            part = (block if rows is None else gates.index_select(0, block)).view(directions, n, -1)
            advance(part, product(h[:, :n]), h[:, :n], [x[:, :n] for x in last[1:]], minus_one, output)
            h = output
            last[0][:, :n] = output
    return outputs, last


def _advance_lstm(
    part: Tensor, hidden_gates: Tensor, h: Tensor, cells: list[Tensor], minus_one: Tensor, output: Tensor
) -> None:
    """One step: overwrites gates (D, n, G) and c (D, n, H) and writes the new h to `output`."""
    size, cell = output.size(-1), cells[0]
    i, f, g, o = part.add_(hidden_gates).sigmoid_().split(size, dim=-1)
    torch.add(minus_one, g, alpha=2, out=g)
    cell.mul_(f).addcmul_(i, g)
    squashed = torch.mul(cell, 2).sigmoid_()
    torch.add(minus_one, squashed, alpha=2, out=squashed)
    torch.mul(o, squashed, out=output)


def _advance_gru(
    part: Tensor, hidden_gates: Tensor, h: Tensor, cells: list[Tensor], minus_one: Tensor, output: Tensor
) -> None:
    """As `_advance_lstm`."""
    size = output.size(-1)
    gate, candidate = part.split((2 * size, size), dim=-1)
    of_gate, of_candidate = hidden_gates.split((2 * size, size), dim=-1)
    r, z = gate.add_(of_gate).sigmoid_().split(size, dim=-1)
    candidate.addcmul_(r, wide(of_candidate)).sigmoid_()
    torch.add(minus_one, candidate, alpha=2, out=candidate)
    torch.lerp(candidate, h, z, out=output)
