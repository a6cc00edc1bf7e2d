"""The days of an RRULE: dateutil expands the BY parts of a year, arithmetic does the rest.

Invariant: a day is in exactly when its BY parts admit it and its year, month, week or day is a
whole number of intervals from DTSTART's. What dateutil says of a year depends only on the shape
of that year and the one before. So the calendar of any century is known from 21 expansions: a
step costs the same however old DTSTART is, and a rule without any day is found out at once.
"""

from bisect import bisect_left, bisect_right
from calendar import isleap
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Final

from dateutil import rrule as dateutil

from wheelsched.core.rrule import Rule
from wheelsched.core.spec import END_YEAR

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_REMEMBERED_YEARS: Final = 4

# From any month of any year this leads past the last year, so that dateutil expands one period
# and stops. Left to itself it searches for the next match until the year 9999.
_ONLY_ONCE: Final = 12 * 9999

Shape = tuple[int, bool, bool]
"""The weekday of January 1, and whether the year before and the year itself are leap."""


class RecurringDays:
    """The days of a rule from DTSTART's on, as days since 1970-01-01."""

    __slots__ = ("_by_shape", "_by_year", "_rule", "_start")

    def __init__(self, rule: Rule, start_day: int) -> None:
        self._rule = rule
        self._start = date.fromordinal(start_day + _EPOCH_ORDINAL)
        self._by_shape: dict[Shape, tuple[int, ...]] = {}
        self._by_year: dict[int, list[int]] = {}

    def next_from(self, day: int) -> int | None:
        """The least day >= `day`."""
        for year in range(_year_of(day), END_YEAR + 1):
            days = self._of_year(year)
            index = bisect_left(days, day)
            if index < len(days):
                return days[index]
        return None

    def last_until(self, day: int) -> int | None:
        """The greatest day <= `day`."""
        for year in range(_year_of(day), self._start.year - 1, -1):
            days = self._of_year(year)
            index = bisect_right(days, day)
            if index > 0:
                return days[index - 1]
        return None

    def between(self, first_day: int, end_day: int) -> Iterator[list[int]]:
        """The days in [`first_day`, `end_day`), in order, a list for each year."""
        for year in range(_year_of(first_day), min(_year_of(end_day), END_YEAR) + 1):
            days = self._of_year(year)
            yield days[bisect_left(days, first_day) : bisect_left(days, end_day)]

    def _of_year(self, year: int) -> list[int]:
        days = self._by_year.get(year)
        if days is None:
            if len(self._by_year) >= _REMEMBERED_YEARS:
                self._by_year.clear()
            days = self._by_year[year] = self._read_year(year)
        return days

    def _read_year(self, year: int) -> list[int]:
        rule, start = self._rule, self._start
        if year < start.year:
            return []
        if rule.frequency == "YEARLY" and (year - start.year) % rule.interval:
            return []
        first_day = date(year, 1, 1).toordinal() - _EPOCH_ORDINAL
        days = [first_day + offset for offset in self._offsets(year)]
        if year == start.year:
            days = days[bisect_left(days, start.toordinal() - _EPOCH_ORDINAL) :]
        return days if rule.interval == 1 else self._in_step(days)

    def _in_step(self, days: list[int]) -> list[int]:
        """The days whose period is a whole number of intervals from the first."""
        interval, start = self._rule.interval, self._start
        start_day = start.toordinal() - _EPOCH_ORDINAL
        match self._rule.frequency:
            case "MONTHLY":
                start_month = start.year * 12 + start.month
                return [day for day in days if (_month_of(day) - start_month) % interval == 0]
            case "WEEKLY":
                # 1970-01-01 was a Thursday, three days after a Monday.
                shift = 3 - self._rule.week_start
                start_week = (start_day + shift) // 7
                return [day for day in days if ((day + shift) // 7 - start_week) % interval == 0]
            case "DAILY":
                return [day for day in days if (day - start_day) % interval == 0]
            case _:
                return days

    def _offsets(self, year: int) -> tuple[int, ...]:
        """The days since January 1 that the BY parts admit."""
        shape = date(year, 1, 1).weekday(), isleap(year - 1), isleap(year)
        offsets = self._by_shape.get(shape)
        if offsets is None:
            offsets = self._by_shape[shape] = _expand_year(self._rule, self._start, year)
        return offsets


def _year_of(day: int) -> int:
    return date.fromordinal(day + _EPOCH_ORDINAL).year


def _month_of(day: int) -> int:
    moment = date.fromordinal(day + _EPOCH_ORDINAL)
    return moment.year * 12 + moment.month


def _expand_year(rule: Rule, start: date, year: int) -> tuple[int, ...]:
    """The days since January 1 of a year on which a rule recurs, were its interval 1."""
    month_days, months, weekdays = _with_defaults(rule, start)
    is_monthly = rule.frequency == "MONTHLY"
    # Below the month, a frequency is nothing but a filter of the days of a year.
    first_months = (months or range(1, 13)) if is_monthly else [1]
    days = [
        moment.date()
        for month in first_months
        for moment in dateutil.rrule(
            dateutil.MONTHLY if is_monthly else dateutil.YEARLY,
            dtstart=datetime(year, month, 1),  # noqa: DTZ001 - a wall clock has no zone
            interval=_ONLY_ONCE,
            bysetpos=rule.positions or None,
            bymonth=months or None,
            bymonthday=month_days or None,
            byyearday=rule.year_days or None,
            byweekday=weekdays or None,
        )
    ]
    january = date(year, 1, 1)
    return tuple((day - january).days for day in days if _is_in_weeks(rule, day))


def _is_in_weeks(rule: Rule, day: date) -> bool:
    """Whether BYWEEKNO admits a day; a week is of the year that has four of its days.

    Not left to dateutil, which loses days of week 52 in January, such as 1983-01-01.
    """
    if not rule.week_numbers:
        return True
    number, year = _week_of(day, rule.week_start)
    # The 28th of December is always in the last week of its year.
    weeks, _ = _week_of(date(year, 12, 28), rule.week_start)
    return number in rule.week_numbers or number - weeks - 1 in rule.week_numbers


def _week_of(day: date, week_start: int) -> tuple[int, int]:
    """The number of a day's week, and the year that it is of."""
    middle = day + timedelta(days=3 - (day.weekday() - week_start) % 7)
    return (middle.timetuple().tm_yday + 6) // 7, middle.year


def _with_defaults(
    rule: Rule, start: date
) -> tuple[tuple[int, ...], tuple[int, ...], list[dateutil.weekday]]:
    """Days of month, months and weekdays, filled from DTSTART where the rule leaves them open."""
    weekdays = [dateutil.weekday(day.weekday, day.nth) for day in rule.weekdays]
    every_day = [dateutil.weekday(day) for day in range(7)]
    if rule.year_days or rule.month_days or weekdays:
        return rule.month_days, rule.months, weekdays
    match rule.frequency:
        case "YEARLY" if not rule.week_numbers:
            return (start.day,), rule.months or (start.month,), []
        case "MONTHLY":
            return (start.day,), rule.months, []
        case "WEEKLY":
            return (), rule.months, [dateutil.weekday(start.weekday())]
        case _:
            return (), rule.months, every_day
