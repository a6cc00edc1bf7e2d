"""One year of an RRULE: which of its days the BY parts admit.

Invariant: the answer depends on the BY parts and the year alone, not on DTSTART or the interval.

The days of a year are the bits of one integer, January 1 the lowest.
"""

from calendar import isleap
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Final

from dateutil import rrule as dateutil
from msgspec import Struct

from wheelsched.core.rrule import Weekday

LONGEST_YEAR: Final = 366

# From any month of any year this leads past the last year, so that dateutil expands one period
# and stops. Left to itself it searches for the next match until the year 9999.
_ONLY_ONCE: Final = 12 * 9999


class DayParts(Struct, frozen=True, kw_only=True):
    """What a rule says of days, its defaults taken from DTSTART; nothing said is every day."""

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
    mask = (1 << 365 + isleap(year)) - 1
    if parts.months or parts.year_days or parts.month_days or parts.weekdays:
        january = date(year, 1, 1)
        mask = sum({1 << (day - january).days for day in _expanded_by_dateutil(parts, year)})
    return mask & _weeks_mask(parts, year) if parts.week_numbers else mask


def _expanded_by_dateutil(parts: DayParts, year: int) -> Iterator[date]:
    # Below the month, a frequency is nothing but a filter of the days of a year.
    for month in (parts.months or range(1, 13)) if parts.is_monthly else [1]:
        for moment in dateutil.rrule(
            dateutil.MONTHLY if parts.is_monthly else dateutil.YEARLY,
            dtstart=datetime(year, month, 1),  # noqa: DTZ001 - a wall clock has no zone
            interval=_ONLY_ONCE,
            bysetpos=parts.positions or None,
            bymonth=parts.months or None,
            bymonthday=parts.month_days or None,
            byyearday=parts.year_days or None,
            # Any day of a week: without it, dateutil would take the day of `dtstart`.
            byweekday=[dateutil.weekday(day.weekday, day.nth) for day in parts.weekdays]
            or (None if parts.year_days or parts.month_days else range(7)),
        ):
            yield moment.date()


def _weeks_mask(parts: DayParts, year: int) -> int:
    """The days of a year in the weeks of BYWEEKNO; a week is of the year with four of its days.

    Not left to dateutil, which loses days of week 52 in January, such as 1983-01-01.
    """
    january = date(year, 1, 1)
    mask = 0
    for owner in (year - 1, year, year + 1):
        first, next_first = (_first_week(each, parts.week_start) for each in (owner, owner + 1))
        weeks = (next_first - first).days // 7
        for number in parts.week_numbers:
            week = number if number > 0 else weeks + 1 + number
            if 1 <= week <= weeks:
                # From a year and a week before, so that no bit is shifted below zero.
                mask |= 127 << (first - january).days + 7 * week + LONGEST_YEAR
    return mask >> 7 + LONGEST_YEAR & (1 << 365 + isleap(year)) - 1


def _first_week(year: int, week_start: int) -> date:
    """The first day of week 1, which is the week of January 4."""
    fourth = date(year, 1, 4)
    return fourth - timedelta(days=(fourth.weekday() - week_start) % 7)
