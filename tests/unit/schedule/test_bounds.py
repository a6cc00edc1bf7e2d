"""Start, end and excluded dates, and the jitter on top."""

from uuid import UUID

import pytest
from tests.unit.schedule.due import JOB, next_due, schedule_of, us

from wheelsched.schedule.at import At
from wheelsched.schedule.bounds import Bounded, interval_of_dates
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.values.duration import HOUR, MINUTE, SECOND

LONDON = "Europe/London"


def test_a_start_and_an_end_are_both_included() -> None:
    bounded = {"cron": "0 9 * * *", "start": "2026-12-01T09:00", "end": "2026-12-02T09:00"}
    assert [due[:16] for due in next_due(bounded, 5, after="2026-11-16T00:00")] == [
        "2026-12-01 09:00",
        "2026-12-02 09:00",
    ]


def test_an_end_that_is_a_date_includes_the_day() -> None:
    bounded = {"cron": "59 23 * * *", "end": "2026-11-17"}
    assert [due[:10] for due in next_due(bounded, 5, after="2026-11-16T00:00")] == [
        "2026-11-16",
        "2026-11-17",
    ]


def test_a_finer_start_is_rounded_up_and_a_finer_end_is_kept() -> None:
    bounded = {
        "every": "1s",
        "start": "2026-12-01T09:00:00.1005",
        "end": "2026-12-01T09:00:03.1009",
    }
    schedule = schedule_of(bounded, after="2026-11-16T00:00")
    due_us = [schedule.next_after(us("2026-12-01T09:00"))]
    while due_us[-1] is not None:
        due_us.append(schedule.next_after(due_us[-1]))
    first_us = us("2026-12-01T09:00") + 101_000
    assert due_us == [first_us, first_us + SECOND, first_us + 2 * SECOND, None]


@pytest.mark.parametrize("end", ["9999-12-31", "9999-12-31T23:59:59Z", "2200-01-01T00:00"])
def test_an_end_beyond_the_last_year_is_ignored(end: str) -> None:
    assert parse({"cron": "0 9 * * *", "end": end}, now_us=us("2026-11-16T00:00")).end_us is None


def test_a_start_is_local_to_the_zone() -> None:
    found = next_due(
        {"cron": "0 * * * *", "start": "2026-12-01T09:00"},
        1,
        after="2026-11-16T00:00",
        timezone="Asia/Tokyo",
    )
    assert found == ["2026-12-01 09:00 +0900"]


def test_excluded_dates_and_ranges_are_dates_of_the_zone() -> None:
    excluded = {"cron": "0 0 * * *", "exclude": ["2026-11-18", "2026-11-20/2026-11-22"]}
    found = next_due(excluded, 3, after="2026-11-16T12:00", timezone=LONDON)
    assert [due[:10] for due in found] == ["2026-11-17", "2026-11-19", "2026-11-23"]


def test_an_excluded_day_of_a_clock_change_is_excluded_to_its_last_hour() -> None:
    excluded = {"cron": "30 * * * *", "exclude": ["2026-10-25"]}
    found = next_due(excluded, 2, after="2026-10-24T23:00", timezone=LONDON)
    assert found == ["2026-10-24 23:30 +0100", "2026-10-26 00:30 +0000"]


@pytest.mark.parametrize(
    ("timezone", "day", "from_utc", "until_utc"),
    [
        # Midnight is shown twice, and both are of the new day.
        ("America/Havana", "2026-10-31", "2026-10-31T04:00", "2026-11-01T04:00"),
        ("America/Havana", "2026-11-01", "2026-11-01T04:00", "2026-11-02T05:00"),
        # Back at 00:01 to 23:01: the old day is shown once more.
        ("America/St_Johns", "2010-11-06", "2010-11-06T02:30", "2010-11-07T03:30"),
        # No midnight: forward at 00:00 to 01:00, and at 23:30 to 00:00.
        ("Africa/Cairo", "2026-04-24", "2026-04-23T22:00", "2026-04-24T21:00"),
        ("Asia/Pyongyang", "2018-05-04", "2018-05-03T15:30", "2018-05-04T15:00"),
        # A day that never was.
        ("Pacific/Apia", "2011-12-30", "2011-12-30T10:00", "2011-12-30T10:00"),
    ],
)
def test_a_date_is_all_that_the_clocks_show_of_it(
    timezone: str, day: str, from_utc: str, until_utc: str
) -> None:
    assert interval_of_dates(day, timezone) == (us(from_utc), us(until_utc))


def test_nothing_is_searched_for_past_the_end_or_before_the_start() -> None:
    asked: list[int] = []

    class Recorded(At):
        def next_after(self, after_us: int) -> int | None:
            asked.append(after_us)
            return super().next_after(after_us)

        def last_before(self, before_us: int) -> int | None:
            asked.append(before_us)
            return super().last_before(before_us)

    bounded = Bounded(Recorded([5, 50, 500]), ((-1_000, 10), (100, 1_000)))
    assert bounded.next_after(2) == 50
    assert bounded.next_after(200) is None
    assert bounded.last_before(600) == 50
    assert bounded.last_before(8) is None
    assert asked == [9, 999, 100, -1_000]


def test_exclusions_hold_for_every_kind() -> None:
    for schedule in ({"every": "1d"}, {"rrule": "FREQ=DAILY;BYHOUR=12"}, {"cron": "0 12 * * *"}):
        found = next_due(
            {**schedule, "exclude": ["2026-11-17", "2026-11-18"]}, 1, after="2026-11-16T12:00"
        )
        assert found[0].startswith("2026-11-19")


def test_excluded_due_times_are_not_counted() -> None:
    schedule = schedule_of(
        {"cron": "0 * * * *", "exclude": ["2026-11-18", "2026-11-18/2026-11-19"]},
        after="2026-11-16T00:00",
    )
    assert schedule.count(us("2026-11-17"), us("2026-11-21")) == 96 - 48
    assert schedule.last_before(us("2026-11-20")) == us("2026-11-17T23:00")


def test_jitter_is_the_same_each_time_and_below_its_bound() -> None:
    now_us = us("2026-11-16T00:00")
    spec = parse("*/5 * * * *", jitter="5m", now_us=now_us)
    schedule = compile_schedule(spec, JOB, now_us)
    delays = []
    due_us = now_us
    for _ in range(200):
        delays.append(schedule.jitter_us(due_us))
        assert schedule.jitter_us(due_us) == delays[-1]
        next_us = schedule.next_after(due_us)
        assert next_us is not None
        assert 0 <= delays[-1] < next_us - due_us
        due_us = next_us
    assert len(set(delays)) > 190


def test_jitter_gives_way_to_a_due_time_that_comes_early() -> None:
    """`both` makes two due times an hour apart of one a day: neither may pass the other."""
    spec = parse(
        "30 1 * * *",
        timezone="America/New_York",
        dst_overlap="both",
        jitter="2h",
        now_us=us("2026-01-16T00:00"),
    )
    first_us, second_us = us("2026-11-01T01:30-04:00"), us("2026-11-01T01:30-05:00")
    delays = []
    for number in range(100):
        schedule = compile_schedule(spec, UUID(int=number), first_us)
        assert schedule.next_after(first_us) == second_us
        delays.append(schedule.jitter_us(first_us))
        assert schedule.jitter_us(second_us) < 2 * HOUR
    assert max(delays) < HOUR
    assert max(delays) > 50 * MINUTE  # it gives way, and no further than it must


def test_without_jitter_there_is_no_delay() -> None:
    schedule = schedule_of("* * * * *", after="2026-11-16T00:00")
    assert schedule.jitter_us(us("2026-11-16T00:00")) == 0
