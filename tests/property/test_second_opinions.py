"""cronsim and croniter agree with us where they are right. Where they are not:

cronsim
- decides by the spelling: a schedule whose minute or hour begins with a star runs whenever the
  clock shows its time, as in Debian's cron. We decide by the times around the change: compared
  where both rules come to the same (every hour of every day, or hours that are not neighbours).
- knows neither `?` nor a step without a range (`10/20`): an error, skipped here.

croniter
- takes either day field where one is a step of stars (`*/2`): Vixie's cron takes both.
- takes both day fields where one has a `#` (`0 0 1 * 1#1`): Vixie's rule says either.
- reads `5-5` as every value, and runs backwards ranges around the end.
- is due twice in an overlap and once too often around a gap: compared in UTC only.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from random import Random
from uuid import UUID
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim, CronSimError
from tests.property import expressions
from tests.property.oracle import Cron, changes_of_2020s

from wheelsched.errors import ScheduleNeverFires
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse

SECOND = 1_000_000
SEED = int(os.environ.get("WHEELSCHED_SEED", "20260308"))


def ours(text: str, timezone: str, after_s: int) -> Iterator[int]:
    spec = parse(text, timezone=timezone, now_us=after_s * SECOND)
    schedule = compile_schedule(spec, UUID(int=1), 0)
    due_us = schedule.next_after(after_s * SECOND)
    while due_us is not None:
        yield due_us // SECOND
        due_us = schedule.next_after(due_us)


def is_fixed(text: str) -> bool:
    """Whether no two runs in a row are in neighbouring hours, and cronsim sees no star."""
    hours = Cron(text).hours
    has_neighbours = any((hour + 1) % 24 in hours for hour in hours)
    return "*" not in "".join(text.split()[:2]) and not has_neighbours


def is_hourly(text: str) -> bool:
    """Whether it runs in every hour of every day."""
    _, *fields = text.split()
    return all(field in ("*", "?") for field in fields)


def test_croniter_agrees_in_utc() -> None:
    random = Random(SEED)
    compared = 0
    for _ in range(1_000):
        text = expressions.cron(random)
        after_s = random.randrange(1_577_836_800, 1_893_456_000)
        day, weekday = text.split()[2], text.split()[4]
        both_days = day not in "*?" and weekday not in "*?"
        if weekday.endswith("L") or (both_days and ("*" in day + weekday or "#" in weekday)):
            continue  # croniter writes the last Friday L5
        try:
            found = list(islice(ours(text, "UTC", after_s), 8))
        except ScheduleNeverFires:
            continue
        theirs = croniter(text, datetime.fromtimestamp(after_s, UTC))
        expected = [int(theirs.get_next(float)) for _ in range(8)]
        assert found == expected, f"seed {SEED}: {text!r} after {after_s}"
        compared += 1
    assert compared > 500


def test_cronsim_agrees_through_clock_changes() -> None:
    random = Random(SEED)
    zones = changes_of_2020s()
    compared = 0
    for _ in range(3_000):
        text = expressions.cron(random)
        if not is_fixed(text) and not is_hourly(text):
            continue
        zone = random.choice(list(zones))
        after_s = random.choice(zones[zone]).utc_s - random.randrange(86_400)
        try:
            theirs = CronSim(text, datetime.fromtimestamp(after_s, ZoneInfo(zone)))
            found = list(islice(ours(text, zone, after_s), 12))
        except (CronSimError, ScheduleNeverFires):
            continue
        expected = [int(next(theirs).timestamp()) for _ in range(12)]
        assert found == expected, f"seed {SEED}: {text!r} in {zone} after {after_s}"
        compared += 1
    assert compared > 500
