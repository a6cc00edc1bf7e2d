"""Cron and the clock changes of every zone, held against brute force.

A failure names the seed, the zone and the expression: they are enough to repeat it.
"""

import os
from datetime import date
from random import Random
from uuid import UUID

import pytest
from tests.property import expressions
from tests.property.oracle import Cron, Window, change_of, changes_of_2020s

from wheelsched.errors import ScheduleNeverFires
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.schedule.spec import Schedule

JOB = UUID(int=1)
SECOND = 1_000_000
SEED = int(os.environ.get("WHEELSCHED_SEED", "20260308"))
POLICIES = [(gap, overlap) for gap in ("shift", "skip") for overlap in ("first", "last", "both")]


def check(window: Window, zone: str, text: str, gap: str, overlap: str) -> None:
    expected = window.due(Cron(text), gap, overlap)
    case = f"seed {SEED}: {text!r} in {zone}, gap={gap}, overlap={overlap}"
    before_us = (window.first_s - 1) * SECOND
    try:
        spec = parse(text, timezone=zone, dst_gap=gap, dst_overlap=overlap, now_us=before_us)
    except ScheduleNeverFires:
        assert not expected, case
        return
    schedule = compile_schedule(spec, JOB, 0)
    last_us = window.last_s * SECOND
    assert found(schedule, before_us, last_us) == expected, case
    assert schedule.count(before_us, last_us) == len(expected), case
    if expected:
        assert schedule.last_before(last_us + 1) == expected[-1] * SECOND, case
        middle = len(expected) // 2
        previous = expected[middle - 1] * SECOND if middle else None
        assert middle == 0 or schedule.last_before(expected[middle] * SECOND) == previous, case


def found(schedule: Schedule, after_us: int, last_us: int) -> list[int]:
    """Every due time in (after_us, last_us], each asked for with the one before."""
    seconds = []
    due_us = schedule.next_after(after_us)
    while due_us is not None and due_us <= last_us:
        seconds.append(due_us // SECOND)
        due_us = schedule.next_after(due_us)
    return seconds


def run(zones: list[str], *, windows: int, cases: int, step_s: int, reach_s: int) -> int:
    """Each zone at up to `windows` of its changes, each of those with `cases` expressions."""
    random = Random(SEED)
    done = 0
    for zone in zones:
        changes = changes_of_2020s()[zone]
        for change in random.sample(changes, min(windows, len(changes))):
            window = Window(change, step_s=step_s, reach_s=reach_s)
            for _ in range(cases):
                text = expressions.cron(random, seconds=step_s == 1)
                check(window, zone, text, *random.choice(POLICIES))
                done += 1
    return done


@pytest.mark.proof
def test_minutes_around_a_change_of_every_zone() -> None:
    zones = list(changes_of_2020s())
    assert len(zones) > 200
    assert run(zones, windows=1, cases=45, step_s=60, reach_s=8 * 3600) >= 9_000


@pytest.mark.proof
def test_seconds_around_the_changes_of_some_zones() -> None:
    zones = Random(SEED).sample(list(changes_of_2020s()), 20)
    assert run(zones, windows=1, cases=50, step_s=1, reach_s=2700) == 1_000


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Pacific/Apia", date(2011, 12, 30)),  # a day that never was
        ("Pacific/Kiritimati", date(1995, 1, 1)),  # and another
        ("Pacific/Kwajalein", date(1993, 8, 21)),  # and the first of them
        ("America/Caracas", date(2007, 12, 9)),  # half an hour back
        ("Asia/Pyongyang", date(2018, 5, 4)),  # half an hour forward, at 23:30
        ("Asia/Kathmandu", date(1986, 1, 1)),  # a quarter of an hour
        ("Antarctica/Casey", date(2018, 3, 11)),  # three hours
        ("Africa/Khartoum", date(2000, 1, 15)),  # forward at noon
        ("America/Sao_Paulo", date(2018, 2, 18)),  # back over midnight, into the day before
        ("America/Anchorage", date(2185, 11, 6)),  # where a page of the timeline ends
        ("America/Los_Angeles", date(2185, 11, 6)),  # and where one begins
    ],
)
def test_the_odd_changes_of_the_past(zone: str, day: date) -> None:
    random = Random(SEED)
    window = Window(change_of(zone, day), step_s=60, reach_s=30 * 3600)
    for _ in range(60):
        check(window, zone, expressions.cron(random), *random.choice(POLICIES))


@pytest.mark.long
@pytest.mark.timeout(8 * 3600)
def test_a_million_around_every_change_of_every_zone() -> None:
    changes = sum(map(len, changes_of_2020s().values()))
    cases = -(-1_000_000 // changes)
    zones = list(changes_of_2020s())
    assert run(zones, windows=99, cases=cases, step_s=60, reach_s=26 * 3600) >= 1_000_000
