"""Counts what the processor dispatches for a training step and for a step of decoding, model by model: on a GPU each
such operation is at least one launch, so their number bounds a step from below.

Run by hand: python benchmarks/host_operations.py [--launch 5] [--device cuda] [--names NAME ...]
It prints the tables of docs/scaling.md. With --device the steps are also timed there, in fp32.
"""

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import measuring
import torch
from lightning.pytorch import Callback, Trainer
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

import zoo
from zoo.tasks.base import ZooModule
from zoo.tasks.translation import TranslationModule

BATCH = 32
CPU = torch.device("cpu")
WARM_UP = 20  # training steps that are not timed
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


class TimesSteps(Callback):
    """Seconds of each training step after the first ones, from the end of the one before to its own end."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        measuring.synchronize(pl_module.device)
        now = time.perf_counter()
        if batch_idx > WARM_UP:
            self.seconds.append(now - self._last)
        self._last = now


def train(model: ZooModule, callback: Callback, steps: int, device: torch.device) -> None:
    """Trains a model on one batch."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    accelerator = "cpu" if device.type == "cpu" else "gpu"
    loader = DataLoader([model.example_batch(BATCH)] * steps, batch_size=None)
    trainer = Trainer(
        max_steps=steps, accelerator=accelerator, devices=1, enable_model_summary=False, callbacks=[callback], **quiet
    )
    trainer.fit(model.train(), loader)


def training_step(model: ZooModule) -> int:
    """Operations of a training step."""
    counter = CountsThirdStep()
    train(model, counter, 3, CPU)
    return counter.count


def training_seconds(model: ZooModule, device: torch.device) -> float:
    """Median seconds of a training step."""
    times = TimesSteps()
    train(model, times, WARM_UP + 31, device)
    return statistics.median(times.seconds)


def searches(model: TranslationModule) -> list[Callable[[], object]]:
    """Greedy searches for translations of the lengths SHORT and LONG."""
    batch = measuring.on(model.example_batch(BATCH), model.device)
    return [
        partial(model._search, batch.src, batch.src_lengths, 1, max_length=length, min_length=length)
        for length in (SHORT, LONG)
    ]


@torch.no_grad()
def decoding_step(model: TranslationModule) -> float:
    """Operations of one step of greedy search."""
    short, long = map(of_call, searches(model))
    return (long - short) / (LONG - SHORT)


@torch.no_grad()
def decoding_seconds(model: TranslationModule, device: torch.device) -> float:
    """Seconds of one step of greedy search."""
    short, long = (measuring.best(job, device, warm=3) for job in searches(model.to(device)))
    return (long - short) / (LONG - SHORT)


def models(names: Sequence[str]) -> Iterator[tuple[str, ZooModule]]:
    """The weights of these names; without any a weight of each class that has one."""
    seen = set()
    for name in names or zoo.list_models():
        if name.startswith("show_attend_tell_hard"):
            continue  # trained with rewards, which need captions; the soft one is of the same class
        model = zoo.load(name)
        if model.config.get("self_critical_epoch") is not None:
            model = zoo.load(name, {"self_critical_epoch": None})  # its epochs before, of given captions
        if names or type(model) not in seen:
            seen.add(type(model))
            yield name, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launch", type=float, default=5.0, help="microseconds that a launch takes at least")
    parser.add_argument("--device", type=torch.device, help="where the steps are timed too, e.g. cuda")
    parser.add_argument("--names", nargs="*", default=[], help="weights; default: one of each class")
    options = parser.parse_args()
    measuring.prepare(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    heads = ["weight", "operations of a training step", "of a decoding step", "training step, ms at least", "decoding"]
    if options.device:
        heads += ["training step, ms measured", "decoding"]
    print(f"| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}")
    for name, model in models(options.names):
        translator = model.eval() if isinstance(model, TranslationModule) else None
        decoding = translator and decoding_step(translator)
        training = training_step(model)
        cells = [
            name,
            f"{training:,}",
            f"{decoding:,.0f}" if decoding else "-",
            f"{training * options.launch / 1e3:.1f}",
            f"{decoding * options.launch / 1e3:.2f}" if decoding else "-",
        ]
        if options.device:
            cells.append(f"{1e3 * training_seconds(model, options.device):.1f}")
            model.eval()
            cells.append(f"{1e3 * decoding_seconds(translator, options.device):.2f}" if translator else "-")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
