"""Recurrent cells and encoders that are fast in a Python loop and never depend on padding.

Three facts make a decoder loop slow: the input half of every gate product is computed step by step although all inputs are known,
each step adds its own small product to the weight gradient, and the gates run through a dozen elementwise calls. Here

* the input half is one product over all steps (`cell.project`),
* `StepProduct` (zoo/layers/steps.py) keeps the step's operands and forms the weight gradient in one product after the last step,
* the cells have hand-written backward passes.

An encoder needs no such loop: zoo/layers/packed.py runs it whole.

Shapes: B batch, S or T steps, I input size, H hidden size, G = 4 H (LSTM) or 3 H (GRU) gates.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from zoo.layers.dropout import Dropout
from zoo.layers.elementwise import tanh_
from zoo.layers.masking import lengths_to_mask
from zoo.layers.packed import pack, packed_recurrence, to_padded
from zoo.layers.steps import StepProduct

CellType = Literal["lstm", "gru"]
State = tuple[Tensor, ...]


class _LSTMCell(torch.autograd.Function):
    """Input and hidden half of the gates (..., 4H) in torch's order i, f, g, o. All four go through one sigmoid:
    tanh(g) = 2 sigmoid(2g) - 1."""

    @staticmethod
    def forward(ctx, gates, hidden_gates, cell):
        size = cell.size(-1)
        a = torch.add(gates, hidden_gates).float()
        g = a[..., 2 * size : 3 * size]
        g.mul_(2)
        a.sigmoid_()
        g.mul_(2).sub_(1)
        i, f, g, o = a.split(size, dim=-1)
        new_cell = (f * cell).addcmul_(i, g)
        squashed = tanh_(new_cell.clone())
        ctx.save_for_backward(a, cell, squashed)
        ctx.dtype = gates.dtype
        return o * squashed, new_cell

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_hidden, grad_cell):
        a, cell, squashed = ctx.saved_tensors
        size = cell.size(-1)
        i, f, g, o = a.split(size, dim=-1)
        through = grad_hidden * o
        grad = grad_cell + through  # d loss / d c' = d c' + d h' o (1 - tanh(c')^2)
        grad.addcmul_(through.mul_(squashed), squashed, value=-1)
        out = torch.addcmul(a, a, a, value=-1)  # sigmoid'
        torch.addcmul(out.new_ones(()), g, g, value=-1, out=out[..., 2 * size : 3 * size])  # tanh'
        d_i, d_f, d_g, d_o = out.split(size, dim=-1)
        d_i.mul_(g).mul_(grad)
        d_f.mul_(cell).mul_(grad)
        d_g.mul_(i).mul_(grad)
        d_o.mul_(squashed).mul_(grad_hidden)
        out = out.to(ctx.dtype)
        return out, out, grad.mul_(f)


class _GRUCell(torch.autograd.Function):
    """Input gates and hidden gates (..., 3H) in torch's order r, z, n; the reset gate acts after the hidden product."""

    @staticmethod
    def forward(ctx, gates, hidden_gates, hidden):
        size = hidden.size(-1)
        wide = torch.promote_types(hidden.dtype, torch.float32)
        gates, hidden_gates = gates.to(wide), hidden_gates.to(wide)
        rz = (gates[..., : 2 * size] + hidden_gates[..., : 2 * size]).sigmoid_()
        r, z = rz.split(size, dim=-1)
        inner = hidden_gates[..., 2 * size :]
        n = tanh_(torch.addcmul(gates[..., 2 * size :], r, inner))
        ctx.save_for_backward(rz, n, inner, hidden)
        return torch.lerp(n, hidden, z)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        rz, n, inner, hidden = ctx.saved_tensors
        size = hidden.size(-1)
        r, z = rz.split(size, dim=-1)
        d_gates = grad.new_empty(*grad.shape[:-1], 3 * size)
        slope = rz - rz * rz
        d_n = (grad - grad * z).mul_(1 - n * n)
        d_gates[..., :size] = d_n * inner * slope[..., :size]
        d_gates[..., size : 2 * size] = grad * (hidden - n) * slope[..., size:]
        d_gates[..., 2 * size :] = d_n
        d_hidden_gates = d_gates.clone()
        d_hidden_gates[..., 2 * size :] *= r
        return d_gates, d_hidden_gates, grad * z


class LSTMCell(nn.Module):
    """One LSTM layer: c' = f c + i g, h' = o tanh(c'). Its state is (h, c), each (..., H) in fp32.

    Args:
        input_size: I, inputs known before the loop.
        hidden_size: H.
        feed_size: F, inputs that only the loop itself produces (input feeding, contexts); their columns of the input weight
            come after the I known ones.
    """

    gates = 4

    def __init__(self, input_size: int, hidden_size: int, feed_size: int = 0):
        super().__init__()
        self.input_size, self.hidden_size, self.feed_size = input_size, hidden_size, feed_size
        self.weight_input = nn.Parameter(torch.empty(self.gates * hidden_size, input_size + feed_size))
        self.weight_hidden = nn.Parameter(torch.empty(self.gates * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(self.gates * hidden_size))
        for block in self.weight_input.detach().chunk(self.gates):
            nn.init.xavier_uniform_(block)
        for block in self.weight_hidden.detach().chunk(self.gates):
            nn.init.orthogonal_(block)
        self._init_bias()

    def _init_bias(self) -> None:
        self.bias.detach()[self.hidden_size : 2 * self.hidden_size] = 1.0  # remember by default

    def project(self, inputs: Tensor) -> Tensor:
        """The part of the gates that is known before the loop, for all steps at once: (..., I) -> (..., G)."""
        return nn.functional.linear(inputs, self.weight_input[:, : self.input_size], self.bias)

    @staticmethod
    def gate(gates: Tensor, hidden_gates: Tensor, state: State) -> State:
        """Input half and hidden half of the gates (..., G), state -> new state."""
        return _LSTMCell.apply(gates, hidden_gates, state[1])

    def loop(self) -> Callable[[Tensor, Tensor | None, State], State]:
        """A function `step(gates (..., G), feed (..., F) or None, state) -> state` for the steps of one sequence."""
        weight = self.weight_hidden
        if self.feed_size:  # one product of the concatenated inputs
            weight = torch.cat([self.weight_input[:, self.input_size :], weight], dim=1)
        product = StepProduct(weight)

        def step(gates: Tensor, feed: Tensor | None, state: State) -> State:
            hidden = state[0] if feed is None else torch.cat([feed, state[0]], dim=-1)
            return self.gate(gates, product(hidden), state)

        return step


class GRUCell(LSTMCell):
    """One GRU layer: h' = (1 - z) n + z h, n = tanh(W x + r (U h)), the reset gate after the product as in cuDNN and in
    dl4mt-tutorial. Its state is (h,)."""

    gates = 3

    def _init_bias(self) -> None:
        pass

    @staticmethod
    def gate(gates: Tensor, hidden_gates: Tensor, state: State) -> State:
        return (_GRUCell.apply(gates, hidden_gates, state[0]),)

    def loop(self) -> Callable[[Tensor, Tensor | None, State], State]:
        hidden_product = StepProduct(self.weight_hidden)
        feed_product = StepProduct(self.weight_input[:, self.input_size :]) if self.feed_size else None

        def step(gates: Tensor, feed: Tensor | None, state: State) -> State:
            if feed is not None:
                gates = gates + feed_product(feed)
            return self.gate(gates, hidden_product(state[0]), state)

        return step


CELLS = {"lstm": LSTMCell, "gru": GRUCell}


def _cell_class(cell: str) -> type[LSTMCell]:
    if cell not in CELLS:
        raise ValueError(f"cell must be one of {', '.join(map(repr, CELLS))}; got {cell!r}")
    return CELLS[cell]


class RecurrentEncoder(nn.Module):
    """Stack of (bidirectional) LSTM or GRU layers whose result at real tokens does not depend on the padding.

    Args:
        cell: "lstm" or "gru".
        input_size: I.
        hidden_size: H of each direction.
        num_layers: layers.
        bidirectional: run both ways and concatenate.
        dropout: between layers.
    """

    def __init__(
        self, cell: CellType, input_size: int, hidden_size: int, num_layers: int = 1, bidirectional: bool = True, dropout: float = 0.0
    ):
        super().__init__()
        make = _cell_class(cell)
        directions = 2 if bidirectional else 1
        self.output_size = hidden_size * directions
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            nn.ModuleList(make(input_size if n == 0 else self.output_size, hidden_size) for _ in range(directions))
            for n in range(num_layers)
        )

    def flat(self, inputs: Tensor, lengths: Tensor, rows: Tensor | None = None) -> tuple[Tensor, list[State]]:
        """Encode sequences that lie flat behind each other; P items in all.

        Args:
            inputs: (R, I) inputs.
            lengths: (N,) int64 items of each sequence; 0 is allowed.
            rows: (P,) which of the inputs each item is, if they repeat (the distinct words of a text); without it R = P.

        Returns:
            memory (P, H * directions), and for each layer its final state, the directions concatenated: h (and c),
            (N, H * directions) each, zeros for an empty sequence.
        """
        packing = pack(lengths, len(self.layers[0]))
        x, finals = inputs, []
        for n, layer in enumerate(self.layers):
            x = self.dropout(x) if n else x
            gates = nn.functional.linear(
                x, torch.cat([cell.weight_input for cell in layer]), torch.cat([cell.bias for cell in layer])
            )
            weight = torch.stack([cell.weight_hidden for cell in layer])
            x, final = packed_recurrence(gates, weight, packing, None if n else rows)
            finals.append(final)
        return x, finals

    def forward(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, list[State]]:
        """Encode a padded batch.

        Args:
            inputs: (B, S, I), pads after `lengths`.
            lengths: (B,) int64.

        Returns:
            memory (B, S, H * directions), zero on pads, and the final states as in `flat`.
        """
        mask = lengths_to_mask(lengths, inputs.size(1))  # (B, S)
        flat, finals = self.flat(inputs[mask], lengths)
        return to_padded(flat, mask), finals


class RecurrentDecoder(nn.Module):
    """Stack of LSTM or GRU cells, run over a whole target at once or step by step with fed-back inputs.

    State: one flat tuple, the tensors of layer 0, then of layer 1, ..., each (..., H).

    Args:
        cell, input_size, hidden_size, num_layers, dropout: as in RecurrentEncoder.
        feed_size: size of what the loop feeds back into the first layer; 0 for nothing.
    """

    def __init__(
        self, cell: CellType, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0, feed_size: int = 0
    ):
        super().__init__()
        make = _cell_class(cell)
        self.hidden_size = hidden_size
        self.cells = nn.ModuleList(
            make(hidden_size if n else input_size, hidden_size, 0 if n else feed_size) for n in range(num_layers)
        )
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """All steps at once: inputs (B, T, I), state tensors (B, H) -> top outputs (B, T, H), last state."""
        x, finals = inputs, ()
        width = len(state) // len(self.cells)
        for n, cell in enumerate(self.cells):
            step, layer, outputs = cell.loop(), state[n * width : (n + 1) * width], []
            for gates in cell.project(self.dropout(x) if n else x).unbind(1):
                layer = step(gates, None, layer)
                outputs.append(layer[0])
            x, finals = torch.stack(outputs, dim=1), finals + layer
        return x, finals

    def project(self, inputs: Tensor) -> Tensor:
        """First layer's gates from the inputs known before the loop: (..., I) -> (..., G)."""
        return self.cells[0].project(inputs)

    def loop(self) -> Callable[[Tensor, Tensor | None, State], tuple[Tensor, State]]:
        """A function `step(gates (..., G), feed (..., F) or None, state) -> (top hidden (..., H), state)`."""
        loops = [cell.loop() for cell in self.cells]
        above = [StepProduct(cell.weight_input) for cell in self.cells[1:]]

        def step(gates: Tensor, feed: Tensor | None, state: State) -> tuple[Tensor, State]:
            width = len(state) // len(loops)
            new = loops[0](gates, feed, state[:width])
            top = new[0]
            for n, product in enumerate(above, start=1):
                gates = product(self.dropout(top)) + self.cells[n].bias
                layer = loops[n](gates, None, state[n * width : (n + 1) * width])
                top, new = layer[0], new + layer
            return top, new

        return step
