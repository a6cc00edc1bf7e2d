"""The times of day of an RRULE, with the seconds of an hour as the bits of one integer.

Invariant: a time matches if and only if BYHOUR, BYMINUTE and BYSECOND admit it and, for a
frequency below a day, its hour, minute or second is a whole number of intervals from DTSTART's.

With an interval that divides the day, every day has the same times. `DailyTimes` stores them as a
mask for each hour, and equal hours share one mask. Any other interval drifts through the days and
has no BYHOUR, BYMINUTE or BYSECOND, so `DriftingTimes` only needs arithmetic.
"""

from itertools import accumulate
from typing import Final

from msgspec import Struct

from wheelsched.schedule.rrule.days import RecurringDays
from wheelsched.schedule.rrule.rule import UNIT_S, Rule

_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600


class TimePattern(Struct, frozen=True, kw_only=True):
    """Everything that determines the times: rules with equal patterns recur at the same times.

    A slot is an hour, a minute or a second, depending on the frequency, and is counted from 1970.
    """

    slot_s: int
    interval: int
    phase: int  # position of DTSTART's slot within the interval
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]


def pattern_of(rule: Rule, start_s: int) -> TimePattern:
    """The times of a rule. Units finer than the frequency come from DTSTART."""
    hours, minutes, seconds = rule.hours, rule.minutes, rule.seconds
    if not hours:
        hours = tuple(range(24)) if rule.frequency in UNIT_S else (start_s // 3600 % 24,)
    if not minutes:
        is_stepped = rule.frequency in ("MINUTELY", "SECONDLY")
        minutes = tuple(range(60)) if is_stepped else (start_s // 60 % 60,)
    if not seconds:
        seconds = tuple(range(60)) if rule.frequency == "SECONDLY" else (start_s % 60,)
    is_stepped = rule.interval > 1 and rule.frequency in UNIT_S
    slot_s = UNIT_S[rule.frequency] if is_stepped else 1
    interval = rule.interval if is_stepped else 1
    return TimePattern(
        slot_s=slot_s,
        interval=interval,
        phase=start_s // slot_s % interval,
        hours=hours,
        minutes=minutes,
        seconds=seconds,
    )


class DailyTimes:
    """The same times each day."""

    __slots__ = ("_before", "_hours")

    def __init__(self, pattern: TimePattern) -> None:
        hour_mask = _hour_mask(pattern)
        shared: dict[int, int] = {}
        hours = [
            hour_mask & _slots_in_step(pattern, hour) if hour in pattern.hours else 0
            for hour in range(24)
        ]
        self._hours = tuple(shared.setdefault(mask, mask) for mask in hours)
        self._before = (0, *accumulate(mask.bit_count() for mask in hours))

    @property
    def is_empty(self) -> bool:
        return self._before[-1] == 0

    def next_from(self, day: int, time: int) -> int | None:
        """The next time of a day >= `time`, or None."""
        del day
        hour, rest = divmod(time, _HOUR_S)
        later = self._hours[hour] >> rest
        if later:
            return time + _lowest(later)
        for next_hour in range(hour + 1, 24):
            if self._hours[next_hour]:
                return next_hour * _HOUR_S + _lowest(self._hours[next_hour])
        return None

    def last_until(self, day: int, time: int) -> int | None:
        """The last time of a day <= `time`, or None."""
        del day
        hour, rest = divmod(time, _HOUR_S)
        earlier = self._hours[hour] & ((2 << rest) - 1)
        while not earlier:
            hour -= 1
            if hour < 0:
                return None
            earlier = self._hours[hour]
        return hour * _HOUR_S + earlier.bit_length() - 1

    def count_before(self, day: int, time: int) -> int:
        """How many times of a day lie before `time`."""
        del day
        hour, rest = divmod(time, _HOUR_S)
        return self._before[hour] + (self._hours[hour] & ((1 << rest) - 1)).bit_count()

    def count_over(self, days: RecurringDays, first_day: int, end_day: int) -> int:
        """How many times lie on the days in [`first_day`, `end_day`)."""
        return days.count(first_day, end_day) * self._before[-1]


class DriftingTimes:
    """Every `interval`-th slot since 1970, whatever the day."""

    __slots__ = ("_in_slot", "_interval", "_per_slot", "_phase", "_slot_s", "_slots")

    is_empty: Final = False  # no interval is longer than a day

    def __init__(self, pattern: TimePattern) -> None:
        self._slot_s = pattern.slot_s
        self._slots = _DAY_S // pattern.slot_s
        self._interval = pattern.interval
        self._phase = pattern.phase
        self._in_slot = _hour_mask(pattern) & ((1 << pattern.slot_s) - 1)
        self._per_slot = self._in_slot.bit_count()

    def next_from(self, day: int, time: int) -> int | None:
        """The next time of a day >= `time`, or None."""
        slot, rest = self._slot_of(day, time)
        later = self._in_slot >> rest if self._is_in_step(slot) else 0
        if later:
            return time + _lowest(later)
        slot += 1
        slot += (self._phase - slot) % self._interval - day * self._slots
        return slot * self._slot_s + _lowest(self._in_slot) if slot < self._slots else None

    def last_until(self, day: int, time: int) -> int | None:
        """The last time of a day <= `time`, or None."""
        slot, rest = self._slot_of(day, time)
        earlier = self._in_slot & ((2 << rest) - 1) if self._is_in_step(slot) else 0
        if earlier:
            return time - rest + earlier.bit_length() - 1
        slot -= 1
        slot -= (slot - self._phase) % self._interval + day * self._slots
        return slot * self._slot_s + self._in_slot.bit_length() - 1 if slot >= 0 else None

    def count_before(self, day: int, time: int) -> int:
        """How many times of a day lie before `time`."""
        slot, rest = self._slot_of(day, time)
        total = self._per_slot * (
            self._in_step_before(slot) - self._in_step_before(slot - slot % self._slots)
        )
        if self._is_in_step(slot):
            total += (self._in_slot & ((1 << rest) - 1)).bit_count()
        return total

    def count_over(self, days: RecurringDays, first_day: int, end_day: int) -> int:
        """How many times lie on the days in [`first_day`, `end_day`)."""
        return self._per_slot * sum(
            self._in_step_before(until_day * self._slots)
            - self._in_step_before(from_day * self._slots)
            for from_day, until_day in days.runs(first_day, end_day)
        )

    def _slot_of(self, day: int, time: int) -> tuple[int, int]:
        slot, rest = divmod(time, self._slot_s)
        return day * self._slots + slot, rest

    def _is_in_step(self, slot: int) -> bool:
        return slot % self._interval == self._phase

    def _in_step_before(self, slot: int) -> int:
        """How many slots since 1970 are in step before this one."""
        return -((self._phase - slot) // self._interval)


def recurring_times(pattern: TimePattern) -> DailyTimes | DriftingTimes:
    """The times of a pattern."""
    divides_the_day = _DAY_S // pattern.slot_s % pattern.interval == 0
    return DailyTimes(pattern) if divides_the_day else DriftingTimes(pattern)


def _hour_mask(pattern: TimePattern) -> int:
    """The seconds of an hour that BYMINUTE and BYSECOND admit."""
    minute_mask = sum(1 << second for second in pattern.seconds)
    return sum(minute_mask << 60 * minute for minute in pattern.minutes)


def _slots_in_step(pattern: TimePattern, hour: int) -> int:
    """The seconds of an hour whose slot is in step, on each day."""
    if pattern.interval == 1:
        return (1 << _HOUR_S) - 1
    slots = _HOUR_S // pattern.slot_s
    first = (pattern.phase - hour * slots) % pattern.interval
    times = -((first - slots) // pattern.interval)
    if times <= 0:
        return 0
    slot = (1 << pattern.slot_s) - 1
    return _repeat(slot, pattern.interval * pattern.slot_s, times) << first * pattern.slot_s


def _repeat(pattern: int, period: int, times: int) -> int:
    """Repeat a pattern `times` times. It must not be longer than its period."""
    return pattern * (((1 << period * times) - 1) // ((1 << period) - 1))


def _lowest(mask: int) -> int:
    """The position of the lowest bit."""
    return (mask & -mask).bit_length() - 1
