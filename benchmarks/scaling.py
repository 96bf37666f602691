"""Training by several processes: tokens per CPU second, bytes sent, time and overlap of the all-reduce, beside what
docs/scaling.md predicts.

Run by hand: python benchmarks/scaling.py [--processes 1 2] [--steps 40], and with --predict for GPUs

The model is that of recipes/luong_general.multi30k_en_de.yaml on invented pairs of the lengths of Multi30k, batch 64 in
each process, trained by the Trainer with ddp (gloo) and one thread for each process. On fewer free cores than processes
the wall clock says little: CPU seconds are the measure.
"""

import argparse
import json
import logging
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from zoo.data import ParallelText
from zoo.models.luong import LuongNMT
from zoo.tasks.optimizer import AdamW

WARM = 5  # steps before the measurement


def write_pairs(path: Path, count: int) -> None:
    """Invented pairs, 6 to 22 words on both sides."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abdeghiklmnoprstu", k=rng.randint(2, 8))) for _ in range(4000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            length = rng.randint(6, 20)
            sides = [" ".join(rng.choices(words, weights, k=length + rng.randint(0, 2))) for _ in range(2)]
            file.write("\t".join(sides) + "\n")


class Watch(Callback):
    """Measures the steps after the first ones: tokens, CPU seconds, and the all-reduces through a hook of ddp."""

    def __init__(self) -> None:
        self.tokens = self.bytes = 0
        self.alone = self.cpu = self.wall = self.reducing = self.exposed = 0.0
        self._begun, self._spans = 0.0, []

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.world_size > 1:
            trainer.strategy.model.register_comm_hook(None, self._reduce)

    def _reduce(self, state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """The all-reduce that ddp does itself, with a note of its bytes and of its time."""
        buffer = bucket.buffer().div_(dist.get_world_size())
        span = [time.perf_counter(), 0.0]
        self._spans.append(span)
        self.bytes += buffer.numel() * buffer.element_size()

        def done(future: torch.futures.Future) -> Tensor:
            span[1] = time.perf_counter()
            return future.value()[0]

        return dist.all_reduce(buffer, async_op=True).get_future().then(done)

    def on_after_backward(self, trainer: Trainer, pl_module: Any) -> None:
        """All buckets are there: what the last began after all gradients, nothing hides."""
        if self._spans:
            self.reducing += max(end for _, end in self._spans) - self._spans[0][0]
            self.exposed += max(end for _, end in self._spans) - self._spans[-1][0]
            self._spans = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == WARM:  # not batch_idx, which begins again in each epoch
            self.bytes, self.reducing, self.exposed = 0, 0.0, 0.0
            self.cpu, self.wall = time.process_time(), time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step > WARM:
            self.tokens += int(batch.tgt_lengths.sum())

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.cpu, self.wall = time.process_time() - self.cpu, time.perf_counter() - self.wall
        if trainer.world_size > 1:  # while all processes are still there
            self.alone = seconds_of_reduce(pl_module)


def work(folder: Path, steps: int) -> None:
    """One process of the training; writes what it measured."""
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    world = int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    sizes = {"src_vocab_size": 5000, "tgt_vocab_size": 5000, "hidden_size": 384, "encoder_layers": 2}
    model = LuongNMT(**sizes, shared_vocab=True, tie_output=True)
    model.optimizer = partial(AdamW, lr=1e-4)
    data = ParallelText(str(folder / "pairs.tsv"), cache_dir=str(folder / "cache"), vocab_size=5000)
    watch = Watch()
    trainer = Trainer(
        max_steps=steps + WARM,
        max_epochs=-1,
        accelerator="cpu",
        devices=world,
        strategy="ddp",
        callbacks=[watch],
        gradient_clip_val=1.0,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)
    names = ("alone", "tokens", "bytes", "cpu", "wall", "reducing", "exposed")
    found = {name: getattr(watch, name) for name in names}
    found["parameters"] = sum(p.numel() for p in model.parameters())
    (folder / f"{world}.{trainer.global_rank}.json").write_text(json.dumps(found))


def seconds_of_reduce(model: torch.nn.Module, rounds: int = 10) -> float:
    """CPU seconds of one all-reduce of as many numbers as the model has, while nothing else runs."""
    buffer = torch.zeros(sum(p.numel() for p in model.parameters()))
    dist.all_reduce(buffer)
    begin = time.process_time()
    for _ in range(rounds):
        dist.all_reduce(buffer)
    return (time.process_time() - begin) / rounds


def measured(folder: Path, processes: int, steps: int) -> list[dict[str, float]]:
    """What each of several processes found."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", port]
    command = [*launch, __file__, "--work", str(folder), "--steps", str(steps)]
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return [json.loads((folder / f"{processes}.{rank}.json").read_text()) for rank in range(processes)]


def report(folder: Path, counts: list[int], steps: int) -> None:
    alone = None
    titles = ["processes", "target tokens per CPU second", "predicted", "MB reduced per step", "all-reduce", "hidden"]
    print(f"| {' | '.join(titles)} |")
    print("|---:|---:|---:|---:|---:|---:|")
    for processes in counts:
        found = measured(folder, processes, steps)
        speed = sum(each["tokens"] for each in found) / sum(each["cpu"] for each in found)
        first = found[0]
        tokens = sum(each["tokens"] for each in found) / processes / steps  # of a step and process
        alone = alone or speed
        predicted = tokens / (tokens / alone + first["alone"])
        share = f"{first['reducing'] / first['wall']:.0%}" if processes > 1 else "-"
        hidden = f"{1 - first['exposed'] / first['reducing']:.0%}" if processes > 1 else "-"
        cells = f"{speed:,.0f} | {predicted:,.0f} | {first['bytes'] / steps / 1e6:.1f} | {share} | {hidden}"
        print(f"| {processes} | {cells} |", flush=True)
    print(f"\n{found[0]['parameters']:,} parameters, {steps} steps, torch {torch.__version__}")


LINKS = {"NVLink": 450e9, "InfiniBand 400 Gb/s": 50e9, "Ethernet 10 Gb/s": 1.25e9}  # bytes/s, one direction
PAIRS, PAIR = 4_500_000, 30  # of WMT14; target tokens of a pair


def predict(parameters: float, tokens: int, teraflops: float, operations: int, launch: float) -> None:
    """The table of several GPUs: a flat ring, in which no time of the all-reduce is hidden."""
    flops = 6 * parameters * 2 * tokens  # forward 2, backward 4, for the tokens of both sides
    compute = max(flops / (teraflops * 1e12), operations * launch * 1e-6)
    print(
        f"{parameters:,.0f} parameters, {4 * parameters / 1e6:.0f} MB of gradients, {compute * 1e3:.1f} ms to compute"
    )
    print("| GPUs | link | MB sent by each GPU per step | all-reduce, ms | efficiency | minutes an epoch |")
    print("|---:|---|---:|---:|---:|---:|")
    for gpus in (8, 64):
        for name, speed in LINKS.items():
            sent = 2 * (gpus - 1) / gpus * 4 * parameters
            step = compute + sent / speed
            epoch = PAIRS * PAIR / (tokens * gpus) * step / 60
            cells = f"{sent / 1e6:,.0f} | {sent / speed * 1e3:.1f} | {compute / step:.0%} | {epoch:.1f}"
            print(f"| {gpus} | {name} | {cells} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--predict", action="store_true", help="print the table of 8 and 64 GPUs, which is calculated")
    parser.add_argument("--parameters", type=float, default=60e6)
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens of a batch on each GPU")
    parser.add_argument("--teraflops", type=float, default=100, help="that a GPU reaches")
    parser.add_argument("--operations", type=int, default=1600, help="launches of a step, see host_operations.py")
    parser.add_argument("--launch", type=float, default=5.0, help="microseconds of a launch")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.steps)
        return
    if options.predict:
        predict(options.parameters, options.tokens, options.teraflops, options.operations, options.launch)
        return
    with tempfile.TemporaryDirectory() as temporary:
        pairs = 64 * max(options.processes) * (options.steps + WARM + 1)  # one epoch of it is enough
        write_pairs(Path(temporary) / "pairs.tsv", pairs)
        report(Path(temporary), options.processes, options.steps)


if __name__ == "__main__":
    main()
