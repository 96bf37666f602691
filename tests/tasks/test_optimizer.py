"""The learning rate over a training."""

from functools import partial

import pytest
import torch
from fakes import Toy, ToyData
from lightning.pytorch import Trainer

from zoo.tasks.base import ZooModule
from zoo.tasks.optimizer import AdamW, WarmupCosine, learning_rate_factor

TWO = dict(warmup_steps=10, total_steps=200, cycles=2)


def test_warm_up_and_two_cosines():
    rate = [learning_rate_factor(step, **TWO) for step in range(201)]
    assert [rate[0], rate[9], rate[10]] == [0.1, 1.0, 1.0]
    assert rate[55] == pytest.approx(0.51)
    assert rate[99] < 0.03 and rate[100] == 1.0 and rate[150] == pytest.approx(0.51)
    assert rate[200] == learning_rate_factor(5000, **TWO) == pytest.approx(0.02)


def test_constant_without_an_end():
    assert learning_rate_factor(10**6, 10, None) == 1.0


def test_the_scheduler_gives_each_step_its_rate():
    optimizer = AdamW([torch.nn.Parameter(torch.ones(1))], lr=0.5)
    scheduler = WarmupCosine(optimizer, **TWO)
    for step in range(201):
        assert scheduler.get_last_lr() == [0.5 * learning_rate_factor(step, **TWO)]
        optimizer.step()
        scheduler.step()


def test_contradictions():
    optimizer = AdamW([torch.nn.Parameter(torch.ones(1))])
    with pytest.raises(ValueError, match=r"must exceed warmup_steps \(10\); got 20 steps in 2 cycles"):
        WarmupCosine(optimizer, 10, 20, 2)
    with pytest.raises(ValueError, match="cycles must be at least 1; got 0"):
        WarmupCosine(optimizer, 10, 20, 0)
    with pytest.raises(ValueError, match="warmup_steps must be at least 0; got -5"):
        WarmupCosine(optimizer, -5)


class _Scheduled(Toy):
    configure_optimizers = ZooModule.configure_optimizers


@pytest.mark.parametrize(
    ("total_steps", "end", "warns"),
    [
        (40, {"max_epochs": 2}, True),
        (2, {"max_epochs": 2}, True),
        (4, {"max_epochs": 2}, False),
        (5, {"max_epochs": 2}, False),
        (None, {"max_epochs": 2}, False),
        (40, {"max_steps": 4}, False),  # the user's own end
    ],
)
def test_a_schedule_for_another_number_of_steps_is_told(caplog, tmp_path, total_steps, end, warns):
    model = _Scheduled()
    model.optimizer = partial(AdamW, lr=0.01)
    model.lr_scheduler = partial(WarmupCosine, warmup_steps=1, total_steps=total_steps)
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    Trainer(default_root_dir=tmp_path, accelerator="cpu", **quiet, **end).fit(model, datamodule=ToyData())
    told = [record.message for record in caplog.records if "learning rate" in record.message]
    message = (
        f"the learning rate falls over {total_steps} steps, but this training has 4: give --lr_scheduler.total_steps 4, "
        "or total_steps null for a constant rate"
    )
    assert told == [message] * warns


@pytest.mark.parametrize(
    ("steps", "cycles", "advice"),
    [
        (201, 1, "--lr_scheduler.total_steps 201"),
        (200, 1, "--lr_scheduler.total_steps 200 --lr_scheduler.warmup_steps 20 --lr_scheduler.cycles 1"),
        (401, 2, "--lr_scheduler.total_steps 401 --lr_scheduler.warmup_steps 40 --lr_scheduler.cycles 1"),
        (1, 3, "--lr_scheduler.total_steps 1 --lr_scheduler.warmup_steps 0 --lr_scheduler.cycles 1"),
    ],
)
def test_the_schedule_that_is_advised_can_be_built(steps, cycles, advice):
    optimizer = AdamW([torch.zeros(1, requires_grad=True)])
    found = WarmupCosine(optimizer, 200, 4_000, cycles).options_for(steps)
    assert found == advice
    words = found.replace("--lr_scheduler.", "").split()
    given = {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    assert WarmupCosine(optimizer, **{"warmup_steps": 200, "cycles": cycles, **given}).total_steps == steps


def test_a_rate_for_a_part_that_there_is_not():
    model = Toy()
    model.learning_rates = {"embde": 1e-5}
    with pytest.raises(ValueError, match="learning_rates: Toy has no part 'embde'; nearest: embed"):
        ZooModule.configure_optimizers(model)


def test_a_resumed_schedule_is_the_one_that_was_saved():
    def schedule(**options):
        return WarmupCosine(AdamW([torch.nn.Parameter(torch.ones(1))], lr=1.0), **options)

    first, other = schedule(warmup_steps=2, total_steps=20), schedule(warmup_steps=2, total_steps=200)
    for _ in range(9):
        first.step()
    other.load_state_dict(first.state_dict())
    for one in (first, other):
        one.step()
    assert other.get_last_lr() == first.get_last_lr() == [learning_rate_factor(10, 2, 20)]
