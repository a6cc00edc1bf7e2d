"""The matches of an RRULE on the wall clock: the days of each year, and a mask of times a day.

Invariant: a second matches exactly when the rule recurs on its day, its time of day is in the
day's mask, it lies between DTSTART and the rule's end, and no EXDATE names it.
"""

from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from wheelsched.core.dst import offset_at, wall_of
from wheelsched.core.rrule import Rule, Stamp
from wheelsched.core.rrule_days import RecurringDays
from wheelsched.core.rrule_times import RecurringTimes
from wheelsched.core.spec import END_S

_DAY_S: Final = 86_400


class RruleCalendar:
    """A `Calendar` of one rule whose times are those of the wall clock."""

    __slots__ = ("_days", "_end_s", "_excluded", "_start_s", "_times")

    def __init__(self, rule: Rule, zone: ZoneInfo) -> None:
        start_s = _wall(rule.start, zone)
        self._start_s = start_s
        self._days = RecurringDays(rule, start_s // _DAY_S)
        self._times = RecurringTimes(rule, start_s)
        self._excluded = frozenset(_wall(stamp, zone) for stamp in rule.excluded)
        # The wall clock may run a day ahead of UTC.
        self._end_s = END_S + _DAY_S
        if rule.until is not None:
            self._end_s = _wall(rule.until, zone) + 1
        if self._times.is_empty:
            self._end_s = start_s
        elif rule.count is not None:
            self._end_s = self._end_of_count(rule.count)

    def next_wall(self, after_s: int) -> int | None:
        """The least match > `after_s`."""
        wall_s = self._next(after_s)
        while wall_s is not None and wall_s in self._excluded:
            wall_s = self._next(wall_s)
        return wall_s

    def last_wall(self, before_s: int) -> int | None:
        """The greatest match < `before_s`."""
        wall_s = self._last(before_s)
        while wall_s is not None and wall_s in self._excluded:
            wall_s = self._last(wall_s)
        return wall_s

    def count_walls(self, from_s: int, until_s: int) -> int:
        """How many matches lie in [`from_s`, `until_s`)."""
        excluded = sum(
            from_s <= wall_s < until_s and self._next(wall_s - 1) == wall_s
            for wall_s in self._excluded
        )
        return self._count(from_s, until_s) - excluded

    # The same before EXDATE: COUNT counts what is excluded, too.

    def _next(self, after_s: int) -> int | None:
        day, time = divmod(max(after_s + 1, self._start_s), _DAY_S)
        first_day = self._days.next_from(day)
        while first_day is not None:
            found = self._times.next_from(first_day, time if first_day == day else 0)
            if found is not None:
                wall_s = first_day * _DAY_S + found
                return wall_s if wall_s < self._end_s else None
            first_day = self._days.next_from(first_day + 1)
        return None

    def _last(self, before_s: int) -> int | None:
        day, time = divmod(min(before_s, self._end_s) - 1, _DAY_S)
        last_day = self._days.last_until(day)
        while last_day is not None:
            found = self._times.last_until(last_day, time if last_day == day else _DAY_S - 1)
            if found is not None:
                wall_s = last_day * _DAY_S + found
                return wall_s if wall_s >= self._start_s else None
            last_day = self._days.last_until(last_day - 1)
        return None

    def _count(self, from_s: int, until_s: int) -> int:
        from_s, until_s = max(from_s, self._start_s), min(until_s, self._end_s)
        if from_s >= until_s:
            return 0
        first_day, first_time = divmod(from_s, _DAY_S)
        end_day, end_time = divmod(until_s, _DAY_S)
        total = sum(map(self._times.count_over, self._days.between(first_day, end_day)))
        if self._days.next_from(first_day) == first_day:
            total -= self._times.count_before(first_day, first_time)
        if self._days.next_from(end_day) == end_day:
            total += self._times.count_before(end_day, end_time)
        return total

    def _end_of_count(self, count: int) -> int:
        """The second after the last of `count` matches."""
        first_day, first_time = divmod(self._start_s, _DAY_S)
        left = count
        if self._days.next_from(first_day) == first_day:
            left += self._times.count_before(first_day, first_time)
        for days in self._days.between(first_day, self._end_s // _DAY_S + 1):
            in_year = self._times.count_over(days)
            if in_year < left:
                left -= in_year
                continue
            for day in days:
                in_day = self._times.count_over([day])
                if in_day >= left:
                    return day * _DAY_S + self._times.nth(day, left) + 1
                left -= in_day
        return self._end_s


def _wall(stamp: Stamp, zone: ZoneInfo) -> int:
    wall_s = wall_of(stamp.moment)
    return wall_s + offset_at(zone, wall_s) if stamp.is_utc else wall_s


# An entry holds up to 21 years' worth of days, a hundred kilobytes at the very most.
@lru_cache(maxsize=1024)
def calendar(rule: Rule, timezone: str) -> RruleCalendar:
    """The shared calendar of a rule."""
    return RruleCalendar(rule, ZoneInfo(timezone))
