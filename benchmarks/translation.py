"""Speed of training and decoding as shares of what the matrix products alone would take, in one run.

    python benchmarks/translation.py [--threads 2] [--batches 8] [--root DATA] [--device cpu] [--peers ENVIRONMENT]

Model: BiLSTM 2 x 256 -> LSTM 512 with input feeding, general score, embeddings 256, vocabulary 8,000, batch 64.
Data: Multi30k English-German if --root (or ZOO_DATA) has it, else invented sentences of its lengths.

* limit: the products of the real tokens only, each timed alone at the shape it can have (all steps at once where
  nothing is recurrent, 64 rows a step where something is). No padding, no elementwise work, no optimiser. torch.mm
  computes them; a search, whose weights are packed once (docs/kernels.md), can be faster than that.
* plain: the best plain form of the same model: packed nn.LSTM, nn.LSTMCell in a loop, and outside of the loop the keys
  of the attention and the output layer, over real tokens only.
* share: limit / measured. All figures are the best of several alternated rounds.
* decoding: exactly 25 tokens a sentence on all sides.
* --peers: OpenNMT-py in fp32 and ours in fp32 and, where the processor has it, bf16 (`precision`: bf16-mixed of the
  Trainer, bf16 of the verbs), on the same sentences, in processes of their own (peers/ours.py, peers/opennmt.py),
  alternated, by processor time. Its environment: `python -m venv ENVIRONMENT`, then there `pip install torch
  configargparse pyonmttok pyyaml sacrebleu six ctranslate2 rapidfuzz pyahocorasick tensorboard spacy flask waitress
  fasttext-wheel` and `pip install --no-deps OpenNMT-py==3.5.1`, whose own limit on torch is not met, nor needed here.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import measuring
import torch
from torch import Tensor, nn

from zoo.batches.translation import PairBatch
from zoo.data import Multi30k, ParallelText
from zoo.layers.masking import lengths_to_mask
from zoo.models.luong import LuongNMT
from zoo.text import EOS, PAD

B, E, H, V, LAYERS, DROPOUT = 64, 256, 512, 8000, 1, 0.2
WRITTEN = 25  # target tokens of each sentence in decoding: an untrained model would stop anywhere


PEER = "OpenNMT-py"
UNITS = {
    "train": "training, target tokens per CPU second",
    "greedy": "greedy, sentences per CPU second",
    "beam": "beam 5, sentences per CPU second",
    "memory": "peak memory of training, MB",
    "grown": "    of which beyond the imports, MB",
}


class Plain(nn.Module):
    """The model as a good toolkit writes it: all that can be outside of the loop over the target tokens is."""

    def __init__(self):
        super().__init__()
        self.src, self.tgt = nn.Embedding(V, E, PAD), nn.Embedding(V, E, PAD)
        self.encoder = nn.LSTM(E, H // 2, LAYERS, bidirectional=True, batch_first=True)
        self.cell = nn.LSTMCell(E + H, H)
        self.w_a, self.w_c, self.out = nn.Linear(H, H, bias=False), nn.Linear(2 * H, H, bias=False), nn.Linear(H, V)
        self.dropout = nn.Dropout(DROPOUT)

    def loss(self, batch: PairBatch) -> tuple[Tensor, int]:
        lengths = batch.src_lengths.cpu()
        packed = nn.utils.rnn.pack_padded_sequence(
            self.dropout(self.src(batch.src)), lengths, True, enforce_sorted=False
        )
        memory, (h, c) = self.encoder(packed)
        memory = self.dropout(nn.utils.rnn.pad_packed_sequence(memory, True)[0])
        mask = lengths_to_mask(batch.src_lengths, memory.size(1))
        h, c = h[-2:].transpose(0, 1).flatten(1), c[-2:].transpose(0, 1).flatten(1)
        feed, readouts = torch.zeros_like(h), []
        keys, embedded = self.w_a(memory), self.dropout(self.tgt(batch.tgt[:, :-1]))
        for t in range(embedded.size(1)):
            h, c, feed = self.step(embedded[:, t], h, c, feed, keys, memory, mask)
            readouts.append(feed)
        labels = batch.tgt[:, 1:]
        real = labels != PAD
        logits = self.out(torch.stack(readouts, 1)[real])
        return nn.functional.cross_entropy(logits, labels[real], reduction="sum"), int(real.sum())

    def step(
        self, embedded: Tensor, h: Tensor, c: Tensor, feed: Tensor, keys: Tensor, memory: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        h, c = self.cell(torch.cat([embedded, feed], 1), (h, c))
        scores = torch.bmm(keys, h.unsqueeze(2)).squeeze(2).masked_fill(~mask, float("-inf"))
        context = torch.bmm(scores.softmax(1).unsqueeze(1), memory).squeeze(1)
        return h, c, self.dropout(torch.tanh(self.w_c(torch.cat([context, h], 1))))


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
    encoder = [(src_tokens, E, 2 * H, 2), (src_tokens, H, H, 1), (B, H // 2, 2 * H, 2 * LAYERS * src_steps)]
    encoder += [(src_tokens, H, 2 * H, 2 * (LAYERS - 1))]
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


def beside(
    environment: str, data: list[PairBatch], threads: int, rounds: int, limits: dict[str, dict[str, float]]
) -> None:
    """Alternates this model in each precision and OpenNMT-py, each in processes of their own, on the same sentences.

    Args:
        environment: of OpenNMT-py.
        data: batches.
        threads: of each process.
        rounds: runs of each side.
        limits: precision -> key of UNITS -> what the matrix products alone would reach.
    """
    with tempfile.TemporaryDirectory() as folder:
        for side, rows in (("src", [b.src[:, :] for b in data]), ("tgt", [b.tgt[:, 1:] for b in data])):
            lines = [" ".join(f"w{n}" for n in row if n > EOS) for part in rows for row in part.tolist()]
            Path(folder, side).write_text("".join(line + "\n" for line in lines))
        Path(folder, "vocabulary").write_text("".join(f"w{n}\t1\n" for n in range(EOS + 1, V)))
        torch.save([tuple(batch) for batch in data], Path(folder, "batches"))
        settings = dict(folder=folder, threads=threads, batch=B, embedding=E, hidden=H, layers=LAYERS, dropout=DROPOUT)
        settings |= dict(vocabulary=V, written=WRITTEN, steps=3 * len(data))
        here = Path(__file__).parent
        sides = {precision: (sys.executable, "ours", precision) for precision in limits}
        sides[PEER] = (str(Path(environment, "bin", "python")), "opennmt", "fp32")
        found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, (python, script, precision) in sides.items():
                run = subprocess.run(
                    [python, str(here / "peers" / f"{script}.py"), json.dumps(settings | {"precision": precision})],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if run.returncode:
                    sys.exit(f"{python}: {run.stderr.strip().splitlines()[-1]}")
                found[name].append(json.loads(run.stdout.strip().splitlines()[-1]))
        print(f"\n{rounds} alternated runs, best of each; ratio: to {PEER}; share: of the limit in that precision")
        heads = "".join(f"{f'ours {name}':>12}{'ratio':>7}{'share':>7}" for name in limits)
        print(f"{'':44}{PEER:>12}{heads}")
        for key, unit in UNITS.items():
            best = min if key in ("memory", "grown") else max
            values = {name: best(run[key] for run in runs) for name, runs in found.items()}
            row = f"{unit:44}{values[PEER]:12.1f}"
            for name, most in limits.items():
                share = f"{values[name] / most[key]:7.0%}" if key in most else " " * 7
                row += f"{values[name]:12.1f}{values[name] / values[PEER]:7.2f}{share}"
            print(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", nargs="*", default=[], help="Python environments that have OpenNMT-py")
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
    model = LuongNMT(V, V, embedding_size=E, hidden_size=H, encoder_layers=LAYERS, dropout=DROPOUT).to(device)
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
            for batch in data:
                model._search(batch.src, batch.src_lengths, beam, max_length=WRITTEN, return_attention=False)

        return run

    def bound(dtype: torch.dtype, beam: int | None = None) -> float:
        return limit(round(src), round(tgt) if beam is None else B * WRITTEN, dtype, beam is None, device, beam)

    jobs = {}
    for name, dtype in measuring.precisions(device).items():
        cast = partial(measuring.cast, device=device, dtype=dtype)
        jobs |= {
            f"train {name}": (train(model, dtype), bound(dtype), tgt),
            f"train {name}, plain": (train(plain, dtype), bound(dtype), tgt),
            f"greedy {name}": (cast(decode(1)), bound(dtype, 1), B * WRITTEN),
            f"beam 5 {name}": (cast(decode(5)), bound(dtype, 5), B * WRITTEN),
        }
    seconds = measuring.fastest({name: run for name, (run, *_) in jobs.items()}, options.rounds, device)
    print(f"{'':20}{'tokens/s':>10}{'sentences/s':>13}{'limit':>10}{'share':>8}")
    for name, (_, least, tokens) in jobs.items():
        speed, top = tokens * len(data) / seconds[name], tokens / least
        print(f"{name:20}{speed:10.0f}{B * len(data) / seconds[name]:13.1f}{top:10.0f}{speed / top:8.0%}")
    print(f"ours / plain training speed: {seconds['train fp32, plain'] / seconds['train fp32']:.2f}")
    limits = {
        name: {
            "train": tgt / bound(dtype),
            "greedy": B / bound(dtype, 1),
            "beam": B / bound(dtype, 5),
        }
        for name, dtype in (measuring.precisions(device) if options.peers else {}).items()
    }
    for peers in options.peers:
        beside(peers, data, options.threads, options.rounds, limits)


if __name__ == "__main__":
    main()
