"""The times of day of an RRULE: the seconds of a day as the bits of one integer.

Invariant: bit t of a day's mask is set exactly when BYHOUR, BYMINUTE and BYSECOND admit the
time t and, below a frequency of a day, its hour, minute or second is a whole number of
intervals from DTSTART's.
"""

from collections.abc import Sequence
from typing import Final

from wheelsched.core.rrule import UNIT_S, Rule

_DAY_S: Final = 86_400
_REMEMBERED_PHASES: Final = 16


class RecurringTimes:
    """The masks of a rule's days. They repeat with the phase of the day in the interval."""

    __slots__ = ("_admitted", "_first_slot", "_interval", "_masks", "_per_day", "_unit_s")

    def __init__(self, rule: Rule, start_s: int) -> None:
        self._admitted = _admitted(rule, start_s % _DAY_S)
        # A slot is an hour, a minute or a second, whichever the frequency steps in.
        self._unit_s = UNIT_S.get(rule.frequency, _DAY_S)
        self._interval = rule.interval if rule.frequency in UNIT_S else 1
        self._first_slot = start_s // self._unit_s
        self._masks: dict[int, int] = {}
        is_the_same_each_day = self._slots % self._interval == 0
        self._per_day = self._mask(0).bit_count() if is_the_same_each_day else None

    @property
    def is_empty(self) -> bool:
        return self._per_day == 0

    def next_from(self, day: int, time: int) -> int | None:
        """The least time of a day >= `time`."""
        later = self._mask(day) >> time
        return time + (later & -later).bit_length() - 1 if later else None

    def last_until(self, day: int, time: int) -> int | None:
        """The greatest time of a day <= `time`."""
        earlier = self._mask(day) & ((2 << time) - 1)
        return earlier.bit_length() - 1 if earlier else None

    def count_before(self, day: int, time: int) -> int:
        """How many times of a day lie before `time`."""
        return (self._mask(day) & ((1 << time) - 1)).bit_count()

    def nth(self, day: int, position: int) -> int:
        """The time of a day that is the `position`-th, from 1 on."""
        low, high = 0, _DAY_S - 1
        while low < high:
            middle = (low + high) // 2
            if self.count_before(day, middle + 1) >= position:
                high = middle
            else:
                low = middle + 1
        return low

    def count_over(self, days: Sequence[int]) -> int:
        """How many times lie on all of these days, which are in order."""
        if self._per_day is not None:
            return len(days) * self._per_day
        # An interval that does not divide the day comes with slots that are all alike.
        per_slot = self._admitted.bit_count() // self._slots
        if days and days[-1] - days[0] + 1 == len(days):
            return per_slot * (self._slots_before(days[-1] + 1) - self._slots_before(days[0]))
        first, slots, interval = self._first_slot, self._slots, self._interval
        return per_slot * sum(
            -(((first - day * slots) % interval - slots) // interval) for day in days
        )

    @property
    def _slots(self) -> int:
        return _DAY_S // self._unit_s

    def _phase(self, day: int) -> int:
        """The first slot of a day that is in step."""
        return (self._first_slot - day * self._slots) % self._interval

    def _slots_before(self, day: int) -> int:
        """How many slots in step there are from the first one to the beginning of a day."""
        return -((self._first_slot - day * self._slots) // self._interval)

    def _count_slots(self, day: int) -> int:
        return -((self._phase(day) - self._slots) // self._interval)

    def _mask(self, day: int) -> int:
        if self._interval == 1:
            return self._admitted
        phase = self._phase(day)
        mask = self._masks.get(phase)
        if mask is None:
            if len(self._masks) >= _REMEMBERED_PHASES:
                self._masks.clear()
            slot = (1 << self._unit_s) - 1
            slots = _repeat(slot, self._interval * self._unit_s, self._count_slots(day))
            mask = self._masks[phase] = slots << phase * self._unit_s & self._admitted
        return mask


def _admitted(rule: Rule, start_time: int) -> int:
    """The times that the BY parts admit; what is finer than the frequency is as in DTSTART."""
    hours, minutes, seconds = rule.hours, rule.minutes, rule.seconds
    if not hours:
        hours = tuple(range(24)) if rule.frequency in UNIT_S else (start_time // 3600,)
    if not minutes:
        is_stepped = rule.frequency in ("MINUTELY", "SECONDLY")
        minutes = tuple(range(60)) if is_stepped else (start_time // 60 % 60,)
    if not seconds:
        seconds = tuple(range(60)) if rule.frequency == "SECONDLY" else (start_time % 60,)
    minute_mask = sum(1 << second for second in seconds)
    hour_mask = sum(minute_mask << 60 * minute for minute in minutes)
    return sum(hour_mask << 3600 * hour for hour in hours)


def _repeat(pattern: int, period: int, times: int) -> int:
    """A pattern shorter than its period, written `times` over."""
    return pattern * (((1 << period * times) - 1) // ((1 << period) - 1))
