"""`every`: elapsed time from an anchor."""

import pytest
from tests.unit.schedule.due import JOB, next_due, us

from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.every import Every
from wheelsched.schedule.parse import parse

MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("written", "interval"),
    [
        ("every 5 minutes", "5m"),
        ("Every 5 Minutes", "5m"),
        ("every hour", "1h"),
        ("every 30 seconds", "30s"),
        ("every 1 hour and 30 minutes", "1h30m"),
        ("every 2 days", "2d"),
        ({"every": "90 min"}, "1h30m"),
    ],
)
def test_intervals_may_be_in_words(written: object, interval: str) -> None:
    spec = parse(written, now_us=us("2026-11-16T03:00"))
    assert (spec.kind, spec.expression) == ("every", interval)


def test_restarts_do_not_shift_it() -> None:
    registered_us = us("2026-11-16T03:01:07")
    spec = parse("every 5m", now_us=registered_us)
    schedule = compile_schedule(spec, JOB, registered_us)
    assert schedule.next_after(us("2026-12-24T10:00")) == us("2026-12-24T10:01:07")


def test_it_starts_at_its_start() -> None:
    found = next_due({"every": "36h", "start": "2026-12-01"}, 3, after="2026-11-16T00:00")
    assert [due[:16] for due in found] == [
        "2026-12-01 00:00",
        "2026-12-02 12:00",
        "2026-12-04 00:00",
    ]


def test_clock_changes_do_not_touch_it() -> None:
    found = next_due("every 1h", 3, after="2026-11-01T00:30", timezone="America/New_York")
    assert found == [
        "2026-11-01 01:30 -0400",
        "2026-11-01 01:30 -0500",
        "2026-11-01 02:30 -0500",
    ]


def test_due_times_are_whole_milliseconds() -> None:
    assert Every(MINUTE, 1_234_567).next_after(0) == 1_234_000


def test_before_at_and_after_the_anchor() -> None:
    every = Every(5 * MINUTE, 100 * MINUTE)
    assert every.next_after(-1) == 100 * MINUTE
    assert every.next_after(100 * MINUTE) == 105 * MINUTE
    assert every.last_before(100 * MINUTE) is None
    assert every.last_before(100 * MINUTE + 1) == 100 * MINUTE
    assert every.count(0, 110 * MINUTE) == 3
    assert every.count(100 * MINUTE, 110 * MINUTE) == 2
    assert every.count(110 * MINUTE, 100 * MINUTE) == 0
