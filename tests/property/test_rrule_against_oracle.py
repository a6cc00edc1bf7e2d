"""RRULE, start, end and exclude around clock changes, held against brute force.

A failure names the seed and the case: they are enough to repeat it.
"""

import os
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from tests.property import expressions
from tests.property.oracle import Change, Cron, Window, changes_of_2020s
from tests.property.rrule_oracle import (
    WEEKDAYS,
    Recurrence,
    Stamp,
    due,
    instant,
    is_later,
    local_date,
)

from wheelsched.errors import EndBeforeStart, InvalidRecurrence, ScheduleNeverFires
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.schedule.spec import Schedule

JOB = UUID(int=1)
SECOND = 1_000_000
SEED = int(os.environ.get("WHEELSCHED_SEED", "20260308"))
DAYS = 5
# Of zones with all sorts of changes: an hour, half of one, at midnight, several a year.
ZONES = [
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Santiago",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "America/Havana",
    "Asia/Beirut",
]


def some(random: Random, low: int, high: int, chance: float) -> list[int]:
    if random.random() > chance:
        return []
    return sorted(random.sample(range(low, high + 1), random.randint(1, 3)))


def stamp(random: Random, around: datetime, reach_s: int, kinds: list[str]) -> Stamp:
    """A time near another; often on a quarter, where rules and changes meet."""
    moment = around + timedelta(seconds=random.randint(-reach_s, reach_s))
    if random.random() < 0.7:
        moment = moment.replace(minute=random.choice([0, 15, 30, 45]), second=0)
    kind = random.choice(kinds)
    if kind == "date":
        moment = moment.replace(hour=0, minute=0, second=0)
    return Stamp(moment, kind)


def recurrence(random: Random, change: Change) -> Recurrence:
    around = datetime.fromtimestamp(change.utc_s, UTC).replace(tzinfo=None)
    local = datetime.fromtimestamp(change.utc_s, ZoneInfo(change.zone)).replace(tzinfo=None, fold=0)
    kind = random.choice(["utc", "local", "local"])
    frequency = random.choice(["DAILY", "DAILY", "HOURLY", "HOURLY", "MINUTELY", "SECONDLY"])
    intervals = {
        "DAILY": [1, 1, 2, 3],
        "HOURLY": [1, 1, 2, 3, 5, 7, 24],
        "MINUTELY": [1, 10, 15, 25, 90, 1440],
        "SECONDLY": [45, 60, 77, 90, 3600],
    }
    start = stamp(random, local if kind == "local" else around, 90_000, [kind])
    rule = Recurrence(
        start=start,
        frequency=frequency,
        interval=random.choice(intervals[frequency]),
        weekdays=random.sample(WEEKDAYS, 4) if random.random() < 0.2 else [],
        hours=random.choice([[1], [0, 1, 2, 3], [2, 3], [23, 0], some(random, 0, 23, 1)])
        if random.random() < 0.5
        else [],
        minutes=some(random, 0, 59, 0.4) if random.random() < 0.6 else [0, 30],
        seconds=some(random, 0, 59, 0.3) if frequency != "SECONDLY" else [],
    )
    bound = random.random()
    if bound < 0.4:
        rule.count = random.choice([1, 2, 3, 4, 7, 20, 60, 300])
    elif bound < 0.7:
        rule.until = stamp(random, around, 90_000, ["utc"])
        if random.random() < 0.6:
            rule.until = stamp(random, local, 90_000, ["local", "local", "date"])
    while random.random() < 0.4 and len(rule.excluded) < 4:
        rule.excluded.append(stamp(random, local, 40_000, ["local", "local", "date"]))
        rule.excluded.append(stamp(random, around, 40_000, ["utc"]))
    return rule


def check(schedule: Schedule, expected: list[int], after_s: int, last_s: int, case: str) -> None:
    """The same due times by steps, by counting and backwards."""
    found = []
    due_us = schedule.next_after(after_s * SECOND)
    while due_us is not None and due_us <= last_s * SECOND:
        found.append(due_us // SECOND)
        due_us = schedule.next_after(due_us)
    assert found == expected, case
    assert schedule.count(after_s * SECOND, last_s * SECOND) == len(expected), case
    backwards: list[int] = []
    last_us = schedule.last_before(last_s * SECOND + 1)
    while last_us is not None and last_us > after_s * SECOND and len(backwards) < 50:
        backwards.append(last_us // SECOND)
        last_us = schedule.last_before(last_us)
    assert backwards == expected[::-1][:50], case


def run(cases: int) -> int:
    random = Random(SEED)
    compared = 0
    for _ in range(cases):
        change = random.choice(changes_of_2020s()[random.choice(ZONES)])
        rule = recurrence(random, change)
        gap, overlap = random.choice(["shift", "skip"]), random.choice(["first", "last", "both"])
        case = f"seed {SEED}: {rule.text!r} in {change.zone}, gap={gap}, overlap={overlap}"
        start_s = instant(rule.start, ZoneInfo(change.zone), -1)
        after_s, last_s = start_s - 2 * 86_400, start_s + (DAYS - 2) * 86_400
        expected = [
            utc_s
            for utc_s in due(rule, change.zone, gap, overlap, DAYS)
            if after_s < utc_s <= last_s
        ]
        try:
            spec = parse(
                rule.text,
                timezone=change.zone,
                dst_gap=gap,
                dst_overlap=overlap,
                now_us=after_s * SECOND,
            )
        except InvalidRecurrence:
            continue
        except ScheduleNeverFires:
            assert not expected, case
            continue
        check(compile_schedule(spec, JOB, 0), expected, after_s, last_s, case)
        compared += 1
    return compared


@pytest.mark.proof
def test_rules_around_clock_changes() -> None:
    assert run(cases=250) > 120


@pytest.mark.long
@pytest.mark.timeout(8 * 3600)
def test_many_rules_around_clock_changes() -> None:
    assert run(cases=100_000) > 50_000


def option(stamp: Stamp) -> str:
    if stamp.kind == "date":
        return f"{stamp.moment:%Y-%m-%d}"
    return stamp.moment.isoformat() + ("Z" if stamp.kind == "utc" else "")


@pytest.mark.proof
def test_start_end_and_excluded_dates_around_clock_changes() -> None:
    random = Random(SEED)
    compared = 0
    for _ in range(60):
        change = random.choice(changes_of_2020s()[random.choice(ZONES)])
        zone = ZoneInfo(change.zone)
        window = Window(change, step_s=60, reach_s=50 * 3600)
        local = datetime.fromtimestamp(change.utc_s, zone).replace(tzinfo=None, fold=0)
        for _ in range(10):
            text = expressions.cron(random)
            gap = random.choice(["shift", "skip"])
            overlap = random.choice(["first", "last", "both"])
            start, end = (
                stamp(random, local, 60_000, ["local", "local", "utc", "date"]) for _ in range(2)
            )
            first = local.date() + timedelta(days=random.randint(-1, 1))
            last = first + timedelta(days=random.randint(0, 1))
            written = {"cron": text, "exclude": [f"{first}/{last}"]}
            expected = [
                utc_s
                for utc_s in window.due(Cron(text), gap, overlap)
                if not first <= local_date(utc_s, zone) <= last
            ]
            if random.random() < 0.5:
                written = {**written, "start": option(start), "exclude": []}
                expected = [
                    utc_s
                    for utc_s in window.due(Cron(text), gap, overlap)
                    if (
                        local_date(utc_s, zone) >= start.moment.date()
                        if start.kind == "date"
                        else utc_s >= instant(start, zone, -1)
                    )
                ]
            if random.random() < 0.5:
                written = {**written, "end": option(end)}
                expected = [utc_s for utc_s in expected if not is_later(utc_s, end, zone)]
            after_s, last_s = window.first_s - 1, window.last_s
            case = f"seed {SEED}: {written} in {change.zone}, gap={gap}, overlap={overlap}"
            try:
                spec = parse(
                    written,
                    timezone=change.zone,
                    dst_gap=gap,
                    dst_overlap=overlap,
                    now_us=after_s * SECOND,
                )
            except (EndBeforeStart, ScheduleNeverFires):
                assert not expected, case
                continue
            check(compile_schedule(spec, JOB, 0), expected, after_s, last_s, case)
            compared += 1
    assert compared > 300
