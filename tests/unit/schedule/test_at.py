"""The `at` schedule: an instant, or a local time that a zone resolves."""

import pytest
from tests.unit.schedule.due import next_due, schedule_of, us

from wheelsched.errors import InvalidInstant, ScheduleNeverFires

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


@pytest.mark.parametrize(
    ("fraction", "due"),
    [
        (".123", "09:00:00.123"),
        (".100999", "09:00:00.101"),
        (".100001", "09:00:00.101"),
        (".100000001", "09:00:00.101"),
        (".100000000", "09:00:00.100"),
        (".999001", "09:00:01"),
        (".999999999", "09:00:01"),
    ],
)
@pytest.mark.parametrize("offset", ["Z", ""])
def test_a_finer_time_is_rounded_up_so_that_it_is_never_early(
    fraction: str, due: str, offset: str
) -> None:
    written = f"2027-01-01T09:00:00{fraction}{offset}"
    schedule = schedule_of(written, after="2026-11-16T00:00")
    assert schedule.next_after(0) == us(f"2027-01-01T{due}")


def test_rounding_up_stays_in_the_copy_of_an_hour_that_was_meant() -> None:
    written = "2027-11-07T01:59:59.9999"
    schedule = schedule_of(written, after="2026-11-16T00:00", timezone=NEW_YORK)
    assert schedule.next_after(0) == us("2027-11-07T06:00Z")


def test_rounding_up_does_not_leave_the_last_year() -> None:
    with pytest.raises(InvalidInstant, match="out of range"):
        schedule_of("2199-12-31T23:59:59.9999Z", after="2026-11-16T00:00")


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
