"""Applies the start, the end and the excluded dates of a schedule to its recurrence.

Invariant: a due time remains if and only if no excluded interval contains it. The time before the
start and after the end is an excluded interval like any other, and so are an RRULE's own bounds.
"""

from bisect import bisect_right
from functools import lru_cache
from typing import Final

from wheelsched.errors import InvalidExclusion, InvalidInstant, quoted
from wheelsched.schedule.at import read_date
from wheelsched.schedule.dst import instants_of_dates
from wheelsched.schedule.rrule import bounds as rrule_bounds
from wheelsched.schedule.rrule.bounds import BEGINNING_US, ENDING_US, Interval
from wheelsched.schedule.spec import Recurrence, Spec
from wheelsched.values.duration import SECOND

# Each may be in a different year, and registration looks up the clock changes of all of them.
MAX_EXCLUSIONS: Final = 128

# `2026-12-24/2027-01-02`, with spaces around.
MAX_EXCLUSION: Final = 64


class Bounded:
    """A `Recurrence` without the due times in excluded intervals."""

    __slots__ = ("_excluded", "_recurrence", "_starts")

    def __init__(self, recurrence: Recurrence, excluded: tuple[Interval, ...]) -> None:
        self._recurrence = recurrence
        self._excluded = excluded
        self._starts = [from_us for from_us, _ in excluded]

    def next_after(self, after_us: int) -> int | None:
        """The next due time > `after_us`, or None."""
        # Jump out of the interval first, to avoid a search before the start or past the end.
        if (interval := self._interval_of(after_us + 1)) is not None:
            after_us = interval[1] - 1
        due_us = self._recurrence.next_after(after_us)
        while due_us is not None and (interval := self._interval_of(due_us)) is not None:
            due_us = self._recurrence.next_after(interval[1] - 1)
        return due_us

    def last_before(self, before_us: int) -> int | None:
        """The last due time < `before_us`, or None."""
        if (interval := self._interval_of(before_us - 1)) is not None:
            before_us = interval[0]
        due_us = self._recurrence.last_before(before_us)
        while due_us is not None and (interval := self._interval_of(due_us)) is not None:
            due_us = self._recurrence.last_before(interval[0])
        return due_us

    def count(self, after_us: int, until_us: int) -> int:
        """How many due times lie in (`after_us`, `until_us`]."""
        total = self._recurrence.count(after_us, until_us)
        for from_us, end_us in self._excluded:
            low_us, high_us = max(after_us, from_us - 1), min(until_us, end_us - 1)
            if low_us < high_us:
                total -= self._recurrence.count(low_us, high_us)
        return total

    def _interval_of(self, due_us: int) -> Interval | None:
        index = bisect_right(self._starts, due_us) - 1
        return self._excluded[index] if index >= 0 and due_us < self._excluded[index][1] else None


def normalise_exclusion(text: str) -> str:
    """The canonical form of a date, or of a range of dates in order."""
    if len(text) > MAX_EXCLUSION:
        raise InvalidExclusion(f"{quoted(text)} is too long for a date or a range of dates")
    try:
        days = [read_date(day) for day in text.split("/", 2)]
    except InvalidInstant as error:
        raise InvalidExclusion(str(error)) from error
    if len(days) > 2 or days[0] > days[-1]:
        raise InvalidExclusion(
            f"{quoted(text)} is not a valid range of dates; write the earlier date first, "
            "e.g. 2026-12-24/2027-01-02"
        )
    return "/".join(day.isoformat() for day in days)


def excluded_by(spec: Spec) -> tuple[Interval, ...]:
    """The excluded intervals of a spec, sorted and merged."""
    if spec.start_us is None and spec.end_us is None and not spec.exclude and spec.kind != "rrule":
        return ()  # the case of nearly every job
    intervals: list[Interval] = []
    if spec.kind == "rrule":
        intervals += rrule_bounds.excluded_by(
            spec.expression, spec.timezone, spec.dst_gap, spec.dst_overlap
        )
    if spec.start_us is not None:
        intervals.append((BEGINNING_US, spec.start_us))
    if spec.end_us is not None:
        intervals.append((spec.end_us + 1, ENDING_US))
    if spec.exclude:
        intervals += _excluded_dates(spec.exclude, spec.timezone)
    return _merged(intervals)


def is_excluded(spec: Spec, instant_us: int) -> bool:
    """Whether an instant lies outside a spec's start and end, or on an excluded date."""
    return any(from_us <= instant_us < until_us for from_us, until_us in excluded_by(spec))


# Up to 15 kB per entry. Many jobs share the holidays of a country.
@lru_cache(maxsize=512)
def _excluded_dates(exclude: tuple[str, ...], timezone: str) -> tuple[Interval, ...]:
    return _merged([interval_of_dates(text, timezone) for text in exclude])


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for from_us, until_us in sorted(intervals):
        if merged and from_us <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], until_us)
        else:
            merged.append((from_us, until_us))
    return tuple(merged)


def interval_of_dates(text: str, timezone: str) -> Interval:
    """From the first instant of these dates in a zone to the last, across all clock changes."""
    days = [read_date(day) for day in text.split("/")]
    from_s, until_s = instants_of_dates(timezone, days[0], days[-1])
    return from_s * SECOND, until_s * SECOND
