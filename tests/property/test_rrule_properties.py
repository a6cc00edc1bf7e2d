"""RRULE in UTC, with every part that there is, held against brute force.

A failure names the seed and the case: they are enough to repeat it.
"""

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, takewhile
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tests.property.rrule_oracle import WEEKDAYS, Recurrence, Stamp

from wheelsched.errors import InvalidRecurrence, ScheduleNeverFires
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse

JOB = UUID(int=1)
SEED = int(os.environ.get("WHEELSCHED_SEED", "20260308"))
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the oracle's wall clock has no zone
DAYS = 365 * 9  # with two leap years
# Where a rule has thousands of times a day to try, all that it can meet is met within a year.
FINE_DAYS = 400
FIRST = 45  # due times of each rule
NEVER = datetime.max  # noqa: DTZ901 - the oracle's wall clock has no zone
FREQUENCIES = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]


def some(random: Random, chance: float, low: int, high: int, most: int = 3) -> list[int]:
    if random.random() > chance:
        return []
    return random.sample(range(low, high + 1), random.randint(1, min(most, high - low + 1)))


def signed(random: Random, chance: float, *, high: int) -> list[int]:
    """Numbers from the front and from the back, often of the first and the last."""
    found = [
        number if number <= high else -(number - high)
        for number in some(random, chance, 1, 2 * high)
    ]
    if found and random.random() < 0.5:
        found[0] = random.choice([1, 2, -1, -2, high, -high])
    return list(dict.fromkeys(found))


def weekdays(random: Random, frequency: str, *, has_weeks: bool) -> list[str]:
    """Plain days, numbered ones, and lists that mix the two."""
    days = random.sample(WEEKDAYS, random.randint(1, 4))
    if frequency not in ("YEARLY", "MONTHLY") or has_weeks or random.random() < 0.3:
        return days
    high = 53 if frequency == "YEARLY" and random.random() < 0.3 else 5
    numbers = ["", "1", "-1", "2", "-2", str(high), str(-high), f"+{random.randint(1, high)}"]
    return [random.choice(numbers) + day for day in days]


def recurrence(random: Random) -> Recurrence:
    frequency = random.choice(FREQUENCIES)
    is_yearly, is_long = frequency == "YEARLY", frequency in ("YEARLY", "MONTHLY")
    start = EPOCH + timedelta(
        days=random.randrange(18_000, 22_000), seconds=random.randrange(86_400)
    )
    rule = Recurrence(
        start=Stamp(start, "local"),
        frequency=frequency,
        interval=random.choice([1, 1, random.randint(1, 15)]),
        week_start=random.choice(["MO", "MO", *WEEKDAYS]),
        months=some(random, 0.25, 1, 12),
        week_numbers=signed(random, 0.25, high=53) if is_yearly else [],
    )
    if frequency not in ("DAILY", "WEEKLY", "MONTHLY"):
        rule.year_days = signed(random, 0.15, high=366)
    if frequency != "WEEKLY":
        rule.month_days = signed(random, 0.2, high=31)
    if random.random() < 0.5:
        rule.weekdays = weekdays(random, frequency, has_weeks=bool(rule.week_numbers))
    if is_long and not rule.week_numbers:
        rule.positions = signed(random, 0.3, high=4)
    rule.hours = some(random, 0.3, 0, 23, most=1 if rule.positions else 2)
    rule.minutes = some(random, 0.3, 0, 59, most=1 if rule.positions else 2)
    rule.seconds = some(random, 0.3, 0, 59, most=1 if rule.positions else 2)
    for values in (rule.hours, rule.minutes, rule.seconds):
        values.sort()
    if random.random() < 0.3:
        rule.count = random.randint(1, 40)
    elif random.random() < 0.3:
        rule.until = Stamp(start + timedelta(days=random.randrange(800)), "local")
    return rule


def days_of(rule: Recurrence) -> int:
    return FINE_DAYS if rule.frequency in ("MINUTELY", "SECONDLY") else DAYS


def expected_due(rule: Recurrence) -> list[int]:
    """The first due times within `days_of` the rule, as µs."""
    start = rule.start.moment
    until = rule.until.moment if rule.until else NEVER
    walls: Iterator[datetime] = (wall for wall in rule.walls(start, days_of(rule)) if wall >= start)
    walls = takewhile(lambda wall: wall <= until, islice(walls, rule.count))
    return [(wall - EPOCH) // timedelta(microseconds=1) for wall in islice(walls, FIRST)]


def compare(rule: Recurrence, case: str) -> bool:
    """Whether the rule is accepted; it must then be due when brute force says."""
    start_us = (rule.start.moment - EPOCH) // timedelta(microseconds=1)
    end_us = start_us + (days_of(rule) - 2) * 86_400_000_000
    try:
        spec = parse(rule.text, now_us=start_us - 1)
    except InvalidRecurrence:
        return False
    except ScheduleNeverFires:
        assert not expected_due(rule), case
        return False
    expected = [due_us for due_us in expected_due(rule) if due_us <= end_us]
    schedule = compile_schedule(spec, JOB, 0)
    found: list[int] = []
    due_us = schedule.next_after(start_us - 1)
    while due_us is not None and due_us <= end_us and len(found) < FIRST:
        found.append(due_us)
        due_us = schedule.next_after(due_us)
    assert found == expected, case
    if expected:
        assert schedule.count(start_us - 1, expected[-1]) == len(expected), case
        assert schedule.last_before(expected[-1] + 1) == expected[-1], case
    if len(expected) > 1:
        assert schedule.last_before(expected[-1]) == expected[-2], case
    return True


def run(cases: int) -> int:
    random = Random(SEED)
    compared = 0
    for _ in range(cases):
        rule = recurrence(random)
        compared += compare(rule, f"seed {SEED}: {rule.text!r}")
    return compared


def test_due_times_are_those_of_brute_force() -> None:
    assert run(cases=300) > 150


@pytest.mark.long
@pytest.mark.timeout(8 * 3600)
def test_many_due_times_are_those_of_brute_force() -> None:
    assert run(cases=30_000) > 15_000


# Parts that stand together in one rule.
MEETING: list[tuple[str, dict[str, Any]]] = [
    ("MONTHLY", {"weekdays": ["FR", "-1FR"]}),
    ("MONTHLY", {"weekdays": ["MO", "-1WE"]}),
    ("MONTHLY", {"weekdays": ["MO", "-1WE"], "months": [2, 11]}),
    ("MONTHLY", {"weekdays": ["TU", "1MO"], "month_days": [1, 2, 3, -1]}),
    ("MONTHLY", {"weekdays": ["MO", "2TH", "-1SU"], "positions": [1, -1]}),
    ("MONTHLY", {"weekdays": ["SA", "3SU"], "interval": 5}),
    ("YEARLY", {"weekdays": ["MO", "20TU"]}),
    ("YEARLY", {"weekdays": ["MO", "1TU"], "months": [1, 6]}),
    ("YEARLY", {"weekdays": ["MO", "-1TU"], "positions": [-1, 2]}),
    ("YEARLY", {"weekdays": ["MO", "53TH"], "year_days": [1, 5, -1, -2]}),
    ("YEARLY", {"weekdays": ["WE", "1FR"], "month_days": [13]}),
    ("YEARLY", {"week_numbers": [1, 20, 53]}),
    ("YEARLY", {"week_numbers": [1, -1], "months": [1]}),
    ("YEARLY", {"week_numbers": [20, 21], "month_days": [15, 20]}),
    ("YEARLY", {"week_numbers": [9], "weekdays": ["SU", "WE"], "week_start": "SU"}),
]


@pytest.mark.parametrize(("frequency", "parts"), MEETING)
def test_parts_that_meet_are_read_as_the_rfc_says(frequency: str, parts: dict[str, Any]) -> None:
    start = datetime(2026, 1, 1, 9)  # noqa: DTZ001 - the oracle's wall clock has no zone
    rule = Recurrence(Stamp(start, "local"), frequency, **parts)
    assert compare(rule, rule.text)
