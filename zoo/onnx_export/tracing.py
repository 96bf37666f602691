"""Replacements for parts of this package that cannot be traced.

Shapes: B batch, S length, T steps, L window, H hidden size of all directions.
"""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from zoo.layers import recurrent
from zoo.layers.attention import AttentionMemory, LocalPredictiveStarAttention, replaced
from zoo.layers.masking import masked_softmax
from zoo.layers.multi_head import MultiHeadAttention
from zoo.layers.window import window_mask
from zoo.models import key_value_predict_lm as language_models
from zoo.tasks.base import ZooModule

State = tuple[Tensor, ...]


class Recurrence(nn.Module):
    """Layers of cells as ONNX's LSTM or GRU; called like a RecurrentEncoder, optionally with an initial state.

    Args:
        layers: the cells of each layer, one per direction.
    """

    def __init__(self, layers: Iterable[Iterable[recurrent.LSTMCell]]):
        super().__init__()
        layers = [[*layer] for layer in layers]
        self.gru, self.directions = isinstance(layers[0][0], recurrent.GRUCell), len(layers[0])
        order = [1, 0, 2] if self.gru else [0, 3, 1, 2]  # ONNX has z, r, n and i, o, f, g

        def gates(x: Tensor) -> Tensor:
            return x.unflatten(0, (len(order), -1))[order].flatten(0, 1)

        self.weights = nn.ParameterList()  # per layer: input, hidden, bias, all (directions, ...)
        for layer in layers:
            self.weights.append(torch.stack([gates(cell.weight_input) for cell in layer]))
            self.weights.append(torch.stack([gates(cell.weight_hidden) for cell in layer]))
            self.weights.append(
                torch.stack([torch.cat([gates(cell.bias), torch.zeros_like(cell.bias)]) for cell in layer])
            )
        self.requires_grad_(False)

    def forward(self, inputs: Tensor, lengths: Tensor, state: State = ()) -> tuple[Tensor, list[State]]:
        """Reads a padded batch.

        Args:
            inputs: (B, S, I).
            lengths: (B,).
            state: for one direction: h (and c) of each layer in turn, (B, H) each; zeros if not given.

        Returns:
            (B, S, H), zero after the lengths unless a row is empty, and h (and c) of each layer after the last step,
            (B, H) each.
        """
        x, finals, real = inputs, [], lengths.unsqueeze(1) > 0
        kind, width = ("GRU", 1) if self.gru else ("LSTM", 2)
        # for an empty row onnxruntime may leave the memory uninitialised: it gets one step, whose result is discarded
        steps = lengths.clamp(min=1).int()
        for n in range(len(self.weights) // 3):
            weights, before = [self.weights[3 * n + i] for i in range(3)], state[width * n : width * (n + 1)]
            size = weights[1].size(-1)
            attributes = {"direction": "bidirectional" if self.directions == 2 else "forward", "hidden_size": size}
            if self.gru:
                attributes["linear_before_reset"] = 1
            of_state = (self.directions, x.size(0), size)
            shapes = [(x.size(1), *of_state), *[of_state] * width]
            given = [x.transpose(0, 1), *weights, steps, *(y.unsqueeze(0) for y in before)]
            outputs, *final = torch.onnx.ops.symbolic_multi_out(
                kind, given, attributes, dtypes=[torch.float32] * len(shapes), shapes=shapes, version=14
            )
            x = outputs.permute(2, 0, 1, 3).flatten(2)  # from (S, directions, B, H of one)
            final = [y.transpose(0, 1).flatten(1) for y in final]
            finals.append(
                tuple(torch.where(real, y, old) for y, old in zip(final, before))
                if before
                else tuple(y * real for y in final)
            )
        return x, finals


class _LSTMStep(nn.Module):
    """An LSTMCell with one product instead of two, and its gates in the order i, f, o, g: one sigmoid for three.

    Args:
        cell: with weights for inputs (..., I) and a state of (..., H).
    """

    def __init__(self, cell: recurrent.LSTMCell):
        super().__init__()
        self.size = cell.hidden_size
        order = torch.arange(4 * self.size).unflatten(0, (4, -1))[[0, 1, 3, 2]].flatten()
        self.weight = nn.Parameter(torch.cat([cell.weight_input, cell.weight_hidden], 1)[order], requires_grad=False)
        self.bias = nn.Parameter(cell.bias[order], requires_grad=False)

    def forward(self, inputs: Tensor, state: State) -> State:
        gates = nn.functional.linear(torch.cat([inputs, state[0]], -1), self.weight, self.bias)
        opening, g = gates.split([3 * self.size, self.size], -1)
        i, f, o = torch.sigmoid(opening).chunk(3, -1)
        cell = f * state[1] + i * torch.tanh(g)
        return o * torch.tanh(cell), cell


class _LocalPredictiveStarAttention(LocalPredictiveStarAttention):
    """The D best of S positions and D that are never chosen: D is then constant, however short the text."""

    def project(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        gate = torch.sigmoid(self.v_p(torch.tanh(self.w_p(memory))).squeeze(-1)) * mask
        best = nn.functional.pad(gate, (0, self.window), value=-1.0).topk(self.window, dim=-1).indices
        chosen = (best.unsqueeze(-1) == torch.arange(gate.size(1))).any(1)
        return super(LocalPredictiveStarAttention, self).project(memory, mask & chosen)._replace(gate=gate)


class _MultiHeadAttention(MultiHeadAttention):
    """Eq. 1 itself: torch's fused kernel would become a copy of all keys, transposed and scaled, at every step."""

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.matmul(queries * keys.size(-1) ** -0.5, keys.transpose(-1, -2))

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
        if causal:
            raise ValueError("only encoders and single steps are exported; got causal attention")
        scores = self.scores(self.split(self.query(x)), keys)
        weights = scores.softmax(-1) if mask is None else masked_softmax(scores, mask)
        weights = replaced(weights, None if given is None else given.unsqueeze(1))
        found = torch.matmul(weights, values)
        return self.output(found.transpose(1, 2).flatten(2)), weights if show else None


class _NGram(language_models._NGram):
    """Without the built-in `len`, which would make the number of steps a constant; likewise the next function."""

    def forward(self, outputs: Tensor, known: Tensor | None) -> tuple[Tensor, None]:
        steps, slices = outputs.size(0) - self.length, outputs.split(self.size, dim=-1)
        shifted = [part.narrow(0, self.length - n, steps) for n, part in enumerate(slices)]
        return torch.tanh(self.w_n(torch.cat(shifted, dim=-1))), None


class _WindowAttention(language_models.WindowAttention):
    """Copies each window instead of using views (zoo/layers/window.py)."""

    def forward(self, outputs: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        parts, window = outputs.split(self.size, dim=-1), self.length
        key, value, predict = parts[0], parts[min(1, len(parts) - 1)], parts[-1]
        steps = outputs.size(0) - window
        weights = masked_softmax(self.scores(key[window:], key[:-1]), window_mask(known, steps, window))
        context = (weights.transpose(1, 2).unsqueeze(-1) * value[self._seen(steps)]).sum(1)
        return torch.tanh(self.w_r(context) + self.w_x(predict[window:])), weights

    def scores(self, key: Tensor, before: Tensor) -> Tensor:
        hidden = torch.tanh(self.w_h(key).unsqueeze(1) + self.w_y(before)[self._seen(key.size(0))])  # (T, L, B, K)
        return torch.matmul(hidden, self.w).transpose(1, 2)

    def _seen(self, steps: int) -> Tensor:
        """Steps in each window (T, L), the nearest first."""
        return torch.arange(steps).unsqueeze(1) + torch.arange(self.length - 1, -1, -1)


_TRACEABLE = {
    MultiHeadAttention: _MultiHeadAttention,
    LocalPredictiveStarAttention: _LocalPredictiveStarAttention,
    language_models._NGram: _NGram,
    **dict.fromkeys(
        (language_models.WindowAttention, language_models._KeyValue, language_models._KeyValuePredict), _WindowAttention
    ),
}


def traceable(model: ZooModule) -> Any:
    """A copy of a model whose parts can be traced; the `cells` of a language model become one Recurrence."""
    model = copy.deepcopy(model).requires_grad_(False)
    for name, module in [*model.named_modules()]:
        if isinstance(module, recurrent.RecurrentEncoder):
            model.set_submodule(name, Recurrence(module.layers))
        module.__class__ = _TRACEABLE.get(type(module), type(module))
    if isinstance(model, language_models.KeyValuePredictLM):
        model.set_submodule("cells", Recurrence([cell] for cell in model.cells))
    for decoder in [module for module in model.modules() if isinstance(module, recurrent.RecurrentDecoder)]:
        for n, cell in enumerate(decoder.cells):
            decoder.cells[n] = _LSTMStep(cell) if type(cell) is recurrent.LSTMCell else cell
    return model
