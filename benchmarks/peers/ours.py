"""This package's side of `translation.py --peers`: trains through the Trainer and decodes, then prints one JSON line.

Its only argument is the JSON that translation.py gives to all sides; "precision" in it is "fp32" or "bf16".
"""

import json
import sys
import time
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch._dynamo  # as in opennmt.py
from torch.utils.data import DataLoader

from zoo.batches.translation import PairBatch
from zoo.models.luong import LuongNMT
from zoo.text import EOS
from zoo.utils.allocator import keep_freed_memory
from zoo.utils.memory import peak_memory


def high_water() -> float:
    return (peak_memory() or 0) / 2**20


class Times(pl.Callback):
    """Processor time and target tokens at the start of each step."""

    def __init__(self) -> None:
        self.seconds, self.tokens = [], []

    def on_train_batch_start(self, trainer, module, batch, batch_idx) -> None:
        self.seconds.append(time.process_time())
        self.tokens.append(int(batch.tgt_lengths.sum()))

    def rate(self, skipped: int = 5) -> float:
        """Tokens a second after some steps."""
        return sum(self.tokens[skipped:-1]) / (self.seconds[-1] - self.seconds[skipped])


def main() -> None:
    given, imported = json.loads(sys.argv[1]), high_water()
    torch.set_num_threads(given["threads"])
    torch.manual_seed(0)
    keep_freed_memory()  # as the command line does
    batches = [PairBatch(*row) for row in torch.load(Path(given["folder"], "batches"))]
    sizes = dict(embedding_size=given["embedding"], hidden_size=given["hidden"], encoder_layers=given["layers"])
    vocabulary = given["vocabulary"]
    model = LuongNMT(vocabulary, vocabulary, **sizes, dropout=given["dropout"], label_smoothing=0.0)
    times, count = Times(), given["steps"]
    trainer = pl.Trainer(
        accelerator="cpu",
        precision="bf16-mixed" if given["precision"] == "bf16" else "32-true",
        max_steps=count,
        gradient_clip_val=5.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[times],
    )
    steps = [batches[n % len(batches)] for n in range(count)]
    trainer.fit(model, DataLoader(steps, batch_size=None, collate_fn=lambda batch: batch))
    found = {"train": times.rate(), "memory": high_water(), "grown": high_water() - imported}
    model.eval()
    model.embeddings.output.bias.data[EOS] = -1e9
    model.precision = given["precision"]
    for name, beam in (("greedy", 1), ("beam", 5)):
        start = time.process_time()
        with model.evaluating() as searching:  # as `translate` does
            for batch in batches:
                searching._search(
                    batch.src, batch.src_lengths, beam, max_length=given["written"], return_attention=False
                )
        found[name] = sum(len(batch.src) for batch in batches) / (time.process_time() - start)
    print(json.dumps(found))


main()
