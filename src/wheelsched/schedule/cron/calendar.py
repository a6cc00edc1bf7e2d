"""Matches a cron expression against the wall clock, with bit masks and small tables.

Invariant: a second matches if and only if its second, minute, hour and month are in their masks
and its day matches. A day matches if both its day of month and its day of week match. If neither
field begins with a star, one of them is enough. This is the rule of Vixie cron.
"""

from calendar import monthrange
from collections.abc import Iterator
from datetime import date
from functools import cache, lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from wheelsched.schedule.spec import END_YEAR, FIRST_YEAR

_DAY_S: Final = 86_400
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
# One year of margin on either side, because the wall clock may be a day ahead of UTC or behind it.
_FIRST_MONTH: Final = (FIRST_YEAR - 1) * 12
_NONE: Final = 255


class CronFields(Struct, frozen=True, kw_only=True):
    """The values that an expression matches. Bit n of a mask stands for the value n; Sunday is 0.

    `nth_weekdays` contains (weekday, n) for the n-th of a month, with n = -1 for the last.
    """

    seconds: int
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    last_day: bool = False
    nth_weekdays: frozenset[tuple[int, int]] = frozenset()
    either_day: bool = False


class _Month(Struct, frozen=True):
    """A month of the Gregorian calendar. `shape` is one of the 28 layouts of its days."""

    first_day: int  # days since 1970-01-01
    length: int
    first_weekday: int  # Sunday is 0
    shape: int


@cache
def _months() -> tuple[_Month, ...]:
    """Every month from `_FIRST_MONTH` on, in order."""
    return tuple(
        _Month(
            first_day=date(year, month, 1).toordinal() - _EPOCH_ORDINAL,
            length=length,
            first_weekday=(weekday + 1) % 7,
            shape=weekday * 4 + length - 28,
        )
        for year in range(FIRST_YEAR - 1, END_YEAR + 1)
        for month in range(1, 13)
        for weekday, length in [monthrange(year, month)]
    )


class CronCalendar:
    """A `Calendar` of one cron expression."""

    __slots__ = (
        "_day_masks",
        "_fields",
        "_first_in_hour",
        "_first_time",
        "_hours",
        "_last_in_hour",
        "_last_time",
        "_matching_day",
        "_minutes",
        "_months",
        "_next_hour",
        "_next_minute",
        "_next_second",
        "_per_day",
        "_per_hour",
        "_seconds",
    )

    def __init__(self, fields: CronFields) -> None:
        self._fields = fields
        self._months = _months()
        self._day_masks: list[int | None] = [None] * 28
        self._matching_day = -_DAY_S  # the last one found, where the next step starts
        self._hours = _Values.of(fields.hours, 24)
        self._minutes = _Values.of(fields.minutes, 60)
        self._seconds = _Values.of(fields.seconds, 60)
        # Attributes of their own, to save a lookup on the hot path.
        self._next_hour = self._hours.next
        self._next_minute = self._minutes.next
        self._next_second = self._seconds.next
        self._first_in_hour = self._minutes.first * 60 + self._seconds.first
        self._first_time = self._hours.first * 3600 + self._first_in_hour
        self._last_in_hour = self._minutes.last * 60 + self._seconds.last
        self._last_time = self._hours.last * 3600 + self._last_in_hour
        self._per_hour = self._minutes.amount * self._seconds.amount
        self._per_day = self._hours.amount * self._per_hour

    def next_wall(self, after_s: int) -> int | None:
        """The next match > `after_s`, or None."""
        day, time = divmod(after_s + 1, _DAY_S)
        if day == self._matching_day or self._matches_day(day):
            next_time = self._time_from(time)
            if next_time is not None:
                return day * _DAY_S + next_time
        next_day = self._day_after(day)
        return None if next_day is None else next_day * _DAY_S + self._first_time

    def last_wall(self, before_s: int) -> int | None:
        """The last match < `before_s`, or None."""
        day, time = divmod(before_s - 1, _DAY_S)
        if day == self._matching_day or self._matches_day(day):
            last_time = self._time_until(time)
            if last_time is not None:
                return day * _DAY_S + last_time
        last_day = self._day_before(day)
        return None if last_day is None else last_day * _DAY_S + self._last_time

    def count_walls(self, from_s: int, until_s: int) -> int:
        """How many matches lie in [`from_s`, `until_s`)."""
        if from_s >= until_s:
            return 0
        first_day, first_time = divmod(from_s, _DAY_S)
        end_day, end_time = divmod(until_s, _DAY_S)
        if first_day == end_day:  # e.g. a backlog of minutes
            if first_day != self._matching_day and not self._matches_day(first_day):
                return 0
            return self._count_times(end_time) - self._count_times(first_time)
        total = self._count_days(first_day, end_day) * self._per_day
        if self._matches_day(first_day):
            total -= self._count_times(first_time)
        if self._matches_day(end_day):
            total += self._count_times(end_time)
        return total

    @property
    def fields(self) -> CronFields:
        return self._fields

    # Days, counted from 1970-01-01.

    def days(self) -> Iterator[int]:
        """The matching days, in order."""
        day = self._day_after(-1)
        while day is not None:
            yield day
            day = self._day_after(day)

    def _matches_day(self, day: int) -> bool:
        month, position = _month_of(day)
        if self._mask(month) >> position & 1:
            self._matching_day = day  # a cache: the next step mostly stays on this day
            return True
        return False

    def _day_after(self, day: int) -> int | None:
        month, position = _month_of(day)
        rest = self._mask(month) >> position + 1 << position + 1
        while not rest:
            month += 1
            if month >= len(self._months):
                return None
            rest = self._mask(month)
        found = self._months[month].first_day + (rest & -rest).bit_length() - 1
        self._matching_day = found
        return found

    def _day_before(self, day: int) -> int | None:
        month, position = _month_of(day)
        rest = self._mask(month) & ((1 << position) - 1)
        while not rest:
            month -= 1
            if month < 0:
                return None
            rest = self._mask(month)
        return self._months[month].first_day + rest.bit_length() - 1

    def _count_days(self, first_day: int, end_day: int) -> int:
        month, position = _month_of(first_day)
        end_month, end_position = _month_of(end_day)
        total = (self._mask(end_month) & ((1 << end_position) - 1)).bit_count()
        total -= (self._mask(month) & ((1 << position) - 1)).bit_count()
        return total + sum(self._mask(whole).bit_count() for whole in range(month, end_month))

    def _mask(self, month: int) -> int:
        if not self._fields.months >> month % 12 & 2:
            return 0
        shape = self._months[month].shape
        mask = self._day_masks[shape]
        if mask is None:
            mask = self._day_masks[shape] = _day_mask(self._fields, self._months[month])
        return mask

    # Times of day, in seconds since midnight.

    def _time_from(self, time: int) -> int | None:
        """The least matching time of day >= `time`."""
        hour, rest = divmod(time, 3600)
        minute, second = divmod(rest, 60)
        if self._next_hour[hour] == hour:
            if self._next_minute[minute] == minute:
                next_second = self._next_second[second]
                if next_second != _NONE:
                    return time - second + next_second
            next_minute = self._next_minute[minute + 1]
            if next_minute != _NONE:
                return hour * 3600 + next_minute * 60 + self._seconds.first
        next_hour = self._next_hour[hour + 1]
        return None if next_hour == _NONE else next_hour * 3600 + self._first_in_hour

    def _time_until(self, time: int) -> int | None:
        """The greatest matching time of day <= `time`."""
        hour, rest = divmod(time, 3600)
        minute, second = divmod(rest, 60)
        if self._next_hour[hour] == hour:
            if self._next_minute[minute] == minute:
                last_second = self._seconds.below[second + 1]
                if last_second != _NONE:
                    return time - second + last_second
            last_minute = self._minutes.below[minute]
            if last_minute != _NONE:
                return hour * 3600 + last_minute * 60 + self._seconds.last
        last_hour = self._hours.below[hour]
        return None if last_hour == _NONE else last_hour * 3600 + self._last_in_hour

    def _count_times(self, end_time: int) -> int:
        """How many matching times of day lie in [0, `end_time`)."""
        hour, rest = divmod(end_time, 3600)
        minute, second = divmod(rest, 60)
        total = self._hours.before[hour] * self._per_hour
        if self._next_hour[hour] == hour:
            total += self._minutes.before[minute] * self._seconds.amount
            if self._next_minute[minute] == minute:
                total += self._seconds.before[second]
        return total


class _Values(NamedTuple):
    """The values of one field as lookup tables, which replace a search through bits.

    Each table has a byte for every value of the field, and one more for the end.
    """

    first: int
    last: int
    amount: int
    next: bytes  # the least value that is not below the index
    below: bytes  # the greatest value below the index
    before: bytes  # how many values are below the index

    @staticmethod
    @lru_cache(maxsize=4096)  # nearly all fields are one of a few dozen
    def of(mask: int, size: int) -> "_Values":
        values = [value for value in range(size) if mask >> value & 1]
        assert values
        following = bytearray([_NONE] * (size + 1))
        for value in reversed(range(size)):
            following[value] = value if mask >> value & 1 else following[value + 1]
        below = bytearray([_NONE] * (size + 1))
        for value in range(size):
            below[value + 1] = value if mask >> value & 1 else below[value]
        before = bytes((mask & (1 << value) - 1).bit_count() for value in range(size + 1))
        return _Values(values[0], values[-1], len(values), bytes(following), bytes(below), before)


def _month_of(day: int) -> tuple[int, int]:
    """The index of a day's month, and its position in it."""
    moment = date.fromordinal(day + _EPOCH_ORDINAL)
    return moment.year * 12 + moment.month - 1 - _FIRST_MONTH, moment.day - 1


def _day_mask(fields: CronFields, month: _Month) -> int:
    """The matching days of a month: bit n stands for day n + 1."""
    every_day = (1 << month.length) - 1
    days = fields.days >> 1 & every_day
    if fields.last_day:
        days |= 1 << month.length - 1
    weekdays = 0
    for position in range(month.length):
        weekday = (month.first_weekday + position) % 7
        nth = (weekday, position // 7 + 1)
        last = (weekday, -1) if position + 7 >= month.length else nth
        if fields.weekdays >> weekday & 1 or {nth, last} & fields.nth_weekdays:
            weekdays |= 1 << position
    return days | weekdays if fields.either_day else days & weekdays
