"""Start, end and excluded dates: due times cut out of any recurrence.

Invariant: a due time stays exactly when it lies in no excluded interval. Before the start and
after the end are excluded intervals like the others, and so is what an RRULE excludes itself.
"""

from bisect import bisect_right
from functools import lru_cache
from typing import Final

from wheelsched.core import rrule_bounds
from wheelsched.core.at import read_date
from wheelsched.core.dst import instants_of_dates
from wheelsched.core.duration import SECOND
from wheelsched.core.rrule_bounds import BEGINNING_US, ENDING_US, Interval
from wheelsched.core.spec import Recurrence, Spec
from wheelsched.errors import InvalidExclusion, InvalidInstant, quoted

# Each may lie in a year of its own, whose clock changes are then looked up at registration.
MAX_EXCLUSIONS: Final = 128

# `2026-12-24/2027-01-02`, with spaces around.
MAX_EXCLUSION: Final = 64


class Bounded:
    """A `Recurrence` without what lies in excluded intervals."""

    __slots__ = ("_excluded", "_recurrence", "_starts")

    def __init__(self, recurrence: Recurrence, excluded: tuple[Interval, ...]) -> None:
        self._recurrence = recurrence
        self._excluded = excluded
        self._starts = [from_us for from_us, _ in excluded]

    def next_after(self, after_us: int) -> int | None:
        """The least due time > `after_us`."""
        # Left at once, so that nothing is searched for past the end or before the start.
        if (interval := self._interval_of(after_us + 1)) is not None:
            after_us = interval[1] - 1
        due_us = self._recurrence.next_after(after_us)
        while due_us is not None and (interval := self._interval_of(due_us)) is not None:
            due_us = self._recurrence.next_after(interval[1] - 1)
        return due_us

    def last_before(self, before_us: int) -> int | None:
        """The greatest due time < `before_us`."""
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
    """A date, or a range of dates whose end is not before its start."""
    if len(text) > MAX_EXCLUSION:
        raise InvalidExclusion(f"{quoted(text)} is too long for a date or a range of dates")
    try:
        days = [read_date(day) for day in text.split("/", 2)]
    except InvalidInstant as error:
        raise InvalidExclusion(str(error)) from error
    if len(days) > 2 or days[0] > days[-1]:
        raise InvalidExclusion(
            f"{quoted(text)} is not a range of dates; write 2026-12-24/2027-01-02, "
            "the earlier first"
        )
    return "/".join(day.isoformat() for day in days)


def excluded_by(spec: Spec) -> tuple[Interval, ...]:
    """What a spec excludes: in order, without two that touch."""
    if spec.start_us is None and spec.end_us is None and not spec.exclude and spec.kind != "rrule":
        return ()  # as for nearly every job
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


# Up to fifteen kilobytes each. Many jobs share the holidays of a country.
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
    """From the first instant that a zone shows these dates to the last, whatever its clocks do."""
    days = [read_date(day) for day in text.split("/")]
    from_s, until_s = instants_of_dates(timezone, days[0], days[-1])
    return from_s * SECOND, until_s * SECOND
