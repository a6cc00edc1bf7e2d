"""One test for each rule of clock changes, in the most difficult zones."""

import pytest
from tests.unit.schedule.due import next_due, schedule_of, us

from wheelsched.schedule.dst import timeline

NEW_YORK = "America/New_York"


def test_new_york_gap_moves_a_fixed_time_to_its_end() -> None:
    assert next_due("30 2 * * *", 3, after="2026-03-07T12:00", timezone=NEW_YORK) == [
        "2026-03-08 03:00 -0400",
        "2026-03-09 02:30 -0400",
        "2026-03-10 02:30 -0400",
    ]


def test_new_york_gap_can_be_skipped() -> None:
    assert next_due("30 2 * * *", 2, after="2026-03-07T12:00", timezone=NEW_YORK, gap="skip") == [
        "2026-03-09 02:30 -0400",
        "2026-03-10 02:30 -0400",
    ]


def test_several_matches_in_one_gap_are_one_due_time() -> None:
    assert next_due("*/10 2 * * *", 2, after="2026-03-08T00:00", timezone=NEW_YORK) == [
        "2026-03-08 03:00 -0400",
        "2026-03-09 02:00 -0400",
    ]


def test_a_match_at_the_end_of_a_gap_is_not_due_twice() -> None:
    schedule = schedule_of("0,30 2,3 * * *", after="2026-03-08T00:00", timezone=NEW_YORK)
    after_us, until_us = us("2026-03-08T00:00", NEW_YORK), us("2026-03-08T12:00", NEW_YORK)
    assert next_due("0,30 2,3 * * *", 2, after="2026-03-08T00:00", timezone=NEW_YORK) == [
        "2026-03-08 03:00 -0400",
        "2026-03-08 03:30 -0400",
    ]
    assert schedule.count(after_us, until_us) == 2


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("first", ["2026-11-01 01:30 -0400", "2026-11-02 01:30 -0500"]),
        ("last", ["2026-11-01 01:30 -0500", "2026-11-02 01:30 -0500"]),
        ("both", ["2026-11-01 01:30 -0400", "2026-11-01 01:30 -0500"]),
    ],
)
def test_new_york_overlap_is_the_first_the_last_or_both(overlap: str, expected: list[str]) -> None:
    found = next_due("30 1 * * *", 2, after="2026-10-31T12:00", timezone=NEW_YORK, overlap=overlap)
    assert found == expected


def test_london_falls_back_at_two_and_springs_at_one() -> None:
    assert next_due("30 1 * * *", 2, after="2026-03-28T12:00", timezone="Europe/London") == [
        "2026-03-29 02:00 +0100",
        "2026-03-30 01:30 +0100",
    ]
    assert next_due("30 1 * * *", 2, after="2026-10-24T12:00", timezone="Europe/London") == [
        "2026-10-25 01:30 +0100",
        "2026-10-26 01:30 +0000",
    ]


def test_an_hourly_schedule_runs_in_both_copies_of_an_hour() -> None:
    assert next_due("30 * * * *", 4, after="2026-11-01T00:00", timezone=NEW_YORK) == [
        "2026-11-01 00:30 -0400",
        "2026-11-01 01:30 -0400",
        "2026-11-01 01:30 -0500",
        "2026-11-01 02:30 -0500",
    ]


def test_an_hourly_schedule_has_nothing_extra_for_a_gap() -> None:
    assert next_due("30 * * * *", 3, after="2026-03-08T01:00", timezone=NEW_YORK) == [
        "2026-03-08 01:30 -0500",
        "2026-03-08 03:30 -0400",
        "2026-03-08 04:30 -0400",
    ]


@pytest.mark.parametrize(
    "hours",
    ["*/2", "0-22/2", "0/2", "0,2,4,6,8,10,12,14,16,18,20,22"],
)
def test_spellings_of_the_same_hours_do_the_same_in_a_gap(hours: str) -> None:
    assert next_due(f"0 {hours} * * *", 3, after="2026-03-08T00:00", timezone=NEW_YORK) == [
        "2026-03-08 03:00 -0400",
        "2026-03-08 04:00 -0400",
        "2026-03-08 06:00 -0400",
    ]


@pytest.mark.parametrize("hours", ["0-6", "*/1", "0,1,2", "1-3"])
def test_an_hourly_schedule_runs_through_an_overlap(hours: str) -> None:
    found = next_due(f"*/30 {hours} * * *", 5, after="2026-11-01T00:30", timezone=NEW_YORK)
    assert found == [
        "2026-11-01 01:00 -0400",
        "2026-11-01 01:30 -0400",
        "2026-11-01 01:00 -0500",
        "2026-11-01 01:30 -0500",
        "2026-11-01 02:00 -0500",
    ]


def test_two_runs_an_hour_apart_are_two_appointments() -> None:
    assert next_due("30 1,2 * * *", 3, after="2026-11-01T00:00", timezone=NEW_YORK) == [
        "2026-11-01 01:30 -0400",
        "2026-11-01 02:30 -0500",
        "2026-11-02 01:30 -0500",
    ]
    assert next_due("30 2,3 * * *", 2, after="2026-03-08T00:00", timezone=NEW_YORK) == [
        "2026-03-08 03:00 -0400",
        "2026-03-08 03:30 -0400",
    ]


def test_a_run_is_not_lost_in_a_gap_if_it_is_the_last_of_several() -> None:
    assert next_due("0 0-2 * * *", 3, after="2026-03-08T00:00", timezone=NEW_YORK) == [
        "2026-03-08 01:00 -0500",
        "2026-03-08 03:00 -0400",
        "2026-03-09 00:00 -0400",
    ]


def test_cron_and_rrule_with_the_same_times_do_the_same() -> None:
    rule = "DTSTART:20260301T000000 RRULE:FREQ=HOURLY;INTERVAL=2"
    for after in ("2026-03-07T20:00", "2026-10-31T20:00"):
        assert next_due(rule, 9, after=after, timezone=NEW_YORK) == next_due(
            "0 */2 * * *", 9, after=after, timezone=NEW_YORK
        )


def test_the_policies_do_not_apply_to_a_change_that_is_run_through() -> None:
    for overlap in ("first", "last"):
        found = next_due(
            "0 * * * *", 3, after="2026-11-01T00:30", timezone=NEW_YORK, overlap=overlap
        )
        assert found == [
            "2026-11-01 01:00 -0400",
            "2026-11-01 01:00 -0500",
            "2026-11-01 02:00 -0500",
        ]


def test_lord_howe_changes_by_half_an_hour() -> None:
    lord_howe = "Australia/Lord_Howe"
    assert next_due("15 2 * * *", 2, after="2026-10-03T12:00", timezone=lord_howe) == [
        "2026-10-04 02:30 +1100",
        "2026-10-05 02:15 +1100",
    ]
    assert next_due("45 1 * * *", 2, after="2026-04-04T12:00", timezone=lord_howe) == [
        "2026-04-05 01:45 +1100",
        "2026-04-06 01:45 +1030",
    ]
    assert next_due("15 1 * * *", 1, after="2026-04-04T12:00", timezone=lord_howe) == [
        "2026-04-05 01:15 +1100",
    ]


def test_cairo_has_a_gap_at_midnight() -> None:
    assert next_due("0 0 * * *", 2, after="2026-04-23T12:00", timezone="Africa/Cairo") == [
        "2026-04-24 01:00 +0300",
        "2026-04-25 00:00 +0300",
    ]
    assert next_due("30 23 * * *", 3, after="2026-10-28T12:00", timezone="Africa/Cairo") == [
        "2026-10-28 23:30 +0300",
        "2026-10-29 23:30 +0300",
        "2026-10-30 23:30 +0200",
    ]


def test_apia_had_a_day_that_never_was() -> None:
    assert next_due("0 9 * * *", 3, after="2011-12-29T00:00", timezone="Pacific/Apia") == [
        "2011-12-29 09:00 -1000",
        "2011-12-31 00:00 +1400",
        "2011-12-31 09:00 +1400",
    ]
    assert next_due(
        "0 9 * * *", 2, after="2011-12-29T00:00", timezone="Pacific/Apia", gap="skip"
    ) == [
        "2011-12-29 09:00 -1000",
        "2011-12-31 09:00 +1400",
    ]


def test_a_time_before_a_change_is_not_shifted_by_it() -> None:
    assert next_due("59 1 * * *", 1, after="2026-03-08T00:00", timezone=NEW_YORK) == [
        "2026-03-08 01:59 -0500"
    ]


def test_years_are_skipped_in_one_jump() -> None:
    assert next_due("0 2 29 2 */7", 3, after="2026-01-01T00:00", timezone=NEW_YORK) == [
        "2032-02-29 02:00 -0500",
        "2060-02-29 02:00 -0500",
        "2088-02-29 02:00 -0500",
    ]


def test_stretches_cover_time_without_a_hole() -> None:
    rows = timeline(NEW_YORK, "shift", "first")
    stretch = rows.at(0)
    while stretch.start_s < 4_000_000_000:
        following = rows.at(stretch.end_s)
        assert following.start_s == stretch.end_s
        assert rows.at(stretch.end_s - 1) == stretch
        stretch = following
