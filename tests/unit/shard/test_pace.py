"""The late lane keeps to a multiple of what goes out on time."""

import pytest

from wheelsched.config import PaceConfig
from wheelsched.core.duration import MILLISECOND, SECOND
from wheelsched.shard.pace import CATCH_UP_US, Pace

CONFIG = PaceConfig(factor=2, floor=100, smoothing_ms=10_000)


def run_on_time(pace: Pace, per_second: int, seconds: int, begin_us: int = 0) -> int:
    """On-time work at an even rate; gives when it ended."""
    for step in range(seconds * 10):
        pace.count_on_time(per_second // 10, begin_us + step * SECOND // 10)
    return begin_us + seconds * SECOND


def run_late(pace: Pace, begin_us: int, end_us: int, batch: int = 1) -> int:
    """As many late runs as it allows in a stretch of time."""
    runs, now_us = 0, begin_us
    while (now_us := max(now_us, pace.ready_us)) < end_us:
        pace.spend(batch, now_us)
        runs += batch
    return runs


def test_an_idle_shard_goes_by_the_floor() -> None:
    pace = Pace(CONFIG)
    assert pace.late_rate == 100
    assert run_late(pace, 10 * SECOND, 20 * SECOND) == pytest.approx(1_000, abs=15)


def test_goes_at_twice_the_rate_on_time() -> None:
    pace = Pace(CONFIG)
    run_on_time(pace, 1_000, 100)
    assert pace.late_rate == pytest.approx(2_000, rel=0.01)


def test_a_batch_bigger_than_what_is_left_is_paid_for_afterwards() -> None:
    pace = Pace(CONFIG)
    begin_us = 10 * SECOND
    assert pace.ready_us <= begin_us
    pace.spend(500, begin_us)
    assert pace.ready_us == begin_us - CATCH_UP_US + 5 * SECOND


def test_batches_are_no_way_around_it() -> None:
    pace = Pace(CONFIG)
    runs = run_late(pace, 10 * SECOND, 110 * SECOND, batch=500)
    assert 10_000 <= runs <= 10_000 + 500 + 10


def test_idle_time_is_not_saved_up() -> None:
    pace = Pace(CONFIG)
    run_late(pace, 0, SECOND)
    hour_us = 3_600 * SECOND
    assert run_late(pace, hour_us, hour_us + MILLISECOND) <= 12


def test_a_hot_second_counts_little_and_wears_off() -> None:
    pace = Pace(CONFIG)
    now_us = run_on_time(pace, 1_000, 100)
    pace.count_on_time(100_000, now_us)
    now_us = run_on_time(pace, 1_000, 2, now_us)
    assert 2_000 < pace.late_rate < 2 * 0.12 * 100_000
    run_on_time(pace, 1_000, 100, now_us)
    assert pace.late_rate == pytest.approx(2_000, rel=0.01)


def test_the_rate_falls_to_the_floor_when_nothing_is_on_time_any_more() -> None:
    pace = Pace(CONFIG)
    now_us = run_on_time(pace, 1_000, 100)
    run_late(pace, now_us, now_us + 100 * SECOND)
    assert pace.late_rate == 100
