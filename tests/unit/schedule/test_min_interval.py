"""The shortest interval of a rule, derived from its fields."""

import pytest
from tests.unit.schedule.due import spec_of

from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.min_interval import shortest_interval_us
from wheelsched.values.duration import DAY, HOUR, MINUTE, SECOND

YEAR_DAYS = ",".join(map(str, [*range(1, 302, 10), 302]))


@pytest.mark.parametrize(
    ("schedule", "interval_us"),
    [
        ("* * * * * *", SECOND),
        ("0,10,25 * * * * *", 10 * SECOND),
        ("0,10,59 * * * * *", SECOND),
        ("0,20,59 0-58/2,59 * * * *", SECOND),
        ("0,20,59 0-58/2 * * * *", 20 * SECOND),
        ("*/5 * * * *", 5 * MINUTE),
        ("0,58 */2 * * *", 58 * MINUTE),
        ("0,58 1,2,4 * * *", 2 * MINUTE),
        ("0 9,10,18 * * *", HOUR),
        ("0 0,23 * * *", HOUR),
        ("0 0,23 */2 * *", HOUR),
        ("0 0,23 1 * *", 23 * HOUR),
        ("0 9 * * 1", 7 * DAY),
        ("0 9 1,15 * *", 14 * DAY),
        ("0 9 1 * *", 28 * DAY),
        ("0 9 1,31 * *", DAY),
        ("0 9 29 2 *", 1461 * DAY),
        ("every 90m", 90 * MINUTE),
        ("2027-01-01T09:00", None),
        ("DTSTART:20270101T090000 RRULE:FREQ=DAILY", DAY),
        # The two neighbours are the 31st and the 32nd of a year's.
        (f"DTSTART:20270101T090000 RRULE:FREQ=YEARLY;BYYEARDAY={YEAR_DAYS}", DAY),
    ],
)
@pytest.mark.parametrize("timezone", ["UTC", "America/New_York"])
def test_the_shortest_interval(schedule: str, interval_us: int | None, timezone: str) -> None:
    spec = spec_of(schedule, after="2026-11-16T03:00", timezone=timezone)
    assert shortest_interval_us(spec, cron.worst_case) == interval_us
