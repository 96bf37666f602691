"""LSTM and GRU cells, and encoders and decoders built from them, whose results never depend on padding.

A layer runs over whole sequences in one of three ways that give the same numbers: the loop over its cells below,
torch's fused `torch.lstm` and `torch.gru` (cuDNN's on a GPU), or the kernel in zoo/layers/kernels/recurrence.py on a
CPU. The loop is the reference; it runs if a cell has hooks or was replaced, under the transforms of torch.func, which
the others do not support, and on a CPU for a single step.

Shapes: B batch, S or T steps, N sequences, P items of all of them, D directions, I input size, H hidden size, G = 4 H
(LSTM) or 3 H (GRU).
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from zoo.layers import kernels
from zoo.layers.checks import check_lengths, check_shape
from zoo.layers.dropout import Dropout
from zoo.layers.kernels import as_weight, recurrence, wide
from zoo.layers.kernels.function import wants_gradient
from zoo.layers.kernels.products import linear
from zoo.layers.masking import lengths_to_mask
from zoo.layers.module_list import ModuleList
from zoo.layers.packed import Packing, pack, step_major, to_padded

CellType = Literal["lstm", "gru"]
State = tuple[Tensor, ...]
Cells: TypeAlias = "Sequence[LSTMCell] | ModuleList[LSTMCell]"


class LSTMCell(nn.Module):
    """One step of an LSTM: c' = f c + i g, h' = o tanh(c'). Its state is (h, c), each (..., H) in fp32 at least.

    Args:
        input_size: I.
        hidden_size: H.
    """

    kind = "lstm"
    gates, state_size = 4, 2

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_input = nn.Parameter(torch.empty(self.gates * hidden_size, input_size))  # i, f, g, o stacked
        self.weight_hidden = nn.Parameter(torch.empty(self.gates * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(self.gates * hidden_size))
        for block in self.weight_input.detach().chunk(self.gates):
            nn.init.xavier_uniform_(block)
        for block in self.weight_hidden.detach().chunk(self.gates):
            if not block.is_meta:  # of a mere shape, older torch would import its compiler for the QR decomposition
                nn.init.orthogonal_(block)
        self._init_bias()

    def _init_bias(self) -> None:
        self.bias.detach()[self.hidden_size : 2 * self.hidden_size] = 1.0  # remember by default

    def forward(self, inputs: Tensor, state: State) -> State:
        """inputs (..., I), state (..., H) -> new state."""
        inputs = as_weight(inputs, self.weight_input)
        gates = linear(inputs, self.weight_input, self.bias)
        hidden_gates = linear(state[0].to(inputs.dtype), self.weight_hidden)
        return self.update(gates, hidden_gates, state)

    @staticmethod
    def update(gates: Tensor, hidden_gates: Tensor, state: State) -> State:
        """Input half and hidden half of the gates (..., G), state -> new state."""
        i, f, g, o = wide(gates + hidden_gates).chunk(4, dim=-1)
        cell = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)  # c' = f c + i g
        return torch.sigmoid(o) * torch.tanh(cell), cell  # h' = o tanh(c')


class GRUCell(LSTMCell):
    """One step of a GRU: h' = (1 - z) n + z h, n = tanh(W x + r (U h)). Its state is (h,).

    The reset gate acts after the product, as in cuDNN and dl4mt-tutorial.
    """

    kind = "gru"
    gates, state_size = 3, 1

    def _init_bias(self) -> None:
        pass

    @staticmethod
    def update(gates: Tensor, hidden_gates: Tensor, state: State) -> State:
        (r, z, n), (hidden_r, hidden_z, hidden_n) = (wide(x).chunk(3, dim=-1) for x in (gates, hidden_gates))
        z = torch.sigmoid(z + hidden_z)
        n = torch.tanh(n + torch.sigmoid(r + hidden_r) * hidden_n)  # the reset gate acts after the product
        return ((1 - z) * n + z * state[0],)  # h' = (1 - z) n + z h


CELLS = {"lstm": LSTMCell, "gru": GRUCell}
_METHODS = {kind: kernels.methods_of(kind, "forward", "update") for kind in CELLS.values()}


def _cell_class(cell: str) -> type[LSTMCell]:
    if cell not in CELLS:
        raise ValueError(f"cell must be one of {', '.join(map(repr, CELLS))}; got {cell!r}")
    return CELLS[cell]


# ---- a layer over whole sequences ----


def run_layer(
    cells: Cells,
    inputs: Tensor,
    packing: Packing,
    rows: Tensor | None = None,
    start: State | None = None,
    hidden_weights: Sequence[Tensor] | None = None,
) -> tuple[Tensor, State]:
    """One recurrent layer over flat sequences, in one direction or in both.

    Args:
        cells: One for each direction, forward first.
        inputs: (R, I).
        packing: `pack(lengths, D)`.
        rows: (P,) the input of each item, where inputs repeat (the distinct words of a text); without it R = P.
        start: h (and c) before the first step, (N, D * H) each; zeros if not given.
        hidden_weights: Replace the cells' `weight_hidden`, e.g. after dropout.

    Returns:
        Outputs (P, D * H), and h (and c) at the end of each sequence, (N, D * H) each, in fp32 at least, `start` for
        an empty one.
    """
    kind, size, directions = CELLS[cells[0].kind], cells[0].hidden_size, len(cells)
    inputs = as_weight(inputs, cells[0].weight_input)
    if start is None:
        zeros = wide(inputs[:0]).new_zeros(len(packing.last), directions * size)
        start = tuple(zeros for _ in range(kind.state_size))
    if not packing.counts:  # only empty sequences
        return as_weight(start[0].new_zeros(0, directions * size), cells[0].weight_input), start
    if len(packing.counts) == 1 and packing.order is None and inputs.device.type == "cpu":
        # one step of all sequences: the cell alone is the fastest way
        hidden_weight = None if hidden_weights is None else hidden_weights[0]
        final = _call(cells[0], inputs if rows is None else inputs[rows], start, hidden_weight)
        return as_weight(final[0], cells[0].weight_input), final
    first = tuple(x.unflatten(-1, (directions, size)).transpose(0, 1)[:, packing.ranks] for x in start)  # (D, N, H)
    if kernels.is_transformed() or not all(kernels.is_as_written(cell, kind, _METHODS[kind]) for cell in cells):
        outputs, finals = _by_steps(cells, inputs if rows is None else inputs[rows], packing, first, hidden_weights)
    else:
        weights = [cell.weight_hidden for cell in cells] if hidden_weights is None else hidden_weights
        if kernels.usable("recurrence", inputs, *first, *weights) and not _is_torch_faster(kind, packing, inputs):
            outputs, finals = _by_kernel(cells, inputs, packing, rows, first, weights)
        else:
            outputs, finals = _fused(cells, inputs if rows is None else inputs[rows], packing, first, weights)
    back = packing.ranks.argsort()
    return as_weight(outputs, cells[0].weight_input), tuple(x.transpose(0, 1).flatten(1)[back] for x in finals)


def _is_torch_faster(kind: type[LSTMCell], packing: Packing, inputs: Tensor) -> bool:
    """Whether torch's own layer is faster than the kernel on a CPU.

    It is for rows of equal length in one direction: for an LSTM (oneDNN's), and for a GRU without a gradient. Under
    autocast the kernel's products have lower precision.
    """
    if packing.order is not None or torch.is_autocast_enabled("cpu"):
        return False
    return kind is LSTMCell or not torch.is_grad_enabled()


def _ends(states: Sequence[Tensor], first: Tensor, packing: Packing) -> Tensor:
    """Final states, the longest sequence first: per direction states (P, H) in the order of places -> (D, N, H)."""
    last = packing.last[packing.ranks].unsqueeze(-1)
    return torch.stack(
        [torch.where(last >= 0, x[last.squeeze(-1).clamp(min=0)], old) for x, old in zip(states, first, strict=True)]
    )


def _call(cell: nn.Module, inputs: Tensor, state: State, hidden_weight: Tensor | None) -> State:
    """cell(inputs, state), with another `weight_hidden` if one is given."""
    if hidden_weight is None:
        return cell(inputs, state)
    return functional_call(cell, {"weight_hidden": hidden_weight}, (inputs, state))


def _by_steps(
    cells: Cells, inputs: Tensor, packing: Packing, first: State, hidden_weights: Sequence[Tensor] | None
) -> tuple[Tensor, State]:
    """The reference: calls each cell at each step."""
    outputs, ends = [], []
    for d, cell in enumerate(cells):
        ordered = inputs if packing.order is None else inputs[packing.order[d]]
        state, found = tuple(x[d] for x in first), []
        hidden_weight = None if hidden_weights is None else hidden_weights[d]
        for x in ordered.split(packing.counts):
            state = tuple(y[: len(x)] for y in state)
            state = _call(cell, x, state, hidden_weight)
            found.append(state)
        states = tuple(torch.cat(x) for x in zip(*found, strict=True))  # (P, H) each
        outputs.append(states[0] if packing.places is None else states[0][packing.places[d]])
        ends.append(states)
    finals = tuple(_ends(x, old, packing) for x, old in zip(zip(*ends, strict=True), first, strict=True))
    return torch.cat(outputs, dim=-1), finals


def _fused(
    cells: Cells, inputs: Tensor, packing: Packing, first: State, weights: Sequence[Tensor]
) -> tuple[Tensor, State]:
    """torch's own layer, cuDNN's on a GPU. It has a second bias, which is 0 here."""
    running = packing.counts[0]
    with torch.autocast(inputs.device.type, enabled=inputs.is_cuda and torch.is_autocast_enabled("cuda")):
        data = inputs if packing.order is None else inputs[packing.order[0]]
        parts = [
            [cell.weight_input, w, cell.bias, torch.zeros_like(cell.bias)]
            for cell, w in zip(cells, weights, strict=True)
        ]
        parameters = [x for part in parts for x in part]
        start = tuple(x[:, :running].to(parameters[0].dtype).contiguous() for x in first)
        layer: Any = torch.lstm if len(start) == 2 else torch.gru
        state: Any = start if len(start) == 2 else start[0]
        options = True, 1, 0.0, torch.is_grad_enabled(), len(cells) == 2  # biases, layers, dropout, train, directions
        data = data.to(parameters[0].dtype)
        if packing.order is None:  # sequences of one length, which torch can export, too
            steps = data.unflatten(0, (len(packing.counts), running))
            outputs, *ends = layer(steps, state, parameters, *options, False)
            outputs = outputs.flatten(0, 1)
        else:
            counts = torch.tensor(packing.counts, device="cpu")
            outputs, *ends = layer(data, counts, state, parameters, *options)
    finals = tuple(torch.cat([wide(x), old[:, running:]], dim=1) for x, old in zip(ends, first, strict=True))
    return wide(outputs if packing.places is None else outputs[packing.places[0]]), finals


def _by_kernel(
    cells: Cells,
    inputs: Tensor,
    packing: Packing,
    rows: Tensor | None,
    first: State,
    weights: Sequence[Tensor],
) -> tuple[Tensor, State]:
    """All steps of all directions at once; the input half of the gates is computed once per distinct input."""
    directions = len(cells)
    gates = functional.linear(
        inputs, torch.cat([cell.weight_input for cell in cells]), torch.cat([cell.bias for cell in cells])
    )
    learning = wants_gradient(gates, *weights, *first)
    if packing.order is None or packing.places is None:
        if not learning:
            return recurrence.steps_without_gradient(gates, None, weights[0].unsqueeze(0), first, packing.counts)
        states = recurrence.steps(cells[0].update, gates, weights[0].unsqueeze(0), first, packing.counts)
        return states[0], tuple(_ends([x], old, packing) for x, old in zip(states, first, strict=True))
    counts = torch.tensor(packing.counts, device=inputs.device)
    step = torch.repeat_interleave(counts)  # (P,) of each place
    direction = torch.arange(directions, device=inputs.device).unsqueeze(1)
    # a step's block holds the directions one after the other
    before = (directions - 1) * (counts.cumsum(0) - counts)[step]
    blocks = torch.arange(len(step), device=inputs.device) + before + direction * counts[step]  # (D, P)
    row = packing.order if rows is None else rows[packing.order]
    index = torch.empty_like(row.flatten()).scatter_(0, blocks.flatten(), (row * directions + direction).flatten())
    gates, back = gates.reshape(len(gates) * directions, -1), blocks.gather(1, packing.places).t()
    if not learning:
        weight = torch.stack([*weights])
        outputs, finals = recurrence.steps_without_gradient(gates, index, weight, first, packing.counts)
        return functional.embedding(back, outputs).flatten(1), finals
    gates = functional.embedding(index, gates)  # (P * D, G)
    states = recurrence.steps(cells[0].update, gates, torch.stack([*weights]), first, packing.counts)
    outputs = functional.embedding(back, states[0]).flatten(1)
    finals = tuple(_ends([x[block] for block in blocks], old, packing) for x, old in zip(states, first, strict=True))
    return outputs, finals


class RecurrentEncoder(nn.Module):
    """Stack of (bidirectional) LSTM or GRU layers whose result at real tokens does not depend on the padding.

    Args:
        cell: "lstm" or "gru".
        input_size: I.
        hidden_size: H of each direction.
        num_layers: layers.
        bidirectional: run in both directions and concatenate.
        dropout: between layers.
    """

    def __init__(
        self,
        cell: CellType,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        make = _cell_class(cell)
        directions = 2 if bidirectional else 1
        self.output_size = hidden_size * directions
        self.dropout = Dropout(dropout)
        self.layers = ModuleList(
            ModuleList(make(input_size if n == 0 else self.output_size, hidden_size) for _ in range(directions))
            for n in range(num_layers)
        )

    def flat(self, inputs: Tensor, lengths: Tensor, rows: Tensor | None = None) -> tuple[Tensor, list[State]]:
        """Encodes flat sequences (zoo/layers/packed.py); P items in all.

        Raises:
            ValueError: lengths that do not fit, on a CPU.

        Args:
            inputs: (R, I) inputs.
            lengths: (N,) int64, number of items in each sequence; 0 is allowed.
            rows: (P,) the input of each item, if inputs repeat (the distinct words of a text); without it R = P.

        Returns:
            memory (P, H * directions), and for each layer its final state with the directions concatenated: h (and
            c), (N, H * directions) each, zeros for an empty sequence.
        """
        lengths = check_lengths(lengths, len(lengths), total=len(inputs if rows is None else rows))
        packing = pack(lengths, len(self.layers[0]))
        x, finals = inputs, []
        for n, layer in enumerate(self.layers):
            x, final = run_layer(layer, self.dropout(x) if n else x, packing, None if n else rows)
            finals.append(final)
        return x, finals

    def forward(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, list[State]]:
        """Encodes a padded batch.

        Args:
            inputs: (B, S, I), padded after `lengths`.
            lengths: (B,) int, at most S.

        Returns:
            memory (B, S, H * directions), zero on padding, and the final states as in `flat`.

        Raises:
            ValueError: another shape or type, or on a CPU a length below 0 or above S.
        """
        lengths = check_lengths(lengths, len(inputs), most=inputs.size(1))
        mask = lengths_to_mask(lengths, inputs.size(1))  # (B, S)
        flat, finals = self.flat(inputs[mask], lengths)
        return to_padded(flat, mask), finals


class RecurrentDecoder(nn.Module):
    """Stack of LSTM or GRU cells, run over a whole target at once or one step at a time.

    Its state is one flat tuple: the tensors of layer 0, then of layer 1, ..., each (..., H).

    Args:
        cell, hidden_size, num_layers, dropout: as in RecurrentEncoder.
        input_size: I, including what a step feeds back.
    """

    def __init__(self, cell: CellType, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0):
        super().__init__()
        make = _cell_class(cell)
        self.hidden_size = hidden_size
        self.cells = ModuleList(make(hidden_size if n else input_size, hidden_size) for n in range(num_layers))
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """All steps at once: inputs (B, T, I), state tensors (B, H) -> top outputs (B, T, H), last state.

        Raises:
            ValueError: a state of another size, or another number of them.
        """
        batch, steps = inputs.shape[:2]
        if len(state) != (most := len(self.cells) * self.cells[0].state_size):
            raise ValueError(f"state must have {most} tensors, those of each layer in turn; got {len(state)}")
        for x in state:
            check_shape("a state", x, "B, H", batch, self.hidden_size)
        packing, width = step_major(steps, batch, inputs.device), len(state) // len(self.cells)
        x, finals = inputs.transpose(0, 1).flatten(0, 1), ()  # (T * B, I)
        for n, cell in enumerate(self.cells):
            x, final = run_layer([cell], self.dropout(x) if n else x, packing, start=state[n * width : (n + 1) * width])
            finals += final
        return x.unflatten(0, (steps, batch)).transpose(0, 1), finals

    def step(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """One step: inputs (..., I), state tensors (..., H) -> top output (..., H), new state."""
        x, new, width = inputs, (), len(state) // len(self.cells)
        for n, cell in enumerate(self.cells):
            layer = cell(self.dropout(x) if n else x, state[n * width : (n + 1) * width])
            x, new = layer[0], new + layer
        return as_weight(x, self.cells[-1].bias), new
