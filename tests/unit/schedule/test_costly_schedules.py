"""Adversarial schedules: none takes long to accept or to refuse."""

from time import process_time

import pytest
from tests.unit.schedule.due import JOB, us

from wheelsched import errors
from wheelsched.schedule import at, bounds, dst
from wheelsched.schedule import compile as compile_
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.parse import parse
from wheelsched.schedule.rrule import bounds as rrule_bounds
from wheelsched.schedule.rrule import calendar as rrule_calendar
from wheelsched.schedule.rrule import days as rrule_days
from wheelsched.schedule.rrule import rule as rrule

NOW = us("2026-11-16T03:00")
CRON = "0 9 * * 1"
WEEKS = ",".join(map(str, range(1, 53)))

ADVERSARIES: list[object] = [
    "RRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
    "RRULE:FREQ=SECONDLY;BYMONTHDAY=31;BYMONTH=2,4,6,9,11;BYDAY=MO",
    "RRULE:FREQ=YEARLY;BYWEEKNO=53;BYMONTH=6",
    "RRULE:FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6",
    "RRULE:FREQ=MONTHLY;INTERVAL=12;BYMONTH=2;BYMONTHDAY=30",
    "DTSTART:19700101T000000 RRULE:FREQ=SECONDLY;INTERVAL=7;BYDAY=MO,TU,TH;COUNT=10000",
    "DTSTART:19700101T000000 RRULE:FREQ=DAILY;COUNT=999999999",
    "DTSTART:19700101T000000 RRULE:FREQ=SECONDLY;COUNT=999999999",
    "RRULE:FREQ=SECONDLY;BYSECOND=" + ",".join(map(str, range(60))),
    "RRULE:FREQ=YEARLY;INTERVAL=173",
    "RRULE:FREQ=DAILY;INTERVAL=999999999",
    "0 0 29 2 */7",
    "0 0 30 2 *",
    ",".join(["*/7"] * 40) + " " + ",".join(["0-23/5"] * 8) + " * * *",
    "H(0-59)/1,H(0-59)/1,H(0-59)/1 * * * *",
    "every 99999999999999999w",
    "0" * 250,
    "DTSTART:20200101T000000 RRULE:FREQ=HOURLY;INTERVAL=2;BYHOUR=1",
    "DTSTART:20200101T000000 RRULE:FREQ=SECONDLY;INTERVAL=90;BYSECOND=13",
    "DTSTART:20200101T000000 RRULE:FREQ=DAILY;UNTIL=20200101",
    f"RRULE:FREQ=YEARLY;BYWEEKNO={WEEKS};COUNT=99999999;BYHOUR=1,2",
    f"DTSTART:19700101T000000 RRULE:FREQ=YEARLY;BYWEEKNO={WEEKS};COUNT=99999;BYHOUR=1,2",
    "DTSTART:19700101T000000 RRULE:FREQ=DAILY;COUNT=83900",
    "DTSTART:19700101T000000 RRULE:FREQ=YEARLY;INTERVAL=7;COUNT=30",
    "DTSTART:19700101T000000 RRULE:FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30;COUNT=3000",
    "DTSTART:19700101T000000 RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE;BYSETPOS=-1;COUNT=3000",
    "DTSTART:19700101T000000 RRULE:FREQ=HOURLY;INTERVAL=23;BYMONTH=2;BYDAY=MO;COUNT=10000",
    {"cron": "* * * * *", "exclude": [f"{year}-07-01" for year in range(2030, 2158)]},
    {"cron": "* * * * *", "start": " " * 1_000_000},
    {"cron": "* * * * *", "end": "2" * 1_000_000},
    {"cron": "* * * * *", "exclude": [" " * 1_000_000, "/" * 1_000_000]},
]
CACHED = (at, bounds, compile_, cron, dst, rrule, rrule_bounds, rrule_calendar, rrule_days)


def forget_everything() -> None:
    """Clear the caches, because entries of other tests would hide a slow schedule."""
    for module in CACHED:
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


def seconds_to_judge(schedule: object, timezone: str) -> float:
    """CPU time to accept a schedule and compute a step, or to refuse it."""
    forget_everything()
    started = process_time()
    try:
        spec = parse(schedule, timezone=timezone, now_us=NOW)
    except (errors.InvalidField, errors.InvalidDocument):
        pass
    else:
        compiled = compile_schedule(spec, JOB, NOW)
        compiled.next_after(NOW)
        compiled.last_before(NOW)
    return process_time() - started


@pytest.mark.parametrize("schedule", ADVERSARIES, ids=lambda schedule: str(schedule)[:60])
@pytest.mark.parametrize("timezone", ["UTC", "America/New_York"])
def test_no_input_takes_long_to_accept_or_refuse(schedule: object, timezone: str) -> None:
    """The budget is 50 ms. The test allows twice that, best of three, for a busy machine."""
    assert min(seconds_to_judge(schedule, timezone) for _ in range(3)) < 0.100


def test_a_long_text_is_quoted_only_in_part() -> None:
    for options in (
        {"start": " " * 1_000_000},
        {"end": "2026-12-25T" + "0" * 1_000_000},
        {"exclude": ["2026-12-25/" + " " * 1_000_000]},
    ):
        with pytest.raises(errors.InvalidField) as refused:
            parse({"cron": CRON, **options}, now_us=NOW)
        assert len(str(refused.value)) < 200
