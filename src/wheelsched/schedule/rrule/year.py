"""Expands one year of an RRULE: the days that its BY parts admit.

Invariant: the result depends only on the BY parts and the year, not on DTSTART or the interval.

The days of a year are the bits of one integer, with January 1 as the lowest. Each BY part is such
a mask, and a day must be in all of them. BYDAY, plain or numbered, is the union of its days. RFC
5545 distinguishes parts that expand from parts that limit. That makes no difference here, because
a missing part admits every day.
"""

from calendar import isleap
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Final

from msgspec import Struct

from wheelsched.schedule.rrule.rule import Weekday

LONGEST_YEAR: Final = 366

Span = tuple[int, int]
"""Days [first, end) of a year, counted from January 1."""


class DayParts(Struct, frozen=True, kw_only=True):
    """The BY parts for days, with defaults from DTSTART. An empty part admits every day."""

    is_monthly: bool
    months: tuple[int, ...]
    week_numbers: tuple[int, ...]
    week_start: int
    year_days: tuple[int, ...]
    month_days: tuple[int, ...]
    weekdays: tuple[Weekday, ...]
    positions: tuple[int, ...]


def expand_year(parts: DayParts, year: int) -> int:
    """The days of a year that the BY parts admit."""
    whole = (0, 365 + isleap(year))
    months = _months(year)
    named = [months[number - 1] for number in parts.months]
    mask = _days_mask([whole])
    if parts.months:
        mask &= _days_mask(named)
    if parts.week_numbers:
        mask &= _weeks_mask(parts, year)
    if parts.year_days:
        mask &= _numbered_mask([whole], parts.year_days)
    if parts.month_days:
        mask &= _numbered_mask(months, parts.month_days)
    if parts.weekdays:
        # A number counts within the months of BYMONTH, else within each month or the year.
        spans = named or (months if parts.is_monthly else [whole])
        mask &= _weekdays_mask(parts.weekdays, spans, date(year, 1, 1).weekday())
    if parts.positions:
        mask &= _positions_mask(mask, months if parts.is_monthly else [whole], parts.positions)
    return mask


def _months(year: int) -> list[Span]:
    starts = [date(year, month, 1).timetuple().tm_yday - 1 for month in range(1, 13)]
    return list(zip(starts, [*starts[1:], 365 + isleap(year)], strict=True))


def _days_mask(spans: Iterable[Span]) -> int:
    return sum((1 << end) - (1 << first) for first, end in spans)


def _numbered_mask(spans: Iterable[Span], numbers: tuple[int, ...]) -> int:
    """The days with these numbers in each span."""
    mask = 0
    for first, end in spans:
        for number in numbers:
            index = _index(number, end - first)
            mask |= 0 if index is None else 1 << first + index
    return mask


def _weekdays_mask(weekdays: tuple[Weekday, ...], spans: list[Span], january: int) -> int:
    """The days of BYDAY in a year whose January 1 is the weekday `january`."""
    mask = 0
    for weekday in weekdays:
        offset = (weekday.weekday - january) % 7
        if weekday.nth is None:
            mask |= sum(1 << day for day in range(offset, LONGEST_YEAR, 7))
            continue
        for first, end in spans:
            days = range(first + (offset - first) % 7, end, 7)
            index = _index(weekday.nth, len(days))
            mask |= 0 if index is None else 1 << days[index]
    return mask


def _positions_mask(mask: int, spans: list[Span], positions: tuple[int, ...]) -> int:
    """The days of a mask at these positions within each span."""
    chosen = 0
    for first, end in spans:
        days = [day for day in range(first, end) if mask >> day & 1]
        for position in positions:
            index = _index(position, len(days))
            chosen |= 0 if index is None else 1 << days[index]
    return chosen


def _index(number: int, count: int) -> int | None:
    """The index of the number-th of `count` items; a negative number counts from the end."""
    index = number - 1 if number > 0 else count + number
    return index if 0 <= index < count else None


def _weeks_mask(parts: DayParts, year: int) -> int:
    """The days of a year in the weeks of BYWEEKNO. A week belongs to the year with most of it."""
    january = date(year, 1, 1)
    mask = 0
    for owner in (year - 1, year, year + 1):
        first, next_first = (_first_week(each, parts.week_start) for each in (owner, owner + 1))
        weeks = (next_first - first).days // 7
        for number in parts.week_numbers:
            week = number if number > 0 else weeks + 1 + number
            if 1 <= week <= weeks:
                # Counted from a year and a week earlier, so that no bit is shifted below zero.
                mask |= 127 << (first - january).days + 7 * week + LONGEST_YEAR
    return mask >> 7 + LONGEST_YEAR & (1 << 365 + isleap(year)) - 1


def _first_week(year: int, week_start: int) -> date:
    """The first day of week 1, which is the week of January 4."""
    fourth = date(year, 1, 4)
    return fourth - timedelta(days=(fourth.weekday() - week_start) % 7)
