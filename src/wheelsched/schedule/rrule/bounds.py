"""Converts DTSTART, UNTIL, COUNT and EXDATE of an RRULE to excluded UTC intervals.

Invariant: no run is due before DTSTART or after UNTIL. COUNT counts due times from DTSTART on,
before EXDATE removes any. All bounds are instants. A time with Z is an instant. A local time that
occurs twice means the first instant for DTSTART, the last for UNTIL, and for EXDATE each one at
which the rule would be due. A local time in a gap means the end of the gap. A date means its whole
day.
"""

from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from wheelsched.schedule.dst import (
    instants_of_dates,
    local_of,
    offset_at,
    timeline,
    wall_of,
)
from wheelsched.schedule.rrule import calendar as rrule_calendar
from wheelsched.schedule.rrule import rule as rrule
from wheelsched.schedule.rrule.calendar import Pattern
from wheelsched.schedule.rrule.rule import Rule, Stamp
from wheelsched.schedule.spec import END_US, DstGap, DstOverlap, Recurrence
from wheelsched.schedule.wallclock import WallClock
from wheelsched.values.duration import SECOND

BEGINNING_US: Final = -END_US
ENDING_US: Final = 2 * END_US
# A little more than a year, and a power of two that halves down to a second.
_YEAR_US: Final = 1 << 45
# Below this, stepping to the n-th due time is faster than counting.
_MAX_STEPS: Final = 16

Interval = tuple[int, int]
"""Instants [from_us, until_us)."""


def stamp_at(instant_s: int, timezone: str) -> str:
    """Format an instant for DTSTART: as local time, or with Z if that local time is ambiguous."""
    wall_s = instant_s + offset_at(ZoneInfo(timezone), instant_s)
    is_first = timeline(timezone, "shift", "first").resolve(wall_s) == [instant_s]
    moment = local_of(wall_s if is_first else instant_s)
    return f"{moment:%Y%m%dT%H%M%S}" + ("" if is_first else "Z")


# An entry is the rule's text and mostly one or two intervals.
@lru_cache(maxsize=16_384)
def excluded_by(text: str, timezone: str, gap: DstGap, overlap: DstOverlap) -> tuple[Interval, ...]:
    """The intervals that a rule excludes from its own matches, unsorted."""
    rule = rrule.read(text)
    due = clock(rrule_calendar.pattern_of(rule, timezone), timezone, gap, overlap)
    start_us = _first_us(rule.start, timezone)
    intervals = [(BEGINNING_US, start_us)]
    if rule.until is not None:
        intervals.append((_last_us(rule.until, timezone) + 1, ENDING_US))
    if rule.count is not None:
        end_us = _end_of_count(rule, timezone, due, start_us)
        intervals.append((end_us, ENDING_US))
    for stamp in rule.excluded:
        intervals += _instants(stamp, timezone, due)
    return tuple(intervals)


# 1 kB per entry, without the calendar.
@lru_cache(maxsize=4096)
def clock(pattern: Pattern, timezone: str, gap: DstGap, overlap: DstOverlap) -> WallClock:
    """The due times of a pattern, shared by all rules that have it."""
    return WallClock(rrule_calendar.calendar(pattern), timeline(timezone, gap, overlap))


def _first_us(stamp: Stamp, timezone: str) -> int:
    if stamp.is_utc:
        return wall_of(stamp.moment) * SECOND
    return timeline(timezone, "shift", "first").resolve(wall_of(stamp.moment))[0] * SECOND


def _last_us(stamp: Stamp, timezone: str) -> int:
    if stamp.is_utc:
        return wall_of(stamp.moment) * SECOND
    if stamp.is_date:
        day = stamp.moment.date()
        return instants_of_dates(timezone, day, day)[1] * SECOND - 1
    return timeline(timezone, "shift", "last").resolve(wall_of(stamp.moment))[-1] * SECOND


def _instants(stamp: Stamp, timezone: str, due: WallClock) -> list[Interval]:
    if stamp.is_date:
        day = stamp.moment.date()
        from_s, until_s = instants_of_dates(timezone, day, day)
        return [(from_s * SECOND, until_s * SECOND)]
    wall_s = wall_of(stamp.moment)
    found = [wall_s] if stamp.is_utc else due.instants_of(wall_s)
    return [(instant_s * SECOND, (instant_s + 1) * SECOND) for instant_s in found]


def _end_of_count(rule: Rule, timezone: str, due: WallClock, start_us: int) -> int:
    """The instant after the last of COUNT due times."""
    assert rule.count is not None
    pattern = rrule_calendar.pattern_of(rule, timezone)
    last_us = None
    if rule.count <= rrule.MAX_DRIFTING_COUNT or rule.count <= _most_due(pattern):
        last_us = nth_due(due, start_us, rule.count)
    return ENDING_US - 1 if last_us is None else last_us + 1


@lru_cache(maxsize=4096)
def _most_due(pattern: Pattern) -> int:
    """An upper bound on the due times of a pattern until 2200: twice its matches.

    A COUNT above it never ends the rule, so the zone need not be searched until 2200.
    """
    return 2 * rrule_calendar.calendar(pattern).count_walls(0, END_US // SECOND)


def nth_due(recurrence: Recurrence, from_us: int, position: int) -> int | None:
    """The `position`-th due time from an instant on; None if there are fewer.

    It counts year by year, then halves the year that contains the due time: about a hundred counts
    at most.
    """
    after_us, left, span_us = from_us - 1, position, _YEAR_US
    if recurrence.next_after(after_us) is None:
        return None
    while left > _MAX_STEPS:
        counted = recurrence.count(after_us, after_us + span_us)
        if counted >= left:
            span_us //= 2
            continue
        left -= counted
        after_us += span_us
        if after_us >= END_US:
            return None
    due_us: int | None = after_us
    while due_us is not None and left > 0:
        due_us = recurrence.next_after(due_us)
        left -= 1
    return due_us
