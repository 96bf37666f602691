"""A model and a data module small enough for tests of the command line, the registry and the bundles; a power cut;
examples/.
"""

import importlib.util
import os
import signal
from functools import partial
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningDataModule
from torch import Tensor, nn
from torch.utils.data import DataLoader

from zoo.results.translation import Translation
from zoo.tasks.base import ZooModule
from zoo.tasks.optimizer import AdamW, WarmupCosine
from zoo.tasks.translation import TranslationModule

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    """One of examples/ as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def schedule(model, lr=1e-3, **steps):
    """The model, to be trained with a peak rate and a schedule."""
    model.optimizer, model.lr_scheduler = partial(AdamW, lr=lr), partial(WarmupCosine, **steps)
    return model


def settings(lr=1e-3, **steps):
    """The same in a recipe."""
    return {
        "optimizer": {"class_path": "zoo.tasks.optimizer.AdamW", "init_args": {"lr": lr}},
        "lr_scheduler": {"class_path": "zoo.tasks.optimizer.WarmupCosine", "init_args": steps},
    }


class Upper:
    """What `translate` gives for one text: the text in capitals, each letter aligned with itself."""

    def __init__(self, text: str, n_best: int) -> None:
        self.text, self.score = text.upper(), -0.5
        self.confidence, self.warnings, self.explains = None, [], None
        self.source_tokens, self.tokens = list(text), list(text.upper())
        self.attention = torch.eye(len(text))
        self.n_best = [(self.text + "!" * i, -0.5 - i) for i in range(n_best)]

    def plot(self, path, title) -> None:
        path.write_text(f"{title}: {self.text}")

    line, to_dict = Translation.line, Translation.to_dict
    section, _section = Translation.section, Translation._section


class Toy(ZooModule):
    """Counts on a tied embedding; translates to capitals."""

    task = TranslationModule.task
    heads = ("head",)
    tiny = {"vocab_size": 7}

    def __init__(self, vocab_size: int = 7, hidden: int = 4, classes: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, hidden)
        self.out = nn.Linear(hidden, vocab_size, bias=False)
        self.out.weight = self.embed.weight
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, classes)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.words = "words"

    def assets(self) -> dict[str, str]:
        return {"words.json": self.words}

    def load_assets(self, assets: dict[str, str]) -> None:
        self.words = assets["words.json"]

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.drop(self.embed(ids)))  # (B, classes)

    def training_step(self, batch: Tensor) -> Tensor:
        self.steps += 1
        return nn.functional.cross_entropy(self(batch), batch % 2)

    def validation_step(self, batch: Tensor) -> None:
        self.log("val/loss", nn.functional.cross_entropy(self(batch), batch % 2))

    def test_step(self, batch: Tensor) -> None:
        self.log("test/loss", nn.functional.cross_entropy(self(batch), batch % 2))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def golden(self) -> dict[str, Tensor]:
        ids = torch.arange(self.config["vocab_size"])
        return {"ids": ids, "logits": self(ids).detach()}

    def translate(self, texts: list[str], beam_size: int | None = None, n_best: int = 1) -> list[Upper]:
        if beam_size is not None and beam_size < 1:
            raise ValueError(f"beam_size must be at least 1; got {beam_size}")
        return [Upper(text, n_best) for text in texts]


class ToyData(LightningDataModule):
    """Integers."""

    def __init__(self, n: int = 8, batch_size: int = 4) -> None:
        super().__init__()
        self.n, self.batch_size = n, batch_size

    def train_dataloader(self) -> DataLoader:
        return DataLoader(torch.arange(self.n) % 7, self.batch_size)

    val_dataloader = test_dataloader = train_dataloader


class PowerCut(Callback):
    """Kills the process, as nothing in it can prevent, when `step` optimiser steps are done."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer, *_) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


class Cut(BaseException):
    """A power cut within one process: nothing catches it."""


class CutAt(Callback):
    """Cuts a training short at the n-th call of a hook, by a power cut or by a signal that the process sends itself."""

    def __init__(self, place: str, count: int, by: str | None = None) -> None:
        def hook(trainer, *_) -> None:
            nonlocal count
            count -= not trainer.sanity_checking
            if not count and by:
                os.kill(os.getpid(), signal.Signals[by])
            elif not count:
                raise Cut

        setattr(self, place, hook)
