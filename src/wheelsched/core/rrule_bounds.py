"""Where an RRULE begins and ends: DTSTART, UNTIL, COUNT and EXDATE as intervals of UTC.

Invariant: no run is before DTSTART or after UNTIL, there are COUNT due times from DTSTART on,
before EXDATE takes out its own, and all of this is said of instants. A time with Z is one. Of a
time without, as the zone's clocks show it, DTSTART is the first instant, UNTIL the last, and
EXDATE each at which the rule would be due; in a gap, all of them are its end. A date is the
whole of its day.
"""

from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from wheelsched.core import rrule, rrule_calendar
from wheelsched.core.dst import (
    instants_of_dates,
    local_of,
    offset_at,
    timeline,
    wall_of,
)
from wheelsched.core.duration import SECOND
from wheelsched.core.rrule import Rule, Stamp
from wheelsched.core.rrule_calendar import Pattern
from wheelsched.core.spec import END_US, DstGap, DstOverlap, Recurrence
from wheelsched.core.wallclock import WallClock

BEGINNING_US: Final = -END_US
ENDING_US: Final = 2 * END_US
# A little more than a year, and a power of two that halves down to a second.
_YEAR_US: Final = 1 << 45
# Fewer due times than this are found sooner by walking than by counting.
_FEW: Final = 16

Interval = tuple[int, int]
"""Instants [from_us, until_us)."""


def stamp_at(instant_s: int, timezone: str) -> str:
    """An instant as DTSTART writes it: as the clocks show it, or with Z when they do so again."""
    wall_s = instant_s + offset_at(ZoneInfo(timezone), instant_s)
    is_first = timeline(timezone, "shift", "first").resolve(wall_s) == [instant_s]
    moment = local_of(wall_s if is_first else instant_s)
    return f"{moment:%Y%m%dT%H%M%S}" + ("" if is_first else "Z")


# Mostly one or two intervals each, and the rule's text.
@lru_cache(maxsize=16_384)
def excluded_by(text: str, timezone: str, gap: DstGap, overlap: DstOverlap) -> tuple[Interval, ...]:
    """What a rule excludes of its own matches; not in order."""
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


# A kilobyte each, beside the calendar.
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
    """More than a pattern is due until 2200: each of its matches twice.

    Who writes a COUNT that large means for ever, and no zone has to be read until then.
    """
    return 2 * rrule_calendar.calendar(pattern).count_walls(0, END_US // SECOND)


def nth_due(recurrence: Recurrence, from_us: int, position: int) -> int | None:
    """The due time that is the `position`-th from an instant on; None when there are fewer.

    Years are counted until one holds it, and that one is halved: some hundred counts at most.
    """
    after_us, left, span_us = from_us - 1, position, _YEAR_US
    if recurrence.next_after(after_us) is None:
        return None
    while left > _FEW:
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
