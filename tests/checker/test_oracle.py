from datetime import UTC, datetime

import pytest
from tests.checker.oracle import due_times
from tests.checker.records import Schedule


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("cron", "timezone", "after", "until", "due"),
    [
        ("*/20 * * * * *", "UTC", "2026-05-01T00:00:00", "2026-05-01T00:01:00", [20, 40, 60]),
        ("0 30 1 * * *", "UTC", "2026-05-01T01:00:00", "2026-05-01T02:00:00", [1800]),
        # New York falls back at 06:00 UTC: 01:30 comes twice, and a fixed hour counts once.
        ("0 30 1 * * *", "America/New_York", "2026-11-01T05:00:00", "2026-11-01T07:00:00", [1800]),
        # It springs forward at 07:00 UTC: 02:30 never comes, and fires at the end of the gap.
        ("0 30 2 * * *", "America/New_York", "2026-03-08T06:30:00", "2026-03-08T07:30:00", [1800]),
        # What runs every hour goes on through both changes, however its hours are written.
        ("0 30 * * * *", "America/New_York", "2026-11-01T05:00:00", "2026-11-01T07:00:00",
         [1800, 5400]),
        ("0 30 0-2 * * *", "America/New_York", "2026-11-01T05:00:00", "2026-11-01T07:00:00",
         [1800, 5400]),
        ("0 30 1-3 * * *", "America/New_York", "2026-03-08T06:00:00", "2026-03-08T08:00:00",
         [1800, 5400]),
        # Every other hour has a time in the gap, or the first of two, as any fixed hour.
        ("0 0 */2 * * *", "America/New_York", "2026-03-08T06:00:00", "2026-03-08T09:00:00",
         [3600, 7200]),
        ("0 30 1-23/2 * * *", "America/New_York", "2026-11-01T05:00:00", "2026-11-01T07:00:00",
         [1800]),
        # It begins in the second 01:00.
        ("0 30 0-2 * * *", "America/New_York", "2026-11-01T06:10:00", "2026-11-01T07:00:00",
         [1200]),
        ("0 0 9 * * 0", "UTC", "2026-11-15T08:59:00", "2026-11-15T09:01:00", [60]),
    ],
)  # fmt: skip
def test_it_knows_the_due_times(
    cron: str, timezone: str, after: str, until: str, due: list[int]
) -> None:
    schedule = Schedule(kind="cron", cron=cron, timezone=timezone)
    found = due_times(schedule, us(after), us(until))
    assert [(due_us - us(after)) // 1_000_000 for due_us in found] == due


def test_intervals_count_from_their_anchor() -> None:
    schedule = Schedule(kind="every", every_us=7, anchor_us=100)
    assert due_times(schedule, 107, 130) == [114, 121, 128]


def test_nothing_is_due_before_the_start_or_after_the_end() -> None:
    schedule = Schedule(kind="every", every_us=7, anchor_us=100, start_us=114, end_us=128)
    assert due_times(schedule, 99, 200) == [114, 121, 128]
    cron = Schedule(kind="cron", cron="* * * * * *", start_us=3_000_000, end_us=4_999_999)
    assert due_times(cron, 0, 9_000_000) == [3_000_000, 4_000_000]


def test_one_instant_is_due_once() -> None:
    schedule = Schedule(kind="at", at_us=100)
    assert due_times(schedule, 99, 100) == [100]
    assert due_times(schedule, 100, 200) == []
