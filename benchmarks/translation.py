"""Speed of training and decoding as shares of what the matrix products alone would take, in one run.

    python benchmarks/translation.py [--threads 2] [--batches 8] [--root DATA] [--device cpu]

Model: BiLSTM 2 x 256 (2 layers) -> LSTM 512 with input feeding, general score, embeddings 256, vocabulary 8,000, batch
64.
Data: Multi30k English-German if --root (or ZOO_DATA) has it, else invented sentences of its lengths.

* limit: the products of the real tokens only, each timed alone at the shape it can have (all steps at once where
  nothing is recurrent, 64 rows a step where something is). No padding, no elementwise work, no optimiser.
* plain: the same model as tutorials write it (packed nn.LSTM, nn.LSTMCell in a loop, output layer over all positions).
* share: limit / measured. All figures are the best of several alternated rounds.
* peak memory: of the process, or what it allocated on the GPU.
"""

import argparse
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import measuring
import torch
from torch import Tensor, nn

from zoo.batches.translation import PairBatch
from zoo.data import Multi30k, ParallelText
from zoo.layers.masking import lengths_to_mask
from zoo.models.luong import LuongNMT
from zoo.text import EOS, PAD

B, E, H, V = 64, 256, 512, 8000


class Plain(nn.Module):
    """The model the way it is usually written."""

    def __init__(self):
        super().__init__()
        self.src, self.tgt = nn.Embedding(V, E, PAD), nn.Embedding(V, E, PAD)
        self.encoder = nn.LSTM(E, H // 2, 2, bidirectional=True, batch_first=True)
        self.cell = nn.LSTMCell(E + H, H)
        self.w_a, self.w_c, self.out = nn.Linear(H, H, bias=False), nn.Linear(2 * H, H, bias=False), nn.Linear(H, V)

    def loss(self, batch: PairBatch) -> tuple[Tensor, int]:
        lengths = batch.src_lengths.cpu()
        packed = nn.utils.rnn.pack_padded_sequence(self.src(batch.src), lengths, True, enforce_sorted=False)
        memory, (h, c) = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(memory, True)
        mask = lengths_to_mask(batch.src_lengths, memory.size(1))
        h, c = h[-2:].transpose(0, 1).flatten(1), c[-2:].transpose(0, 1).flatten(1)
        feed, embedded, logits = torch.zeros_like(h), self.tgt(batch.tgt[:, :-1]), []
        for t in range(embedded.size(1)):
            h, c = self.cell(torch.cat([embedded[:, t], feed], 1), (h, c))
            scores = torch.bmm(self.w_a(memory), h.unsqueeze(2)).squeeze(2).masked_fill(~mask, float("-inf"))
            context = torch.bmm(scores.softmax(1).unsqueeze(1), memory).squeeze(1)
            feed = torch.tanh(self.w_c(torch.cat([context, h], 1)))
            logits.append(self.out(feed))
        labels = batch.tgt[:, 1:]
        loss = nn.functional.cross_entropy(
            torch.stack(logits, 1).flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction="sum"
        )
        return loss, int((labels != PAD).sum())


def limit(
    src_tokens: int,
    tgt_tokens: int,
    dtype: torch.dtype,
    backward: bool,
    device: torch.device,
    beam: int | None = None,
) -> float:
    """Seconds of the products of one batch with these numbers of real tokens."""
    rows, steps, src_steps = B * (beam or 1), tgt_tokens / B, src_tokens / B
    encoder = [
        (src_tokens, E, 2 * H, 2),
        (src_tokens, H, 2 * H, 2),
        (src_tokens, H, H, 1),
        (B, H // 2, 2 * H, 4 * src_steps),
    ]
    if beam is None:  # training: what is not recurrent, all steps at once
        decoder = [(tgt_tokens, E, 4 * H, 1), (B, 2 * H, 4 * H, steps), (B, 2 * H, H, steps), (tgt_tokens, H, V, 1)]
    else:
        decoder = [(rows, E, 4 * H, steps), (rows, 2 * H, 4 * H, steps), (rows, 2 * H, H, steps), (rows, H, V, steps)]
    return sum(
        times * measuring.product_seconds(m, k, n, dtype, backward, device) for m, k, n, times in encoder + decoder
    )


def batches(root: str | None, count: int, cache: str) -> list[PairBatch]:
    options = dict(batch_size=B, vocab_size=V, cache_dir=cache)
    if root:
        data = Multi30k(root=root, **options)
    else:
        rng = random.Random(0)
        words = [f"{rng.randrange(16**4):04x}" for _ in range(7000)]
        for side in ("a", "b"):
            lengths = [min(40, max(3, round(rng.gauss(12, 4)))) for _ in range(8000)]
            text = "".join(" ".join(rng.choices(words, k=n)) + "\n" for n in sorted(lengths))
            Path(cache, side).write_text(text, encoding="utf-8")
        pair = [str(Path(cache, side)) for side in "ab"]
        data = ParallelText(train_src=pair[0], train_tgt=pair[1], val_src=pair[0], val_tgt=pair[1], **options)
    data.prepare_data()
    data.setup("fit")
    loader = data.train_dataloader()
    found = [batch for batch, _ in zip(loader, range(count))]
    return [batch for batch in found if len(batch.src) == B]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--root", default=os.environ.get("ZOO_DATA") or None)
    options = measuring.parse(parser)
    device = options.device
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as cache:
        data = batches(options.root, options.batches, cache)
    src = sum(int(b.src_lengths.sum()) for b in data) / len(data)
    tgt = sum(int(b.tgt_lengths.sum()) for b in data) / len(data)
    cells = sum(b.src.numel() + b.tgt[:, 1:].numel() for b in data) / len(data)
    padding = 1 - (src + tgt) / cells
    print(
        f"{len(data)} batches of {B}: {src / B:.1f} source and {tgt / B:.1f} target tokens a sentence, padding "
        f"{padding:.1%}"
    )

    data = [measuring.on(batch, device) for batch in data]
    model = LuongNMT(V, V, embedding_size=E, hidden_size=H, encoder_layers=2, dropout=0.2).to(device)
    plain = Plain().to(device)

    def train(net: nn.Module, dtype: torch.dtype) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(net.parameters(), fused=True)
        net.train()

        def run():
            for batch in data:
                with measuring.autocast(device, dtype):
                    loss, tokens = net.loss(batch)
                optimizer.zero_grad()
                (loss / tokens).backward()
                optimizer.step()

        return run

    def decode(beam: int) -> Callable[[], None]:
        def run():
            model.eval()
            model.embeddings.output.bias.data[EOS] = -1e9
            for batch in data:  # until the length of the reference: an untrained model would stop anywhere
                model._search(batch.src, batch.src_lengths, beam, max_length=batch.tgt_lengths)

        return run

    def bound(dtype: torch.dtype, beam: int | None = None) -> float:
        return limit(round(src), round(tgt), dtype, beam is None, device, beam)

    jobs = {
        "train fp32": (train(model, torch.float32), bound(torch.float32)),
        "train fp32, plain": (train(plain, torch.float32), bound(torch.float32)),
        "train bf16-mixed": (train(model, torch.bfloat16), bound(torch.bfloat16)),
        "greedy fp32": (decode(1), bound(torch.float32, 1)),
        "beam 5 fp32": (decode(5), bound(torch.float32, 5)),
    }
    seconds = measuring.fastest({name: run for name, (run, _) in jobs.items()}, options.rounds, device)
    print(f"{'':20}{'tokens/s':>10}{'limit':>10}{'share':>8}")
    for name, (_, least) in jobs.items():
        speed, top = tgt * len(data) / seconds[name], tgt / least
        print(f"{name:20}{speed:10.0f}{top:10.0f}{speed / top:8.0%}")
    print(f"bf16-mixed / fp32 training speed: {seconds['train fp32'] / seconds['train bf16-mixed']:.2f}")
    print(f"ours / plain training speed: {seconds['train fp32, plain'] / seconds['train fp32']:.2f}")
    print(f"peak memory {measuring.high_water(device):.0f} MB")


if __name__ == "__main__":
    main()
