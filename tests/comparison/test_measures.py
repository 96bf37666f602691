"""What a training measures of itself, with a clock that a test sets."""

import json
import math
from types import SimpleNamespace

import torch

from zoo.comparison import measures


def test_meter_times_steps_and_nothing_else(monkeypatch, tmp_path):
    """Neither the wait before an epoch nor validation is in the speed or in the time of training."""
    now = [0.0]
    monkeypatch.setattr(measures, "WARM_UP", 2)
    monkeypatch.setattr(measures, "clock", lambda device: lambda: now[0])
    monkeypatch.setattr(measures.TrainingMeter, "_read", lambda meter, model, batch: batch)
    scores = {"val/bleu": torch.tensor(3.0), "val/loss": torch.tensor(math.inf), "train/loss": torch.tensor(1.0)}
    model = SimpleNamespace(device=torch.device("cpu"))
    trainer = SimpleNamespace(
        sanity_checking=True, callback_metrics=scores, global_step=2, current_epoch=1, is_global_zero=True,
        default_root_dir=tmp_path, fast_dev_run=False,
    )  # fmt: skip
    meter = measures.TrainingMeter()

    def at(seconds, event, *batch):
        now[0] = seconds
        getattr(meter, f"on_{event}")(trainer, model, *((None, *batch, 0) if batch else ()))

    at(100.0, "train_start")
    at(130.0, "validation_end")  # the sanity check
    trainer.sanity_checking = False
    at(140.0, "train_epoch_start")
    at(142.0, "train_batch_end", 10)
    at(143.0, "train_batch_end", 10)  # the last step of the warm-up
    at(145.0, "train_batch_end", 10)  # 5 a second
    at(244.0, "validation_end")
    at(247.0, "train_batch_end", 40)  # the first one after a validation is not timed
    at(257.0, "train_batch_end", 30)  # 3 a second
    at(300.0, "fit_end")
    found = json.loads((tmp_path / "training.json").read_text())
    assert {key: found[key] for key in ("steps", "tokens", "seconds", "training_seconds", "tokens_per_second")} == {
        "steps": 2, "tokens": 100, "seconds": 200.0, "training_seconds": 5.0 + 13.0, "tokens_per_second": 4.0,
    }  # fmt: skip
    assert found["validation"] == [{"step": 2, "seconds": 5.0, "bleu": 3.0, "loss": None}]
