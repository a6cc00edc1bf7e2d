"""Matches an RRULE against the wall clock: the days of each year and the times of a day.

Invariant: a second matches if and only if the rule recurs on its day and at its time of day.
DTSTART only fills in missing parts of the rule here. `rrule.bounds` applies the start, the end
and EXDATE, which are instants.
"""

from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from wheelsched.schedule.dst import local_of, offset_at, wall_of
from wheelsched.schedule.rrule import days as rrule_days
from wheelsched.schedule.rrule import times as rrule_times
from wheelsched.schedule.rrule.days import DayPattern, RecurringDays
from wheelsched.schedule.rrule.rule import Rule
from wheelsched.schedule.rrule.times import TimePattern, recurring_times

_DAY_S: Final = 86_400


class Pattern(Struct, frozen=True):
    """The days and times of a rule, independent of its start. Equal patterns share a calendar."""

    days: DayPattern
    times: TimePattern


def pattern_of(rule: Rule, timezone: str) -> Pattern:
    """The pattern of a rule, with its missing parts filled in from DTSTART in local time."""
    start_s = wall_of(rule.start.moment)
    if rule.start.is_utc:
        start_s += offset_at(ZoneInfo(timezone), start_s)
    return Pattern(
        rrule_days.pattern_of(rule, local_of(start_s).date()),
        rrule_times.pattern_of(rule, start_s),
    )


class RruleCalendar:
    """A `Calendar` of one pattern."""

    __slots__ = ("_days", "_times")

    def __init__(self, pattern: Pattern) -> None:
        self._days = RecurringDays(pattern.days)
        self._times = recurring_times(pattern.times)

    def next_wall(self, after_s: int) -> int | None:
        """The next match > `after_s`, or None."""
        if self._times.is_empty:
            return None
        day, time = divmod(after_s + 1, _DAY_S)
        next_day = self._days.next_from(day)
        if next_day == day:
            found = self._times.next_from(day, time)
            if found is not None:
                return day * _DAY_S + found
            next_day = self._days.next_from(day + 1)
        if next_day is None:
            return None
        found = self._times.next_from(next_day, 0)
        assert found is not None, "every day that recurs has a time"
        return next_day * _DAY_S + found

    def last_wall(self, before_s: int) -> int | None:
        """The last match < `before_s`, or None."""
        if self._times.is_empty:
            return None
        day, time = divmod(before_s - 1, _DAY_S)
        last_day = self._days.last_until(day)
        if last_day == day:
            found = self._times.last_until(day, time)
            if found is not None:
                return day * _DAY_S + found
            last_day = self._days.last_until(day - 1)
        if last_day is None:
            return None
        found = self._times.last_until(last_day, _DAY_S - 1)
        assert found is not None, "every day that recurs has a time"
        return last_day * _DAY_S + found

    def count_walls(self, from_s: int, until_s: int) -> int:
        """How many matches lie in [`from_s`, `until_s`)."""
        if from_s >= until_s:
            return 0
        first_day, first_time = divmod(from_s, _DAY_S)
        end_day, end_time = divmod(until_s, _DAY_S)
        total = self._times.count_over(self._days, first_day, end_day)
        if first_time and first_day in self._days:
            total -= self._times.count_before(first_day, first_time)
        if end_time and end_day in self._days:
            total += self._times.count_before(end_day, end_time)
        return total


# The days are shared. The times take 1 kB, or 12 kB if every hour of the day is different.
@lru_cache(maxsize=4096)
def calendar(pattern: Pattern) -> RruleCalendar:
    """The shared calendar of a pattern."""
    return RruleCalendar(pattern)
