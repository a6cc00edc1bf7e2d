"""`at`: one instant, or a local time and what a zone makes of it."""

import pytest
from tests.unit.core.due import next_due, schedule_of, us

from wheelsched.errors import ScheduleNeverFires

NEW_YORK = "America/New_York"


@pytest.mark.parametrize(
    "text",
    [
        "2027-01-01T09:00:00Z",
        "2027-01-01 09:00z",
        "2027-01-01T11:00+02",
        "2027-01-01T04:00:00.000-05:00",
    ],
)
def test_an_offset_makes_it_an_instant(text: str) -> None:
    schedule = schedule_of(text, after="2026-11-16T00:00", timezone=NEW_YORK)
    assert schedule.next_after(0) == us("2027-01-01T09:00")
    assert schedule.next_after(us("2027-01-01T09:00")) is None


def test_without_an_offset_it_is_local() -> None:
    found = next_due("2027-01-01T09:00", 2, after="2026-11-16T00:00", timezone=NEW_YORK)
    assert found == ["2027-01-01 09:00 -0500"]


def test_milliseconds_are_kept_and_no_finer() -> None:
    schedule = schedule_of("2027-01-01T09:00:00.123456Z", after="2026-11-16T00:00")
    assert schedule.next_after(0) == us("2027-01-01T09:00") + 123_000


def test_in_a_gap_it_is_due_at_the_end() -> None:
    found = next_due("2027-03-14T02:30:00.5", 2, after="2026-11-16T00:00", timezone=NEW_YORK)
    assert found == ["2027-03-14 03:00 -0400"]
    schedule = schedule_of("2027-03-14T02:30:00.5", after="2026-11-16T00:00", timezone=NEW_YORK)
    assert schedule.next_after(0) == us("2027-03-14T07:00")


def test_in_a_gap_that_is_skipped_it_is_never_due() -> None:
    with pytest.raises(ScheduleNeverFires):
        schedule_of("2027-03-14T02:30", after="2026-11-16T00:00", timezone=NEW_YORK, gap="skip")


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [("first", ["-0400"]), ("last", ["-0500"]), ("both", ["-0400", "-0500"])],
)
def test_in_an_overlap_the_policy_decides(overlap: str, expected: list[str]) -> None:
    found = next_due(
        "2027-11-07T01:30", 2, after="2026-11-16T00:00", timezone=NEW_YORK, overlap=overlap
    )
    assert [due[-5:] for due in found] == expected


def test_counting_one() -> None:
    schedule = schedule_of("2027-01-01T09:00Z", after="2026-11-16T00:00")
    due_us = us("2027-01-01T09:00")
    assert schedule.count(due_us - 1, due_us) == 1
    assert schedule.count(due_us, due_us + 1) == 0
    assert schedule.last_before(due_us) is None
    assert schedule.last_before(due_us + 1) == due_us
