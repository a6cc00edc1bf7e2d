"""Explanations: words, next times, and a warning for each clock change that matters."""

import pytest
from tests.unit.core.due import JOB, spec_of, us

from wheelsched.core.explain import Explanation, explain

AFTER = "2026-11-16T03:00"


def explained(
    schedule: object, timezone: str = "UTC", *, gap: str = "shift", overlap: str = "first"
) -> Explanation:
    spec = spec_of(schedule, after=AFTER, timezone=timezone, gap=gap, overlap=overlap)
    return explain(spec, JOB, now_us=us(AFTER, timezone), count=2)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("0 9 * * 1", "At 09:00, only on Monday"),
        ("0 14 * * 1#1", "At 14:00, on the first Monday of the month"),
        ("0 0 * 3-4 *", "At 00:00, March through April"),
        ("0 0 13 * 5", "At 00:00, on day 13 of the month, or on Friday"),
        ("0 0 * * 5L", "At 00:00, on the last Friday of the month"),
        ("every 90m", "Every 1h30m of elapsed time"),
        ("2027-01-01T09:00", "Once, at 2027-01-01T09:00:00 in UTC"),
        ("2027-01-01T09:00+01:00", "Once, at 2027-01-01T08:00:00Z"),
        (
            "DTSTART:20261201T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=10",
            "Every 2 weeks, on Monday, Wednesday, from 2026-12-01T09:00:00 on, 10 times",
        ),
        (
            "DTSTART:20261201T090000 RRULE:FREQ=MONTHLY;BYDAY=-1FR,2MO;UNTIL=20270101T000000Z",
            (
                "Every month, on the last Friday, Monday number 2, from 2026-12-01T09:00:00 on, "
                "until 2027-01-01T00:00:00Z"
            ),
        ),
    ],
)
def test_words(schedule: str, words: str) -> None:
    assert explained(schedule).words == words


def test_a_hash_is_explained_as_what_it_is_for_the_job() -> None:
    assert explained("H H * * *").words.startswith("At ")


def test_the_next_times_in_utc_and_on_local_clocks() -> None:
    due = explained("0 9 * * *", "America/New_York").next_times[0]
    assert due.utc.isoformat() == "2026-11-16T14:00:00+00:00"
    assert due.local.isoformat() == "2026-11-16T09:00:00-05:00"


def test_a_one_off_has_one_next_time() -> None:
    assert len(explained("2027-01-01T09:00").next_times) == 1


def test_a_warning_for_a_gap_and_none_for_the_overlap_it_misses() -> None:
    assert explained("30 2 * * *", "America/New_York").warnings == (
        (
            "2027-03-14: clocks go forward from 02:00 to 03:00, so that 02:30 does not occur; "
            "there is one run at 03:00 instead"
        ),
    )
    skipped = explained("30 2 * * *", "America/New_York", gap="skip").warnings
    assert skipped[0].endswith("there is no run for it")


@pytest.mark.parametrize(
    ("overlap", "says"),
    [
        ("first", "it runs the first time only"),
        ("last", "it runs the second time only"),
        ("both", "it runs both times"),
    ],
)
def test_a_warning_for_an_overlap(overlap: str, says: str) -> None:
    assert explained("30 1 * * *", "America/New_York", overlap=overlap).warnings == (
        "2027-11-07: clocks go back from 02:00 to 01:00, so that 01:30 occurs twice; " + says,
    )


def test_an_elapsed_schedule_is_told_of_both_changes() -> None:
    forward, back = explained("*/15 * * * *", "Europe/London").warnings
    assert forward.endswith("it repeats by elapsed time and has no run for the gap")
    assert back.endswith("it repeats by elapsed time and runs in both")


def test_no_warning_where_no_change_touches_it() -> None:
    assert explained("0 9 * * *", "America/New_York").warnings == ()
    assert explained("0 2 * * *", "UTC").warnings == ()
    assert explained("every 5m", "America/New_York").warnings == ()
    assert explained("30 2 * 6 *", "America/New_York").warnings == ()


def test_no_warning_for_a_change_after_the_end_or_on_an_excluded_date() -> None:
    ended = {"cron": "30 2 * * *", "end": "2027-03-01"}
    assert explained(ended, "America/New_York").warnings == ()
    excluded = {"cron": "30 2 * * *", "exclude": ["2027-03-14"]}
    assert explained(excluded, "America/New_York").warnings == ()


def test_a_one_off_is_warned_of_its_own_gap() -> None:
    assert len(explained("2027-03-14T02:30", "America/New_York").warnings) == 1
