"""Speed and memory of the classifiers beside the same models as they are usually written, in one run.

    python benchmarks/classification.py [--threads 2] [--batches 6] [--rounds 5] [--device cpu]

* HAN: documents of 1 to 15 sentences of 1 to 25 words, GRU 50 + 50 at both levels, embeddings 200, vocabulary 20,000,
  batch 64.
* self-attention: sentences of 3 to 60 words, embeddings 100, BiLSTM 300 each way, 30 hops, attention size 350, classes
  straight from the embedding (a dense hidden layer would cost both the same), batch 64.

Words follow Zipf's law. Both sides see the same documents, sort nothing beforehand, and are trained with the same
optimiser.

* plain: pack_padded_sequence at each level, torch's GRU or LSTM, dense attention over the padded result.
* limit: the matrix products alone, each timed alone, for the real words: no elementwise work, no optimiser.
* peak: memory above what the process had before, each side in a process of its own; on a GPU what it allocated there.
* share: of the limit, ours.
"""

import argparse
from collections.abc import Callable

import measuring
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from zoo.batches.classification import DocumentBatch, TextBatch, collate_documents, collate_texts
from zoo.models.han import HAN
from zoo.models.structured_self_attention import StructuredSelfAttention

B, V = 64, 20_000


class PlainHAN(nn.Module):
    """Hierarchical attention with packed sequences and padded attention."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, 200)
        self.words, self.sentences = (nn.GRU(n, 50, bidirectional=True, batch_first=True) for n in (200, 100))
        self.project = nn.ModuleList(nn.Linear(100, 100) for _ in range(2))
        self.context = nn.ParameterList(torch.randn(100) * 0.1 for _ in range(2))
        self.out = nn.Linear(100, 2)

    def attend(self, level: int, rnn: nn.Module, x: Tensor, lengths: Tensor) -> Tensor:
        packed, _ = rnn(pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False))
        h, _ = pad_packed_sequence(packed, batch_first=True)
        scores = torch.tanh(self.project[level](h)) @ self.context[level]
        mask = torch.arange(h.size(1), device=h.device) < lengths.unsqueeze(1)
        return torch.bmm(scores.masked_fill(~mask, -torch.inf).softmax(1).unsqueeze(1), h).squeeze(1)

    def forward(self, words: Tensor, sentence_lengths: Tensor, document_lengths: Tensor) -> Tensor:
        sentences = self.attend(0, self.words, self.embedding(words), sentence_lengths)
        padded = nn.utils.rnn.pad_sequence(sentences.split(document_lengths.tolist()), batch_first=True)
        return self.out(self.attend(1, self.sentences, padded, document_lengths))

    @staticmethod
    def inputs(batch: DocumentBatch) -> tuple[Tensor, Tensor, Tensor]:
        padded = nn.utils.rnn.pad_sequence(batch.words.split(batch.sentence_lengths.tolist()), batch_first=True)
        return padded, batch.sentence_lengths, batch.document_lengths

    def loss(self, inputs: tuple, labels: Tensor) -> Tensor:
        return cross_entropy(self(*inputs), labels, reduction="sum")


class PlainSelfAttention(nn.Module):
    """Structured self-attention over a packed LSTM."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, 100)
        self.rnn = nn.LSTM(100, 300, bidirectional=True, batch_first=True)
        self.w1, self.w2 = nn.Linear(600, 350, bias=False), nn.Linear(350, 30, bias=False)
        self.out = nn.Sequential(nn.Flatten(), nn.Linear(30 * 600, 2))

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed, _ = self.rnn(
            pack_padded_sequence(self.embedding(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False)
        )
        h, _ = pad_packed_sequence(packed, batch_first=True)
        mask = torch.arange(h.size(1), device=h.device) < lengths.view(-1, 1, 1)
        a = self.w2(torch.tanh(self.w1(h))).transpose(1, 2).masked_fill(~mask, -torch.inf).softmax(-1)
        return self.out(torch.bmm(a, h)), a

    @staticmethod
    def inputs(batch: TextBatch) -> tuple[Tensor, Tensor]:
        return batch.tokens, batch.lengths

    def loss(self, inputs: tuple, labels: Tensor) -> Tensor:
        logits, a = self(*inputs)
        penalty = (torch.bmm(a, a.transpose(1, 2)) - torch.eye(30, device=a.device)).square().sum()
        return cross_entropy(logits, labels, reduction="sum") + penalty


def words(rng: np.random.Generator, count: int) -> list[int]:
    return (rng.zipf(1.2, count) % (V - 4) + 4).tolist()


def documents(rng: np.random.Generator) -> DocumentBatch:
    sentences = np.clip(np.rint(rng.lognormal(2.0, 0.6, B)), 1, 15).astype(int)
    rows = [[words(rng, int(n)) for n in np.clip(np.rint(rng.lognormal(2.6, 0.6, s)), 1, 25)] for s in sentences]
    return collate_documents(rows, torch.arange(B) % 2)


def texts(rng: np.random.Generator) -> TextBatch:
    lengths = np.clip(np.rint(rng.lognormal(2.9, 0.5, B)), 3, 60).astype(int)
    return collate_texts([words(rng, int(n)) for n in lengths], torch.arange(B) % 2)


def make(task: str, side: str) -> tuple[nn.Module, Callable]:
    torch.manual_seed(0)
    if task == "HAN":
        return (HAN(V, 2, dropout=0.0), documents) if side == "ours" else (PlainHAN(), documents)
    ours = dict(embedding_size=100, hidden_size=300, attention_size=350, hops=30, mlp_size=0, dropout=0.0)
    return (StructuredSelfAttention(V, 2, **ours), texts) if side == "ours" else (PlainSelfAttention(), texts)


def jobs(task: str, side: str, count: int, device: torch.device) -> tuple[dict[str, Callable[[], None]], int]:
    """Training and inference over `count` batches, as functions, and their number of words."""
    model, draw = make(task, side)
    rng = np.random.default_rng(0)
    data = [measuring.on(draw(rng), device) for _ in range(count)]
    model.to(device)
    plain = side == "plain"
    inputs = [model.inputs(batch) for batch in data] if plain else data  # its padding costs the baseline nothing here
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def train(dtype: torch.dtype) -> Callable[[], None]:
        def run() -> None:
            model.train()
            for batch, given in zip(data, inputs):
                with measuring.autocast(device, dtype):
                    loss = model.loss(given, batch.labels) if plain else model.loss(given)[0]
                optimizer.zero_grad()
                (loss / B).backward()
                optimizer.step()

        return run

    def infer(dtype: torch.dtype) -> Callable[[], None]:
        @torch.no_grad()
        def run() -> None:
            model.eval()
            for given in inputs:
                with measuring.autocast(device, dtype):
                    model(*given) if plain else model(given)

        return run

    total = sum(int(batch.words.numel() if task == "HAN" else batch.lengths.sum()) for batch in data)
    found = {}
    for name, dtype in measuring.precisions(device).items():
        found |= {f"train {name}": train(dtype), f"infer {name}": infer(dtype)}
    return found, total


def limit(task: str, batch: DocumentBatch | TextBatch, backward: bool, device: torch.device) -> float:
    """Seconds of the products of one batch: (rows, inner size, columns, times)."""
    if task == "HAN":
        p, n, s = batch.words.numel(), len(batch.sentence_lengths), int(batch.sentence_lengths.max())
        steps = [(round(p / s), 50, 150, 2 * s), (round(n / 15), 50, 150, 2 * 15)]
        shapes = [(p, 200, 300, 1), (p, 100, 100, 1), (n, 100, 300, 1), (n, 100, 100, 1), *steps]
    else:
        p, s = int(batch.lengths.sum()), int(batch.lengths.max())
        steps = [(round(p / s), 300, 1200, 2 * s)]
        shapes = [(p, 100, 2400, 1), (p, 600, 350, 1), (p, 350, 30, 1), (30, round(p / B), 600, B), *steps]
    return sum(
        times * measuring.product_seconds(rows, k, n, torch.float32, backward, device) for rows, k, n, times in shapes
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    options = measuring.parse(parser)
    device = options.device
    for task in ("HAN", "self-attention"):
        sides = {side: jobs(task, side, options.batches, device) for side in ("ours", "plain")}
        total = sides["ours"][1]
        alternated = {(job, side): sides[side][0][job] for job in sides["ours"][0] for side in sides}
        seconds = measuring.fastest(alternated, options.rounds, device)
        batch = make(task, "ours")[1](np.random.default_rng(0))
        print(f"\n{task}: {total / options.batches:.0f} words a batch of {B}")
        print(
            f"{'':12}{'ours, words/s':>16}{'plain':>10}{'ratio':>8}{'limit':>10}{'peak MB':>10}{'plain':>8}{'share':>8}"
        )
        for job in sides["ours"][0]:
            ours, plain = (total / seconds[job, side] for side in ("ours", "plain"))
            line = f"{job:12}{ours:16.0f}{plain:10.0f}{ours / plain:8.2f}"
            if job.endswith("fp32"):
                top = total / options.batches / limit(task, batch, job.startswith("train"), device)
                peaks = [
                    measuring.peak(jobs, (task, side, options.batches), job, options.threads, device) for side in sides
                ]
                line += f"{top:10.0f}{peaks[0]:10.0f}{peaks[1]:8.0f}{ours / top:8.0%}"
            print(line)


if __name__ == "__main__":
    main()
