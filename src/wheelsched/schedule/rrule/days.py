"""The days of an RRULE, from one expansion for each shape of a year.

Invariant: a day matches if and only if the BY parts admit it and its year, month, week or day is a
whole number of intervals from DTSTART's. The days that the BY parts admit in a year depend only on
the shape of that year and, for week numbers, of the year before. So 14 expansions, or 21, give the
calendar of any century. A step costs the same however old DTSTART is, and a rule without any day
is detected at once. Rules that differ only in DTSTART and interval share these expansions.

The days of a year are the bits of one integer, with January 1 as the lowest.
"""

from calendar import isleap
from collections.abc import Iterator
from datetime import date
from functools import cache, lru_cache
from typing import Final

from msgspec import Struct

from wheelsched.schedule.rrule.rule import UNIT_S, Frequency, Rule, Weekday
from wheelsched.schedule.rrule.year import LONGEST_YEAR, DayParts, expand_year
from wheelsched.schedule.spec import END_YEAR, FIRST_YEAR

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
# One year of margin on either side, because the wall clock may be a day ahead of UTC or behind it.
_FIRST_YEAR: Final = FIRST_YEAR - 1
_LAST_YEAR: Final = END_YEAR
_CACHED_YEARS: Final = 4

Shape = tuple[int, bool, bool]
"""The weekday of January 1, whether the year is leap, and, for week numbers, the year before."""


class DayPattern(Struct, frozen=True, kw_only=True):
    """Everything that determines the days: rules with equal patterns recur on the same days."""

    parts: DayParts
    frequency: Frequency
    interval: int
    phase: int  # position of DTSTART's year, month, week or day within the interval
    week_start: int


class _Year(Struct, frozen=True):
    first_day: int  # days since 1970-01-01
    length: int
    shape: Shape
    shape_for_weeks: Shape


@cache
def _years() -> tuple[_Year, ...]:
    """Every year from `_FIRST_YEAR` to `_LAST_YEAR`."""
    return tuple(
        _Year(
            date(year, 1, 1).toordinal() - _EPOCH_ORDINAL,
            365 + isleap(year),
            (date(year, 1, 1).weekday(), isleap(year), False),
            (date(year, 1, 1).weekday(), isleap(year), isleap(year - 1)),
        )
        for year in range(_FIRST_YEAR, _LAST_YEAR + 1)
    )


def pattern_of(rule: Rule, start: date) -> DayPattern:
    """The days of a rule whose DTSTART is on the day `start`."""
    is_stepped = rule.interval > 1 and rule.frequency not in UNIT_S
    day = start.toordinal() - _EPOCH_ORDINAL
    period = {
        "YEARLY": start.year,
        "MONTHLY": start.year * 12 + start.month - 1,
        "WEEKLY": _week(day, rule.week_start),
        "DAILY": day,
    }.get(rule.frequency, 0)
    return DayPattern(
        parts=_parts(rule, start),
        frequency=rule.frequency if is_stepped else "DAILY",
        interval=rule.interval if is_stepped else 1,
        phase=period % rule.interval if is_stepped else 0,
        week_start=rule.week_start if is_stepped else 0,
    )


def _parts(rule: Rule, start: date) -> DayParts:
    month_days, months, weekdays = rule.month_days, rule.months, rule.weekdays
    if not (rule.year_days or month_days or weekdays):
        match rule.frequency:
            case "YEARLY" if rule.week_numbers:
                weekdays = (Weekday(start.weekday()),)
            case "YEARLY":
                month_days, months = (start.day,), months or (start.month,)
            case "MONTHLY":
                month_days = (start.day,)
            case "WEEKLY":
                weekdays = (Weekday(start.weekday()),)
    return DayParts(
        is_monthly=rule.frequency == "MONTHLY",
        months=months,
        week_numbers=rule.week_numbers,
        week_start=rule.week_start if rule.week_numbers else 0,
        year_days=rule.year_days,
        month_days=month_days,
        weekdays=weekdays,
        positions=rule.positions,
    )


class RecurringDays:
    """The days of a pattern, as days since 1970-01-01."""

    __slots__ = ("_by_shape", "_by_year", "_has_weeks", "_pattern")

    def __init__(self, pattern: DayPattern) -> None:
        self._pattern = pattern
        self._by_shape = _masks_by_shape(pattern.parts)
        self._has_weeks = bool(pattern.parts.week_numbers)
        self._by_year: dict[int, int] = {}

    def __contains__(self, day: int) -> bool:
        index = _year_of(day) - _FIRST_YEAR
        if not 0 <= index < len(_years()):
            return False
        return self._mask(index) >> day - _years()[index].first_day & 1 == 1

    def next_from(self, day: int) -> int | None:
        """The next day >= `day`, or None."""
        years = _years()
        index = max(_year_of(day) - _FIRST_YEAR, 0)
        while index < len(years):
            first_day = years[index].first_day
            offset = max(day - first_day, 0)
            later = self._mask(index) >> offset
            if later:
                return first_day + offset + _lowest(later)
            index += 1
        return None

    def last_until(self, day: int) -> int | None:
        """The last day <= `day`, or None."""
        years = _years()
        index = min(_year_of(day) - _FIRST_YEAR, len(years) - 1)
        while index >= 0:
            first_day = years[index].first_day
            earlier = self._mask(index) & ((2 << min(day - first_day, LONGEST_YEAR)) - 1)
            if earlier:
                return first_day + earlier.bit_length() - 1
            index -= 1
        return None

    def count(self, first_day: int, end_day: int) -> int:
        """How many days lie in [`first_day`, `end_day`)."""
        return sum(mask.bit_count() for _, mask in self._between(first_day, end_day))

    def runs(self, first_day: int, end_day: int) -> Iterator[tuple[int, int]]:
        """The days in [`first_day`, `end_day`) as ranges [from, until) of consecutive days."""
        for from_day, days in self._between(first_day, end_day):
            mask = days
            while mask:
                start = _lowest(mask)
                length = _lowest(~(mask >> start))
                yield from_day + start, from_day + start + length
                mask = mask >> start + length << start + length

    def _between(self, first_day: int, end_day: int) -> Iterator[tuple[int, int]]:
        """January 1 and the mask of each year, limited to [`first_day`, `end_day`)."""
        years = _years()
        first = max(_year_of(first_day) - _FIRST_YEAR, 0)
        last = min(_year_of(end_day) - _FIRST_YEAR, len(years) - 1)
        for index in range(first, last + 1):
            year = years[index]
            mask = self._mask(index)
            if first_day > year.first_day:
                before = first_day - year.first_day
                mask = mask >> before << before
            if end_day < year.first_day + year.length:
                mask &= (1 << end_day - year.first_day) - 1
            yield year.first_day, mask

    def _mask(self, index: int) -> int:
        if self._pattern.interval == 1:
            return self._admitted(index)
        mask = self._by_year.get(index)
        if mask is None:
            mask = _in_step(self._pattern, index)
            if mask:
                mask &= self._admitted(index)
            if len(self._by_year) >= _CACHED_YEARS:
                self._by_year.clear()
            self._by_year[index] = mask
        return mask

    def _admitted(self, index: int) -> int:
        """The days that the BY parts admit in a year, ignoring the interval."""
        year = _years()[index]
        shape = year.shape_for_weeks if self._has_weeks else year.shape
        mask = self._by_shape.get(shape)
        if mask is None:
            mask = self._by_shape[shape] = expand_year(self._pattern.parts, _FIRST_YEAR + index)
        return mask


# 2 kB per entry.
@lru_cache(maxsize=4096)
def _masks_by_shape(parts: DayParts) -> dict[Shape, int]:
    """The shared cache of expansions of these BY parts, filled on demand."""
    del parts
    return {}


def _in_step(pattern: DayPattern, index: int) -> int:
    """The days of a year whose period is a whole number of intervals from DTSTART's."""
    interval, phase = pattern.interval, pattern.phase
    year, first_day, length = _FIRST_YEAR + index, _years()[index].first_day, _years()[index].length
    match pattern.frequency:
        case "YEARLY":
            return (1 << length) - 1 if year % interval == phase else 0
        case "MONTHLY":
            starts = [date(year, month, 1).timetuple().tm_yday - 1 for month in range(1, 13)]
            return sum(
                (1 << end) - (1 << start)
                for month, (start, end) in enumerate(
                    zip(starts, [*starts[1:], length], strict=True), start=year * 12
                )
                if month % interval == phase
            )
        case "WEEKLY":
            week = _week(first_day, pattern.week_start)
            days_before = first_day - _first_day_of(week, pattern.week_start)
            weeks = range((phase - week) % interval, 54, interval)
            # The first week began up to six days before the year.
            return sum(127 << 7 * number for number in weeks) >> days_before & (1 << length) - 1
        case _:
            return sum(1 << day for day in range((phase - first_day) % interval, length, interval))


def _week(day: int, week_start: int) -> int:
    # 1970-01-01 was a Thursday, three days after a Monday.
    return (day + 3 - week_start) // 7


def _first_day_of(week: int, week_start: int) -> int:
    return week * 7 - 3 + week_start


def _year_of(day: int) -> int:
    return date.fromordinal(day + _EPOCH_ORDINAL).year


def _lowest(mask: int) -> int:
    """The position of the lowest bit."""
    return (mask & -mask).bit_length() - 1
