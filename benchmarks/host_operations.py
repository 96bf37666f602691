"""Counts what the processor dispatches for a training step and for a step of decoding, model by model: on a GPU each
such operation is at least one launch, so their number bounds a step from below.

Run by hand: python benchmarks/host_operations.py [--launch 5]
It prints the table of docs/scaling.md.
"""

import argparse
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

import zoo
from zoo.tasks.base import ZooModule
from zoo.tasks.translation import TranslationModule

BATCH = 32
SHORT, LONG = 6, 14  # tokens written by two searches, whose difference is that of LONG - SHORT steps
VIEWS = set(  # dispatched, but they compute nothing
    "view reshape t transpose permute expand expand_as unsqueeze squeeze select slice narrow split split_with_sizes "
    "chunk unbind detach as_strided alias empty empty_like empty_strided new_empty resize_ set_ _unsafe_view "
    "_reshape_alias lift_fresh result_type item is_nonzero unflatten flatten movedim".split()
)


def operations(found: profile) -> int:
    """Operations that compute something and call no other: each is at least one launch on a GPU."""

    def computes(event: Any) -> bool:
        return event.name.startswith("aten::") and event.name.removeprefix("aten::") not in VIEWS

    events = [event for event in found.events() or [] if computes(event)]
    return sum(not any(map(computes, event.cpu_children)) for event in events)


def of_call(job: Callable[[], object]) -> int:
    """Operations of one call."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        job()
    return operations(found)


class CountsThirdStep(Callback):
    """Profiles the third step of a training, from the start of its batch to its end, optimiser included."""

    count = 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 2:
            self._found = profile(activities=[ProfilerActivity.CPU]).__enter__()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 2:
            self._found.__exit__(None, None, None)
            self.count = operations(self._found)


def training_step(model: ZooModule) -> int:
    """Operations of a training step."""
    counter = CountsThirdStep()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    batch = model.example_batch(BATCH)
    loader = DataLoader([batch] * 3, batch_size=None)
    trainer = Trainer(max_steps=3, accelerator="cpu", enable_model_summary=False, callbacks=[counter], **quiet)
    trainer.fit(model.train(), loader)
    return counter.count


@torch.no_grad()
def decoding_step(model: TranslationModule) -> float:
    """Operations of one step of greedy search."""
    batch = model.example_batch(BATCH)

    def search(length: int) -> None:
        model._search(batch.src, batch.src_lengths, 1, max_length=length, min_length=length)

    counts = [of_call(lambda length=length: search(length)) for length in (SHORT, LONG)]
    return (counts[1] - counts[0]) / (LONG - SHORT)


def models() -> Iterator[tuple[str, ZooModule]]:
    """A weight of each class that has one."""
    seen = set()
    for name in zoo.list_models():
        if name.startswith("show_attend_tell_hard"):
            continue  # trained with rewards, which need captions; the soft one is of the same class
        model = zoo.load(name)
        if type(model) not in seen:
            seen.add(type(model))
            yield name, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launch", type=float, default=5.0, help="microseconds that a launch takes at least")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    print("| weight | operations of a training step | of a decoding step | training step, ms at least | decoding |")
    print("|---|---:|---:|---:|---:|")
    for name, model in models():
        decoding = decoding_step(model.eval()) if isinstance(model, TranslationModule) else None
        training = training_step(model)
        cells = [
            f"{training:,}",
            "-" if decoding is None else f"{decoding:,.0f}",
            f"{training * options.launch / 1e3:.1f}",
        ]
        cells.append("-" if decoding is None else f"{decoding * options.launch / 1e3:.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
