"""Helpers for due times in local time."""

from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.schedule.spec import Schedule, Spec

JOB = UUID("6f0d6d4e-0000-4000-8000-000000000001")
SECOND = 1_000_000


def us(text: str, timezone: str = "UTC") -> int:
    """The microsecond of an ISO time, in a zone unless it has an offset."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(timezone))
    return round(moment.timestamp() * SECOND)


def shown(due_us: int, timezone: str = "UTC") -> str:
    """A due time on the clocks of a zone, with the offset: `2026-03-08 03:00 -0400`."""
    return f"{datetime.fromtimestamp(due_us / SECOND, ZoneInfo(timezone)):%Y-%m-%d %H:%M %z}"


def spec_of(
    schedule: object,
    *,
    after: str,
    timezone: str = "UTC",
    gap: str = "shift",
    overlap: str = "first",
) -> Spec:
    return parse(
        schedule,
        timezone=timezone,
        dst_gap=gap,
        dst_overlap=overlap,
        now_us=us(after, timezone),
    )


def schedule_of(
    schedule: object,
    *,
    after: str,
    timezone: str = "UTC",
    gap: str = "shift",
    overlap: str = "first",
) -> Schedule:
    spec = spec_of(schedule, after=after, timezone=timezone, gap=gap, overlap=overlap)
    return compile_schedule(spec, JOB, us(after, timezone))


def next_due(
    schedule: object,
    count: int,
    *,
    after: str,
    timezone: str = "UTC",
    gap: str = "shift",
    overlap: str = "first",
) -> list[str]:
    """The next due times after a moment, as the zone's clocks show them."""
    compiled = schedule_of(schedule, after=after, timezone=timezone, gap=gap, overlap=overlap)
    found: list[str] = []
    due_us = compiled.next_after(us(after, timezone))
    while due_us is not None and len(found) < count:
        found.append(shown(due_us, timezone))
        due_us = compiled.next_after(due_us)
    return found
