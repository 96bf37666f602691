"""What a fit or a test of `zoo rebuild` notes down: the data files it read, and at its end time, versions, scores."""

import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from zoo.rebuilding.inputs import READ, files_read, listen, write_read
from zoo.utils.atomic import write_text
from zoo.utils.cores import processor
from zoo.utils.version import __version__

PACKAGES = ("torch", "lightning", "numpy", "tokenizers", "gensim", "sacrebleu")


class Record(Callback):
    """Writes a JSON file when a fit or a test is done. A resumed fit counts the time of its earlier starts too.

    Args:
        file: the JSON file.
        roots: folders of data; what is read elsewhere is not noted down.
    """

    def __init__(self, file: str, roots: list[str]) -> None:
        self.file, self.roots = Path(file), [os.path.realpath(root) for root in roots]
        self._began = (time.monotonic(), time.process_time())
        self._before = (0.0, 0.0)
        listen()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:  # so that a resumed training is one on the same data
            write_read(self.file.with_name(READ), self.roots)

    def state_dict(self) -> dict[str, Any]:
        return dict(zip(("seconds", "processor_seconds"), self._spent()))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = state_dict["seconds"], state_dict["processor_seconds"]

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._write(trainer, epochs=trainer.current_epoch, steps=trainer.global_step)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._write(trainer, scores={name: value.item() for name, value in trainer.callback_metrics.items()})

    def _spent(self) -> tuple[float, float]:
        now = time.monotonic(), time.process_time()
        wall, processor = (was + end - start for was, end, start in zip(self._before, now, self._began))
        return round(wall, 1), round(processor, 1)

    def _write(self, trainer: Trainer, **more: Any) -> None:
        if not trainer.is_global_zero:
            return
        device = trainer.strategy.root_device
        found = {
            **more,
            **self.state_dict(),
            "data": files_read(self.roots),
            "precision": str(trainer.precision),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
            "processes": trainer.world_size,
            "threads": torch.get_num_threads(),
            "versions": versions(),
        }
        write_text(self.file, json.dumps(found, indent=1) + "\n")


def versions() -> dict[str, str]:
    """Of Python, of this package and of those that it computes with."""
    found = {"python": platform.python_version(), "attention-zoo": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
