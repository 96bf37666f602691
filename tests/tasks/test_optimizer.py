"""The learning rate over a training."""

import pytest

from zoo.tasks.optimizer import check_schedule, learning_rate_factor


def config(**changes):
    return {"warmup_steps": 10, "total_steps": 200, "cycles": 2, **changes}


def test_warm_up_and_two_cosines():
    rate = [learning_rate_factor(config(), step) for step in range(201)]
    assert [rate[0], rate[9], rate[10]] == [0.1, 1.0, 1.0]
    assert rate[55] == pytest.approx(0.51)
    assert rate[99] < 0.03 and rate[100] == 1.0 and rate[150] == pytest.approx(0.51)
    assert rate[200] == learning_rate_factor(config(), 5000) == pytest.approx(0.02)


def test_constant_without_an_end():
    assert learning_rate_factor(config(total_steps=None), 10**6) == 1.0


def test_contradictions():
    with pytest.raises(ValueError, match=r"must exceed warmup_steps \(10\); got 20 steps in 2 cycles"):
        check_schedule(config(total_steps=20))
    with pytest.raises(ValueError, match="cycles must be at least 1; got 0"):
        check_schedule(config(cycles=0))
