"""Facts about schedules, and how they are replayed: register, compile, step.

A fact is an expression, a zone, a moment, and the times that follow it. It says nothing about how
they are found, so that the facts of any scheduler can stand here. Facts only: no code and no text
of theirs.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.explain import explain
from wheelsched.schedule.parse import first_due_us, parse

JOB = UUID(int=1)
EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")
MICROSECOND = timedelta(microseconds=1)


class Fact(NamedTuple):
    """The first times after a moment; `is_all` where there are no more."""

    schedule: object
    after: str
    due: list[str]
    timezone: str = "UTC"
    is_all: bool = False


def rule(start: str, text: str, due: list[str], **fields: object) -> Fact:
    """The fact of an RRULE: the first times from its DTSTART on."""
    after = datetime.strptime(start, "%Y%m%dT%H%M%S") - timedelta(seconds=1)  # noqa: DTZ007
    lines = f"DTSTART:{start}\nRRULE:{text}"
    return Fact(lines, after.isoformat(), due, **fields)  # type: ignore[arg-type]


def on(time: str, *days: str) -> list[str]:
    """A time on days such as `1997-09: 2,4,11-13`."""
    return [f"{day}T{time}" for month in days for day in _days(month)]


def _days(written: str) -> Iterator[str]:
    month, _, days = written.partition(":")
    for term in days.split(","):
        first, _, last = term.strip().partition("-")
        for day in range(int(first), int(last or first) + 1):
            yield f"{month}-{day:02}"


def replay(fact: Fact) -> None:
    """Assert that a schedule is due when the fact says, whichever way it is asked."""
    zone = ZoneInfo(fact.timezone)
    after_us = _us(fact.after, zone)
    expected = [_us(due, zone) for due in fact.due]
    found = due_times(fact.schedule, fact.after, len(expected) + fact.is_all, fact.timezone)
    assert found == [_shown(each, zone) for each in expected]
    spec = parse(fact.schedule, timezone=fact.timezone, now_us=after_us)
    schedule = compile_schedule(spec, JOB, after_us)
    assert first_due_us(spec, JOB, now_us=after_us) == expected[0]
    assert schedule.count(after_us, expected[-1]) == len(expected)
    assert schedule.last_before(expected[-1] + 1) == expected[-1]
    assert explain(spec, JOB, now_us=after_us).words


def due_times(schedule: object, after: str, count: int, timezone: str = "UTC") -> list[str]:
    """At most so many of the times after a moment, each with its offset."""
    zone = ZoneInfo(timezone)
    after_us = _us(after, zone)
    spec = parse(schedule, timezone=timezone, now_us=after_us)
    compiled = compile_schedule(spec, JOB, after_us)
    found: list[str] = []
    due_us = compiled.next_after(after_us)
    while due_us is not None and len(found) < count:
        found.append(_shown(due_us, zone))
        due_us = compiled.next_after(due_us)
    return found


def _us(text: str, zone: ZoneInfo) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return (moment - EPOCH) // MICROSECOND


def _shown(instant_us: int, zone: ZoneInfo) -> str:
    return (EPOCH + instant_us * MICROSECOND).astimezone(zone).isoformat()
