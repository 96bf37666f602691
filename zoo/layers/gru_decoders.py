"""GRU decoders that read a context: the paper's and the conditional GRU (Bahdanau et al. 2015, A.2.2; dl4mt-tutorial).

Shapes: B batch, S source tokens, T target tokens, K hypotheses (or 1 target token), E embedding, H hidden, M memory, R
readout.
"""

import torch
from torch import Tensor, nn

from zoo.layers.attention import AttentionMemory, GlobalAttention
from zoo.layers.masking import masked_mean
from zoo.layers.maxout import maxout
from zoo.layers.recurrent import GRUCell


class PaperDecoder(nn.Module):
    """s_i = GRU([y_{i-1}; c_i], s_{i-1}) with c_i attended from s_{i-1}; readout maxout(U_o s_{i-1} + V_o y_{i-1} + C_o
    c_i).
    """

    def __init__(self, embedding_size: int, hidden_size: int, memory_size: int, readout_size: int):
        super().__init__()
        self.gru = GRUCell(embedding_size + memory_size, hidden_size)
        self.readout = nn.Linear(hidden_size + embedding_size + memory_size, 2 * readout_size)
        self.initial = nn.Linear(memory_size // 2, hidden_size)

    def start(self, memory: Tensor, mask: Tensor) -> Tensor:
        """s_0 = tanh(W_s h_1), h_1 the backward state at the first word: memory (B, S, M) -> (B, H)."""
        return torch.tanh(self.initial(memory[:, 0, memory.size(-1) // 2 :]))

    def step(
        self, embedded: Tensor, s: Tensor, attention: GlobalAttention, memory: AttentionMemory
    ) -> tuple[Tensor, ...]:
        """y_{i-1} (B, K, E), s_{i-1} (B, K, H) -> s_i, c_i, what the readout sees of the state, weights (B, K, S)."""
        context, weights = attention(s, memory)  # a(s_{i-1}, h_j), c_i
        (new,) = self.gru(torch.cat([embedded, context.to(embedded.dtype)], dim=-1), (s,))
        return new, context, s, weights

    def read(self, s: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Readouts (..., R), for any number of steps at once."""
        return maxout(self.readout(torch.cat([s, embedded.to(s.dtype), context.to(s.dtype)], dim=-1)))

    def forward(
        self, embedded: Tensor, s: Tensor, attention: GlobalAttention, memory: AttentionMemory
    ) -> tuple[Tensor, Tensor]:
        """Teacher forcing: embedded inputs (B, T, E), s_0 (B, H) -> readouts (B, T, R), weights (B, T, S)."""
        s, found = s.unsqueeze(1), []
        for y in embedded.unsqueeze(2).unbind(1):
            s, *rest = self.step(y, s, attention, memory)
            found.append(rest)
        contexts, states, weights = (torch.cat(x, dim=1) for x in zip(*found, strict=True))
        return self.read(states, embedded, contexts), weights


class ConditionalDecoder(PaperDecoder):
    """s' = GRU_1(y_{i-1}, s_{i-1}), c_i attended from s', s_i = GRU_2(c_i, s'); readout tanh(W s_i + U y_{i-1} + C
    c_i); s_0 = tanh(W mean_j h_j + b)."""

    def __init__(self, embedding_size: int, hidden_size: int, memory_size: int, readout_size: int):
        nn.Module.__init__(self)
        self.gru = GRUCell(embedding_size, hidden_size)
        self.gru_context = GRUCell(memory_size, hidden_size)
        self.readout = nn.Linear(hidden_size + embedding_size + memory_size, readout_size)
        self.initial = nn.Linear(memory_size, hidden_size)

    def start(self, memory: Tensor, mask: Tensor) -> Tensor:
        return torch.tanh(self.initial(masked_mean(memory, mask)))

    def step(
        self, embedded: Tensor, s: Tensor, attention: GlobalAttention, memory: AttentionMemory
    ) -> tuple[Tensor, ...]:
        middle = self.gru(embedded, (s,))  # s'
        context, weights = attention(middle[0], memory)
        (new,) = self.gru_context(context, middle)
        return new, context, new, weights

    def read(self, s: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([s, embedded.to(s.dtype), context.to(s.dtype)], dim=-1)))


DECODERS = {"gru": PaperDecoder, "conditional_gru": ConditionalDecoder}
