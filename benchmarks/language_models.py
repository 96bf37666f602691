"""Speed of the language models beside the same models as a Python loop over nn.LSTMCell, in one run.

    python benchmarks/language_models.py [--threads 1] [--batches 3] [--rounds 5] [--window 5] [--device cpu]

20 streams, segments of 35 words, vocabulary 10,000, embeddings 240 (tied), key, value and predict of 240 each (an LSTM
of 720); the plain LSTM has 720 too. Both sides read the same words, carry their state (and keys and values) from batch
to batch, have the same output layer and optimiser, and no dropout.

* loop: at each step the LSTM cell, then additive attention to the last L outputs; the output layer once for all steps.
* all inside: the same with the output layer and its loss inside the loop.
* written: words a second of greedy completions, 20 side by side.
"""

import argparse
from collections.abc import Callable

import measuring
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from zoo.batches.language_modelling import LMBatch
from zoo.layers.search import search
from zoo.models.key_value_predict_lm import KeyValuePredictLM

B, T, V, E = 20, 35, 10_000, 240


class Loop(nn.Module):
    """Key-value-predict attention, or none, step by step."""

    def __init__(self, attention: bool, window: int, inside: bool):
        super().__init__()
        self.attention, self.window, self.inside, self.past = attention, window, inside, None
        self.table = nn.Embedding(V, E)
        self.cell = nn.LSTMCell(E, 3 * E)
        self.out = nn.Linear(E, V)
        self.out.weight = self.table.weight
        if attention:
            self.w_y, self.w_h, self.w_r, self.w_x = (nn.Linear(E, E, bias=False) for _ in range(4))
            self.w = nn.Parameter(torch.randn(E) * E**-0.5)
        else:
            self.bridge = nn.Linear(3 * E, E, bias=False)

    def step(
        self, x: Tensor, state: tuple[Tensor, Tensor], keys: list[Tensor], values: list[Tensor]
    ) -> tuple[Tensor, tuple]:
        state = self.cell(x, state)
        if not self.attention:
            return state[0], state
        key, value, predict = state[0].chunk(3, dim=-1)
        out = self.w_x(predict)
        if keys:
            memory = torch.stack(keys[-self.window :], dim=1)  # (B, L, E)
            scores = torch.tanh(self.w_y(memory) + self.w_h(key).unsqueeze(1)) @ self.w
            weights = scores.softmax(-1).unsqueeze(1)
            out = out + self.w_r(
                torch.bmm(weights, torch.stack(values[-self.window :], dim=1).to(weights.dtype)).squeeze(1)
            )
        keys.append(key)
        values.append(value)
        return torch.tanh(out), state

    def start(self) -> tuple[tuple[Tensor, Tensor], list[Tensor], list[Tensor]]:
        return (torch.zeros(B, 3 * E, device=self.cell.weight_hh.device),) * 2, [], []

    def loss(self, batch: LMBatch) -> Tensor:
        state, keys, values = self.past or self.start()
        keys, values = [*keys], [*values]
        readouts, loss = [], 0.0
        for x, label in zip(self.table(batch.inputs).unbind(1), batch.labels.unbind(1)):
            readout, state = self.step(x, state, keys, values)
            if self.inside:
                loss = loss + cross_entropy(self.logits(readout), label, reduction="sum")
            readouts.append(readout)
        kept = ([x.detach() for x in memory[-self.window :]] for memory in (keys, values))
        self.past = (tuple(x.detach() for x in state), *kept)
        if self.inside:
            return loss
        return cross_entropy(
            self.logits(torch.stack(readouts, dim=1)).flatten(0, 1), batch.labels.flatten(), reduction="sum"
        )

    def logits(self, readouts: Tensor) -> Tensor:
        return self.out(readouts if self.attention else self.bridge(readouts))

    @torch.no_grad()
    def write(self, words: int) -> None:
        state, keys, values = self.start()
        token = torch.full((B,), 3, device=state[0].device)
        for _ in range(words):
            readout, state = self.step(self.table(token), state, keys, values)
            token = self.logits(readout).argmax(-1)


class Ours(KeyValuePredictLM):
    """With the two verbs of the benchmark."""

    def write(self, words: int) -> None:
        state = tuple(x.unsqueeze(1) for x in self.start(B))
        options = {"beam_size": 1, "max_length": words, "min_length": words}
        search(self._step, state, torch.full((B,), 3, device=self.device), **options)


def jobs(
    side: str, attention: str, window: int, batches: list[LMBatch], device: torch.device
) -> dict[str, Callable[[], None]]:
    """Training, reading and writing in fp32 and bf16, as functions."""
    torch.manual_seed(0)
    if side == "ours":
        size = E if attention == "key_value_predict" else 3 * E
        model = Ours(V, attention=attention, window=window, embedding_size=E, hidden_size=size, dropout=0.0)
    else:
        model = Loop(attention == "key_value_predict", window, side == "all inside")
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def train() -> None:
        model.train()
        for batch in batches:
            loss = model.loss(batch)
            optimizer.zero_grad()
            (loss[0] if side == "ours" else loss).div(B * T).backward()
            optimizer.step()

    @torch.no_grad()
    def read() -> None:
        model.eval()
        for batch in batches:
            model.loss(batch)

    def write() -> None:
        model.eval()
        model.write(T * len(batches))

    named, dtypes = {"train": train, "read": read, "written": write}, measuring.precisions(device)
    return {
        f"{name} {label}": measuring.cast(job, device, dtype)
        for label, dtype in dtypes.items()
        for name, job in named.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window", type=int, default=5)
    options = measuring.parse(parser)
    device = options.device
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(4, V, (options.batches, B, T + 1), generator=generator)
    batches = [measuring.on(LMBatch(row[:, :-1], row[:, 1:], n == 0), device) for n, row in enumerate(words)]
    total = B * T * options.batches
    for attention in ("key_value_predict", "none"):
        names = ("ours", "loop", "all inside")
        sides = {side: jobs(side, attention, options.window, batches, device) for side in names}
        alternated = {(job, side): sides[side][job] for job in sides["ours"] for side in sides}
        seconds = measuring.fastest(alternated, options.rounds, device)
        print(f"\n{attention}, window {options.window}: {B} streams of {T} words")
        print(f"{'':14}{'ours, words/s':>16}{'loop':>10}{'ratio':>8}{'all inside':>14}{'ratio':>8}")
        for job in sides["ours"]:
            ours, loop, inside = (total / seconds[job, side] for side in sides)
            print(f"{job:14}{ours:16.0f}{loop:10.0f}{ours / loop:8.2f}{inside:14.0f}{ours / inside:8.2f}")


if __name__ == "__main__":
    main()
