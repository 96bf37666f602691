"""GRU decoders that read a context: the paper's and the conditional GRU (Bahdanau et al. 2015, A.2.2; dl4mt-tutorial).

Shapes: B batch, S source tokens, E embedding, H hidden, M memory, R readout, G gates.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from zoo.layers.elementwise import maxout, tanh
from zoo.layers.masking import masked_mean
from zoo.layers.recurrent import GRUCell

Attend = Callable[[Tensor, int], tuple[Tensor, Tensor]]


class PaperDecoder(nn.Module):
    """s_i = GRU([y_{i-1}; c_i], s_{i-1}) with c_i attended from s_{i-1}; readout maxout(U_o s_{i-1} + V_o y_{i-1} + C_o c_i)."""

    def __init__(self, embedding_size: int, hidden_size: int, memory_size: int, readout_size: int):
        super().__init__()
        self.gru = GRUCell(embedding_size, hidden_size, feed_size=memory_size)
        self.readout = nn.Linear(hidden_size + embedding_size + memory_size, 2 * readout_size)
        self.initial = nn.Linear(memory_size // 2, hidden_size)

    def start(self, memory: Tensor, mask: Tensor) -> Tensor:
        """s_0 = tanh(W_s h_1), h_1 the backward state at the first word: memory (B, S, M) -> (B, H)."""
        return tanh(self.initial(memory[:, 0, memory.size(-1) // 2 :]))

    def project(self, embedded: Tensor) -> Tensor:
        return self.gru.project(embedded)  # (..., G)

    def loop(self):
        """A function of gates, s_{i-1} and attend -> s_i, c_i, what the readout sees of the state, weights."""
        recur = self.gru.loop()

        def step(gates: Tensor, s: Tensor, attend, t: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            context, weights = attend(s, t)  # a(s_{i-1}, h_j), c_i
            return recur(gates, context, (s,))[0], context, s, weights

        return step

    def forward(self, embedded: Tensor, s: Tensor, attend: Attend) -> tuple[Tensor, Tensor]:
        """Teacher forcing: embedded inputs (B, T, E), s_0 (B, H), the attention's loop -> readouts (B, T, R), weights (B, T, S)."""
        gates = self.project(embedded).unsqueeze(2).unbind(1)  # T x (B, 1, G)
        step, s, steps = self.loop(), s.unsqueeze(1), []
        for t in range(embedded.size(1)):
            s, *rest = step(gates[t], s, attend, t)
            steps.append(rest)
        contexts, states, weights = (torch.cat(x, dim=1) for x in zip(*steps, strict=True))
        return self.read(states, embedded, contexts), weights

    def read(self, s: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Readouts (..., R), for all steps at once."""
        return maxout(self.readout(torch.cat([s, embedded, context.to(s.dtype)], dim=-1)))


class ConditionalDecoder(PaperDecoder):
    """s' = GRU_1(y_{i-1}, s_{i-1}), c_i attended from s', s_i = GRU_2(c_i, s'); readout tanh(W s_i + U y_{i-1} + C c_i);
    s_0 = tanh(W mean_j h_j + b)."""

    def __init__(self, embedding_size: int, hidden_size: int, memory_size: int, readout_size: int):
        nn.Module.__init__(self)
        self.gru = GRUCell(embedding_size, hidden_size)
        self.gru_context = GRUCell(0, hidden_size, feed_size=memory_size)
        self.readout = nn.Linear(hidden_size + embedding_size + memory_size, readout_size)
        self.initial = nn.Linear(memory_size, hidden_size)

    def start(self, memory: Tensor, mask: Tensor) -> Tensor:
        return tanh(self.initial(masked_mean(memory, mask)))

    def loop(self):
        first, second = self.gru.loop(), self.gru_context.loop()

        def step(gates: Tensor, s: Tensor, attend, t: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            (s,) = first(gates, None, (s,))  # s'
            context, weights = attend(s, t)
            (s,) = second(self.gru_context.bias, context, (s,))
            return s, context, s, weights

        return step

    def read(self, s: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        return tanh(self.readout(torch.cat([s, embedded, context.to(s.dtype)], dim=-1)))


DECODERS = {"gru": PaperDecoder, "conditional_gru": ConditionalDecoder}
