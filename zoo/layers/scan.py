"""An LSTM layer over sequences of one length that goes on from a given state, as a language model reads a long text piece by piece.

Steps come first in memory, so that a step is one block. The whole recurrence is one autograd function, whose backward pass is written
by hand and forms the weight gradient in one matrix product.

Shapes: T steps, B batch, H hidden size.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.layers.elementwise import tanh_
from zoo.layers.steps import product_dtype, row_product, wants_gradient


class _LSTMScan(torch.autograd.Function):
    """Gates in torch's order i, f, g, o; c' = f c + i g; h' = o tanh(c')."""

    @staticmethod
    def forward(ctx, gates, weight, hidden, cell, dtype, train):
        size = weight.size(1)
        ctx.gates_dtype = gates.dtype
        gates = gates.to(torch.promote_types(gates.dtype, torch.float32), copy=True)  # becomes i, f, g, o
        hidden, cell = hidden.to(gates.dtype), cell.to(gates.dtype)
        minus_one = gates.new_tensor(-1.0)
        product = row_product(weight.to(dtype), pack=train)  # else pieces of a text give the bits of the whole
        states, cells, squashed = (gates.new_empty(*gates.shape[:2], size) for _ in range(3))
        h, c = hidden, cell
        for part, state, after, s in zip(gates, states, cells, squashed, strict=True):
            part.add_(product(h.to(dtype)))
            i, f, g, o = part.split(size, dim=-1)
            g.mul_(2)
            part.sigmoid_()  # all four in one call: tanh(g) = 2 sigmoid(2g) - 1
            torch.add(minus_one, g, alpha=2, out=g)
            torch.mul(i, g, out=after)
            after.addcmul_(f, c)
            tanh_(s.copy_(after))
            torch.mul(o, s, out=state)
            h, c = state, after
        ctx.save_for_backward(gates, states, cells, squashed, weight, hidden, cell)
        ctx.dtype = dtype
        ctx.set_materialize_grads(False)
        return states, cells

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_states, grad_cells):
        gates, states, cells, squashed, weight, hidden, cell = ctx.saved_tensors
        size, product = weight.size(1), row_product(weight.to(ctx.dtype).t(), pack=True)
        d_gates = torch.empty_like(gates)
        carry, cell_carry, grad, work = (torch.zeros_like(hidden) for _ in range(4))
        of_start = any(ctx.needs_input_grad[2:4])
        for t in range(len(gates) - 1, -1, -1):
            s, out = squashed[t], d_gates[t]
            i, f, g, o = gates[t].split(size, dim=-1)
            g_h = carry if grad_states is None else torch.add(grad_states[t], carry, out=grad)
            if grad_cells is not None:
                cell_carry.add_(grad_cells[t])
            torch.mul(g_h, o, out=work)
            cell_carry.add_(work)
            work.mul_(s)
            cell_carry.addcmul_(work, s, value=-1)  # d c' = d c' + d h' o (1 - tanh(c')^2)
            torch.addcmul(gates[t], gates[t], gates[t], value=-1, out=out)  # sigmoid'
            d_i, d_f, d_g, d_o = out.split(size, dim=-1)
            torch.mul(g, g, out=d_g)
            d_g.neg_().add_(1)  # tanh'
            d_i.mul_(g).mul_(cell_carry)
            d_f.mul_(cells[t - 1] if t else cell).mul_(cell_carry)
            d_g.mul_(i).mul_(cell_carry)
            d_o.mul_(s).mul_(g_h)
            if t or of_start:
                cell_carry.mul_(f)
                carry = product(out.to(ctx.dtype)).to(gates.dtype)
        before = torch.cat([hidden.unsqueeze(0), states[:-1]]).flatten(0, 1).to(ctx.dtype)
        d_weight = torch.mm(d_gates.flatten(0, 1).to(ctx.dtype).t(), before).to(weight.dtype)
        return d_gates.to(ctx.gates_dtype), d_weight, carry if of_start else None, cell_carry if of_start else None, None, None


def lstm_scan(gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """One LSTM layer over all steps.

    Args:
        gates: (T, B, 4H) input half of the gates, bias included, in the order i, f, g, o.
        weight: (4H, H) hidden weight.
        hidden: (B, H) state before the first step.
        cell: (B, H) its memory cell.

    Returns:
        h and c after each step, (T, B, H) each, at least fp32.
    """
    return _LSTMScan.apply(gates, weight, hidden, cell, product_dtype(weight), wants_gradient(gates, weight, hidden, cell))
