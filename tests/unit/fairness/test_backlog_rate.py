"""The rate of the late lane is a multiple of the rate of on-time runs."""

import pytest

from wheelsched.config import BacklogRateConfig
from wheelsched.fairness.backlog_rate import CATCH_UP_US, BacklogRate
from wheelsched.values.duration import MILLISECOND, SECOND

CONFIG = BacklogRateConfig(factor=2, floor=100, smoothing_ms=10_000)


def run_on_time(rate: BacklogRate, per_second: int, seconds: int, begin_us: int = 0) -> int:
    """Sends on-time runs at an even rate; returns when it ended."""
    for step in range(seconds * 10):
        rate.count_on_time(per_second // 10, begin_us + step * SECOND // 10)
    return begin_us + seconds * SECOND


def run_late(rate: BacklogRate, begin_us: int, end_us: int, batch: int = 1) -> int:
    """Counts the late runs that the rate allows in an interval."""
    runs, now_us = 0, begin_us
    while (now_us := max(now_us, rate.ready_us)) < end_us:
        rate.spend(batch, now_us)
        runs += batch
    return runs


def test_an_idle_shard_drains_at_the_floor() -> None:
    rate = BacklogRate(CONFIG)
    assert rate.late_rate == 100
    assert run_late(rate, 10 * SECOND, 20 * SECOND) == pytest.approx(1_000, abs=15)


def test_late_runs_go_at_twice_the_on_time_rate() -> None:
    rate = BacklogRate(CONFIG)
    run_on_time(rate, 1_000, 100)
    assert rate.late_rate == pytest.approx(2_000, rel=0.01)


def test_a_large_batch_delays_the_next_one() -> None:
    rate = BacklogRate(CONFIG)
    begin_us = 10 * SECOND
    assert rate.ready_us <= begin_us
    rate.spend(500, begin_us)
    assert rate.ready_us == begin_us - CATCH_UP_US + 5 * SECOND


def test_batches_do_not_bypass_the_rate() -> None:
    rate = BacklogRate(CONFIG)
    runs = run_late(rate, 10 * SECOND, 110 * SECOND, batch=500)
    assert 10_000 <= runs <= 10_000 + 500 + 10


def test_idle_time_earns_no_burst() -> None:
    rate = BacklogRate(CONFIG)
    run_late(rate, 0, SECOND)
    hour_us = 3_600 * SECOND
    assert run_late(rate, hour_us, hour_us + MILLISECOND) <= 12


def test_a_hot_second_raises_the_rate_a_little_and_briefly() -> None:
    rate = BacklogRate(CONFIG)
    now_us = run_on_time(rate, 1_000, 100)
    rate.count_on_time(100_000, now_us)
    now_us = run_on_time(rate, 1_000, 2, now_us)
    assert 2_000 < rate.late_rate < 2 * 0.12 * 100_000
    run_on_time(rate, 1_000, 100, now_us)
    assert rate.late_rate == pytest.approx(2_000, rel=0.01)


def test_the_rate_falls_to_the_floor_without_on_time_runs() -> None:
    rate = BacklogRate(CONFIG)
    now_us = run_on_time(rate, 1_000, 100)
    run_late(rate, now_us, now_us + 100 * SECOND)
    assert rate.late_rate == 100
