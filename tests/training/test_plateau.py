"""HalveThenStop: when the rate is halved, and when the training ends."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from zoo.tasks.optimizer import AdamW, WarmupCosine
from zoo.training.plateau import HalveThenStop


class Training:
    """What the callback sees of a trainer, with one optimizer step between two validations."""

    def __init__(self, **options):
        self.optimizer = AdamW([nn.Parameter(torch.zeros(1))], lr=1.0)
        self.scheduler = WarmupCosine(self.optimizer, warmup_steps=1)
        self.callback = HalveThenStop("val/bleu", "max", **options)
        self.trainer = SimpleNamespace(
            callback_metrics={},
            fast_dev_run=False,
            strategy=SimpleNamespace(reduce_boolean_decision=lambda decision, all: decision),
            current_epoch=0,
            lr_scheduler_configs=[SimpleNamespace(scheduler=self.scheduler)],
            optimizers=[self.optimizer],
            should_stop=False,
        )

    def rates(self, scores):
        """The rate of the step after each validation, until the training ends."""
        found = []
        for score in scores:
            self.trainer.callback_metrics = {"val/bleu": torch.tensor(float(score))}
            self.callback._run_early_stopping_check(self.trainer)
            now = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.scheduler.step()
            found.append(self.optimizer.param_groups[0]["lr"])
            assert now == found[-1], "at once, and the schedule keeps it"
            if self.trainer.should_stop:
                break
        return found


def test_halved_and_stopped():
    training = Training(patience=2, halvings=2)
    assert training.rates([1, 2, 2, 2, 1, 2, 0, 2, 5]) == [1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert training.trainer.should_stop and training.callback.best_score == 2


def test_a_rise_begins_the_count_again():
    training = Training(patience=1, halvings=1)
    assert training.rates([1, 1, 2, 2, 3, 3, 3, 9]) == [1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125]


def test_without_halvings_it_is_early_stopping():
    assert Training(patience=3, halvings=0).rates([5, 4, 4, 4, 9]) == [1, 1, 1, 1]


def test_another_factor():
    assert Training(patience=1, halvings=1, factor=0.1).rates([1, 0, 0]) == [1, 0.1, 0.1]


def test_a_small_rise_is_none_but_small_rises_add_up():
    training = Training(patience=1, halvings=1, min_delta=0.5)
    assert training.rates([1, 1.4, 1.6, 2.0, 2.05, 2.1]) == [1, 0.5, 0.5, 0.25, 0.25]
    assert training.trainer.should_stop


def test_it_resumes():
    first, second = Training(patience=2, halvings=2), Training(patience=2, halvings=2)
    scores = [1, 2, 2, 2, 1, 2, 0, 2, 5]
    whole = Training(patience=2, halvings=2).rates(scores)
    before = first.rates(scores[:5])
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.scheduler.load_state_dict(first.scheduler.state_dict())
    second.callback.load_state_dict(first.callback.state_dict())
    assert before + second.rates(scores[5:]) == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience must be at least 1; got 0"),
        ({"halvings": -1}, "halvings must be at least 0; got -1"),
        ({"min_delta": -0.1}, "min_delta must be at least 0; got -0.1"),
        ({"factor": 1.0}, "factor must be between 0 and 1; got 1.0"),
    ],
)
def test_what_a_user_can_get_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        HalveThenStop("val/bleu", "max", **options)


SCHEDULES = {
    "WarmupCosine": lambda optimizer: WarmupCosine(optimizer, warmup_steps=3, total_steps=40),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=40),
    "CyclicLR": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.1, 1.0, step_size_up=4, cycle_momentum=False),
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 40),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [WarmupCosine(optimizer, warmup_steps=3), lr_scheduler.CosineAnnealingLR(optimizer, 40)], [6]
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_any_schedule_goes_on_with_half_the_rate(name):
    scores = [1, 2, 1, 3, 4, 5, 6, 7, 8, 9, 10]  # the third is no rise
    usual, halved = Training(patience=9), Training(patience=1)
    for training in (usual, halved):
        training.scheduler = SCHEDULES[name](training.optimizer)
        training.trainer.lr_scheduler_configs = [SimpleNamespace(scheduler=training.scheduler)]
    found = list(zip(_rates(usual, scores), _rates(halved, scores), strict=True))
    assert [rate for rate, _ in found[:2]] == [rate for _, rate in found[:2]]
    assert [after for _, after in found[2:]] == pytest.approx([rate / 2 for rate, _ in found[2:]], rel=1e-4)


def _rates(training, scores):
    """The rate of the step after each validation."""
    found = []
    for score in scores:
        training.trainer.callback_metrics = {"val/bleu": torch.tensor(float(score))}
        training.callback._run_early_stopping_check(training.trainer)
        found.append(training.optimizer.param_groups[0]["lr"])
        training.optimizer.step()
        training.scheduler.step()
    return found


def test_an_unknown_score_is_said():
    training = Training()
    training.trainer.callback_metrics = {"val/loss": torch.tensor(1.0), "train/loss": torch.tensor(1.0)}
    with pytest.raises(
        ValueError, match="HalveThenStop: there is no score 'val/bleu'; choose among train/loss, val/loss"
    ):
        training.callback._run_early_stopping_check(training.trainer)


def test_without_a_validation_nothing_is_halved():
    training = Training(patience=1)
    training.trainer.callback_metrics = {"train/loss": torch.tensor(1.0)}
    for _ in range(3):
        training.callback._run_early_stopping_check(training.trainer)
    assert training.optimizer.param_groups[0]["lr"] == 1.0 and not training.trainer.should_stop
