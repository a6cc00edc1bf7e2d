"""The memory of cached schedules: small per schedule, and bounded in total."""

import tracemalloc

import pytest
from tests.unit.schedule.due import JOB, us

from wheelsched.schedule import dst
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse

NOW = us("2026-11-16T03:00")
YEAR_US = 365 * 86_400 * 1_000_000


@pytest.mark.proof
@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=SECONDLY;INTERVAL=7",
        "FREQ=SECONDLY;INTERVAL=30",
        "FREQ=MINUTELY;INTERVAL=90",
        "FREQ=DAILY;INTERVAL=3",
        "FREQ=YEARLY",
    ],
)
def test_a_rule_with_a_dtstart_of_its_own_takes_few_kilobytes(rule: str) -> None:
    tracemalloc.start()
    try:
        for second in range(100):
            start = f"2026{second % 12 + 1:02}01T{second % 24:02}{second // 60:02}{second % 60:02}"
            spec = parse(f"DTSTART:{start} RRULE:{rule}", timezone="Europe/London", now_us=NOW)
            schedule = compile_schedule(spec, JOB, NOW)
            for years in range(20):
                schedule.next_after(NOW + years * YEAR_US)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept / 100 < 8_000


def test_the_centuries_of_all_zones_are_not_kept() -> None:
    for timezone in ("Europe/London", "America/New_York", "Asia/Tokyo"):
        for overlap in ("first", "last", "both"):
            rows = dst.timeline(timezone, "shift", overlap)
            for number in range(216):
                rows.at(number << 25)
    bound = dst._page.cache_info().maxsize
    assert bound is not None
    assert bound <= 16_384
    assert not hasattr(rows, "__dict__")  # a timeline itself keeps nothing
