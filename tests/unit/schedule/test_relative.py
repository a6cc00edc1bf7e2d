"""The `in 5m` schedule becomes an instant at registration."""

import pytest
from tests.unit.schedule.due import JOB, us

from wheelsched.schedule.parse import first_due_us, parse
from wheelsched.schedule.relative import absolute, is_relative

NOW = us("2026-11-16T03:00") + 456


@pytest.mark.parametrize(
    ("written", "instant"),
    [
        ("in 5m", "2026-11-16T03:05:00.001Z"),
        ("In 2 hours", "2026-11-16T05:00:00.001Z"),
        ("in an hour and 30 minutes", "2026-11-16T04:30:00.001Z"),
        ("in1d", None),
        ("in 0s", "2026-11-16T03:00:00.001Z"),
    ],
)
def test_it_is_an_instant_and_not_before_the_duration_has_passed(
    written: str, instant: str | None
) -> None:
    assert absolute(written, NOW) == (instant or written)
    if instant:
        spec = parse(written, now_us=NOW, timezone="Asia/Tokyo")
        assert spec == parse(instant, now_us=NOW, timezone="Asia/Tokyo")
        assert first_due_us(spec, JOB, now_us=NOW) == us(instant)


def test_in_an_object_the_rest_stays() -> None:
    written = {"at": "in 5m", "exclude": ["2026-12-25"]}
    assert absolute(written, NOW) == {**written, "at": "2026-11-16T03:05:00.001Z"}


@pytest.mark.parametrize("schedule", ["every 5m", "0 9 * * *", {"every": "in"}, None, 5, []])
def test_nothing_else_is_touched(schedule: object) -> None:
    assert not is_relative(schedule)
    assert absolute(schedule, NOW) is schedule
