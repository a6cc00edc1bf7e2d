"""DTSTART, UNTIL, COUNT and EXDATE are instants, also around clock changes."""

import pytest
from tests.unit.schedule.due import next_due, schedule_of, spec_of, us

from wheelsched.errors import InvalidRecurrence
from wheelsched.schedule.parse import parse
from wheelsched.schedule.rrule import bounds as rrule_bounds

NEW_YORK = "America/New_York"
BEFORE = "2026-10-31T00:00"  # clocks go back on 2026-11-01 at 06:00Z
SPRING = "2026-03-07T12:00"  # and forward on 2026-03-08 at 07:00Z


def due(rule: str, count: int = 9, *, after: str = BEFORE, overlap: str = "first") -> list[str]:
    return [
        text[5:] for text in next_due(rule, count, after=after, timezone=NEW_YORK, overlap=overlap)
    ]


def test_one_run_in_the_hour_that_is_twice_is_one_run() -> None:
    assert due("DTSTART:20261101T013000 RRULE:FREQ=HOURLY;COUNT=1") == ["11-01 01:30 -0400"]


def test_no_run_is_before_an_instant_as_dtstart() -> None:
    rule = "DTSTART:20261101T063000Z RRULE:FREQ=HOURLY;COUNT=3"
    assert due(rule) == ["11-01 01:30 -0500", "11-01 02:30 -0500", "11-01 03:30 -0500"]
    schedule = schedule_of(rule, after=BEFORE, timezone=NEW_YORK)
    assert schedule.last_before(us("2026-11-01T06:30Z")) is None
    assert schedule.count(0, us("2027-01-01")) == 3


def test_no_run_is_after_an_instant_as_until() -> None:
    rule = "DTSTART:20261101T003000 RRULE:FREQ=HOURLY;UNTIL=20261101T053000Z"
    assert due(rule) == ["11-01 00:30 -0400", "11-01 01:30 -0400"]


def test_a_local_until_is_the_last_instant_that_shows_it() -> None:
    rule = "DTSTART:20261101T003000 RRULE:FREQ=HOURLY;UNTIL=20261101T013000"
    assert due(rule) == ["11-01 00:30 -0400", "11-01 01:30 -0400", "11-01 01:30 -0500"]


def test_a_rule_that_began_in_the_first_copy_goes_on_through_the_second() -> None:
    rule = "DTSTART:20261101T014500 RRULE:FREQ=MINUTELY;INTERVAL=15"
    assert due(rule, 3) == ["11-01 01:45 -0400", "11-01 01:00 -0500", "11-01 01:15 -0500"]


def test_an_instant_is_excluded_and_not_its_twin() -> None:
    rule = "DTSTART:20261101T000000 RRULE:FREQ=HOURLY;COUNT=4 EXDATE:20261101T050000Z"
    assert due(rule) == ["11-01 00:00 -0400", "11-01 01:00 -0500", "11-01 02:00 -0500"]


def test_a_local_time_is_excluded_as_often_as_it_is_due() -> None:
    rule = "DTSTART:20261101T000000 RRULE:FREQ=HOURLY;COUNT=4 EXDATE:20261101T010000"
    assert due(rule) == ["11-01 00:00 -0400", "11-01 02:00 -0500"]


def test_a_time_in_a_gap_is_excluded_where_it_would_be_due() -> None:
    fixed = "DTSTART:20260308T023000 RRULE:FREQ=DAILY EXDATE:20260308T023000"
    assert due(fixed, 1, after=SPRING) == ["03-09 02:30 -0400"]
    elapsed = "DTSTART:20260308T010000 RRULE:FREQ=HOURLY EXDATE:20260308T020000"
    assert due(elapsed, 2, after=SPRING) == ["03-08 01:00 -0500", "03-08 03:00 -0400"]


def test_count_counts_runs_and_not_times_that_never_were() -> None:
    rule = "DTSTART:20260308T000000 RRULE:FREQ=HOURLY;COUNT=4"
    assert due(rule, after=SPRING) == [
        "03-08 00:00 -0500",
        "03-08 01:00 -0500",
        "03-08 03:00 -0400",
        "03-08 04:00 -0400",
    ]


def test_count_counts_both_copies() -> None:
    rule = "DTSTART:20261101T013000 RRULE:FREQ=DAILY;COUNT=2"
    assert due(rule, overlap="both") == ["11-01 01:30 -0400", "11-01 01:30 -0500"]


@pytest.mark.parametrize("now", ["2026-11-16T03:00:00", "2026-11-16T03:00:00.250"])
@pytest.mark.parametrize("count", [1, 3])
def test_without_dtstart_no_run_is_lost(now: str, count: int) -> None:
    assert len(next_due(f"RRULE:FREQ=DAILY;COUNT={count}", 9, after=now)) == count


@pytest.mark.parametrize("interval", [1, 2, 10])
def test_without_dtstart_a_rule_of_minutes_runs_all_through_its_hours(interval: int) -> None:
    rule = f"RRULE:FREQ=MINUTELY;INTERVAL={interval};BYHOUR=9,17"
    due_times = next_due(rule, 2 * 60 // interval, after="2026-11-16T03:00:54")
    assert {time[:13] for time in due_times} == {"2026-11-16 09", "2026-11-16 17"}


def test_a_start_with_a_fraction_loses_no_run() -> None:
    for start in ("2026-12-01T09:00:00.5", "2026-12-01T09:00:00"):
        rule = {"rrule": "FREQ=DAILY;COUNT=3", "start": start}
        assert len(next_due(rule, 9, after="2026-11-16T03:00")) == 3, start


def test_registered_in_the_second_copy_of_an_hour_no_run_is_lost() -> None:
    now_us = us("2026-11-01T06:30:00.5Z")
    spec = parse("RRULE:FREQ=HOURLY;COUNT=3", timezone=NEW_YORK, now_us=now_us)
    assert spec.expression.startswith("DTSTART:20261101T063001Z")
    found = next_due(spec.expression.replace("\n", " "), 9, after=BEFORE, timezone=NEW_YORK)
    assert len(found) == 3


def test_excluded_times_are_counted() -> None:
    rule = "DTSTART:20261101T090000 RRULE:FREQ=DAILY;COUNT=4 EXDATE:20261102T090000"
    assert [text[:5] for text in due(rule)] == ["11-01", "11-03", "11-04"]


@pytest.mark.parametrize("written", ["EXDATE:20261225", "EXDATE;VALUE=DATE:20261225"])
def test_an_excluded_date_is_the_whole_day(written: str) -> None:
    rule = f"DTSTART:20261224T090000 RRULE:FREQ=DAILY;BYHOUR=0,9,23 {written}"
    assert [text[:8] for text in due(rule, 4)] == ["12-24 09", "12-24 23", "12-26 00", "12-26 09"]


def test_a_date_with_a_time_is_refused() -> None:
    with pytest.raises(InvalidRecurrence, match="VALUE=DATE and a time"):
        spec_of("RRULE:FREQ=DAILY EXDATE;VALUE=DATE:20261225T090000", after=BEFORE)
    with pytest.raises(InvalidRecurrence, match="must be one of: TZID=UTC"):
        spec_of("RRULE:FREQ=DAILY EXDATE;VALUE=PERIOD:20261225", after=BEFORE)


def test_folded_lines_are_unfolded() -> None:
    folded = "DTSTART:20261224T090000\r\nRRULE:FREQ=DAILY;BYHOUR=\r\n 9,1\r\n\t7\r\n"
    assert [text[6:8] for text in due(folded, 2)] == ["09", "17"]
    indented = "DTSTART:20261224T090000\n RRULE:FREQ=DAILY\n   EXDATE:20261225T090000"
    assert [text[:5] for text in due(indented, 2)] == ["12-24", "12-26"]


@pytest.mark.parametrize(
    "rule", ["FREQ=HOURLY;INTERVAL=24", "FREQ=MINUTELY;INTERVAL=1440", "FREQ=DAILY"]
)
def test_one_time_a_day_is_fixed_however_it_is_written(rule: str) -> None:
    spring = due(f"DTSTART:20260301T023000 RRULE:{rule}", 2, after=SPRING)
    assert spring == ["03-08 03:00 -0400", "03-09 02:30 -0400"]
    autumn = due(f"DTSTART:20260301T013000 RRULE:{rule}", 2, after=BEFORE + ":01")
    assert autumn == ["10-31 01:30 -0400", "11-01 01:30 -0400"]
    assert due(f"DTSTART:20261101T013000 RRULE:{rule}", 2)[1].startswith("11-02")


@pytest.mark.parametrize("position", [1, 4, 5, 100, 3_599, 3_601, 90_000, 40_000_000])
def test_the_nth_due_time_has_as_many_before_it(position: int) -> None:
    schedule = schedule_of("* * * * * *", after="2026-03-01T00:00", timezone=NEW_YORK)
    start_us = us("2026-03-08T06:59:00Z")
    last_us = rrule_bounds.nth_due(schedule, start_us, position)
    assert last_us is not None
    assert schedule.count(start_us - 1, last_us) == position
