"""The learning rate over a training."""

import pytest
import torch

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
