"""RRULE in UTC against dateutil's own expansion, walked from DTSTART one by one.

BYWEEKNO is left out: dateutil loses days of week 52 in January (1983-01-01), so that
week numbers are held against `date.isocalendar` in the unit tests instead.
"""

import os
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from random import Random
from uuid import UUID

from dateutil.rrule import rrulestr

from wheelsched.core.schedule import compile_schedule, parse
from wheelsched.errors import InvalidRecurrence, ScheduleNeverFires

JOB = UUID(int=1)
SEED = int(os.environ.get("WHEELSCHED_SEED", "20260308"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEW_YEAR_S = 1_767_225_600  # 2026
WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def numbers(random: Random, low: int, high: int) -> str:
    return ",".join(map(str, random.sample(range(low, high + 1), random.randint(1, 3))))


def part(random: Random, name: str, value: str, chance: float) -> list[str]:
    return [f"{name}={value}"] if random.random() < chance else []


def rule(random: Random) -> str:
    frequency = random.choice(
        ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]
    )
    is_long = frequency in ("YEARLY", "MONTHLY")
    nth = random.choice(["", "", "1", "-1", "2"]) if is_long else ""
    parts = [f"FREQ={frequency}"]
    parts += part(random, "INTERVAL", str(random.randint(1, 15)), 0.5)
    parts += part(random, "WKST", random.choice(WEEKDAYS), 0.3)
    parts += part(random, "BYMONTH", numbers(random, 1, 12), 0.2)
    if frequency != "WEEKLY":
        parts += part(random, "BYMONTHDAY", random.choice(["1", "31", "-1", "13,15"]), 0.2)
    if frequency == "YEARLY":
        parts += part(random, "BYYEARDAY", random.choice(["1", "-1", "366", "100,200"]), 0.2)
    days = random.sample(WEEKDAYS, random.randint(1, 3))
    by_day = part(random, "BYDAY", ",".join(nth + day for day in days), 0.4)
    parts += by_day
    if is_long and by_day:
        parts += part(random, "BYSETPOS", random.choice(["1", "-1", "2"]), 0.3)
    parts += part(random, "BYHOUR", str(random.randrange(24)), 0.3)
    parts += part(random, "BYMINUTE", str(random.randrange(60)), 0.3)
    parts += part(random, "BYSECOND", str(random.randrange(60)), 0.3)
    parts += random.choice([[], [], [f"COUNT={random.randint(1, 40)}"], ["UNTIL=20280229T120000"]])
    return ";".join(parts)


def test_due_times_are_those_of_dateutil() -> None:
    random = Random(SEED)
    compared = 0
    for _ in range(300):
        start = datetime.fromtimestamp(NEW_YEAR_S + random.randrange(365 * 86_400), UTC)
        text = f"DTSTART:{start:%Y%m%dT%H%M%S}\nRRULE:{rule(random)}"
        start_us = (start - EPOCH) // timedelta(microseconds=1)
        case = f"seed {SEED}: {text!r}"
        try:
            spec = parse(text, now_us=start_us - 1)
        except (InvalidRecurrence, ScheduleNeverFires):
            continue
        schedule = compile_schedule(spec, JOB, 0)
        expected = [
            (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
            for moment in islice(takewhile(lambda moment: moment.year < 2200, rrulestr(text)), 45)
        ]
        found: list[int] = []
        due_us = schedule.next_after(start_us - 1)
        while due_us is not None and len(found) < 45:
            found.append(due_us)
            due_us = schedule.next_after(due_us)
        assert found == expected, case
        assert schedule.count(start_us - 1, expected[-1]) == len(expected), case
        assert schedule.last_before(expected[-1] + 1) == expected[-1], case
        if len(expected) > 1:
            assert schedule.last_before(expected[-1]) == expected[-2], case
        compared += 1
    assert compared > 150
