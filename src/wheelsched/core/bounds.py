"""Start, end and excluded dates: due times cut out of any recurrence.

Invariant: a due time stays exactly when it lies in no excluded interval. Before the start and
after the end are excluded intervals like the others.
"""

from bisect import bisect_right
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import Final

from wheelsched.core.at import read_date
from wheelsched.core.dst import timeline, wall_of
from wheelsched.core.duration import SECOND
from wheelsched.core.spec import END_US, Recurrence, Spec
from wheelsched.errors import InvalidExclusion, InvalidInstant

_BEGINNING_US: Final = -END_US
_ENDING_US: Final = 2 * END_US
# Each may lie in a year of its own, whose clock changes are then looked up at registration.
MAX_EXCLUSIONS: Final = 128

Interval = tuple[int, int]
"""Instants [from_us, until_us)."""


class Bounded:
    """A `Recurrence` without what lies in excluded intervals."""

    __slots__ = ("_excluded", "_recurrence", "_starts")

    def __init__(self, recurrence: Recurrence, excluded: tuple[Interval, ...]) -> None:
        self._recurrence = recurrence
        self._excluded = excluded
        self._starts = [from_us for from_us, _ in excluded]

    def next_after(self, after_us: int) -> int | None:
        """The least due time > `after_us`."""
        due_us = self._recurrence.next_after(after_us)
        while due_us is not None and (interval := self._interval_of(due_us)) is not None:
            due_us = self._recurrence.next_after(interval[1] - 1)
        return due_us

    def last_before(self, before_us: int) -> int | None:
        """The greatest due time < `before_us`."""
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
    try:
        days = [read_date(day) for day in text.split("/", 2)]
    except InvalidInstant as error:
        raise InvalidExclusion(str(error)) from error
    if len(days) > 2 or days[0] > days[-1]:
        raise InvalidExclusion(
            f"{text[:40]!r} is not a range of dates; write 2026-12-24/2027-01-02, the earlier first"
        )
    return "/".join(day.isoformat() for day in days)


def excluded_by(spec: Spec) -> tuple[Interval, ...]:
    """What a spec excludes: in order, without two that touch."""
    if spec.start_us is None and spec.end_us is None and not spec.exclude:
        return ()
    return _excluded(spec.start_us, spec.end_us, spec.exclude, spec.timezone)


def is_excluded(spec: Spec, instant_us: int) -> bool:
    """Whether an instant lies outside a spec's start and end, or on an excluded date."""
    return any(from_us <= instant_us < until_us for from_us, until_us in excluded_by(spec))


@lru_cache(maxsize=4096)
def _excluded(
    start_us: int | None, end_us: int | None, exclude: tuple[str, ...], timezone: str
) -> tuple[Interval, ...]:
    intervals = [interval_of_dates(text, timezone) for text in exclude]
    if start_us is not None:
        intervals.append((_BEGINNING_US, start_us))
    if end_us is not None:
        intervals.append((end_us + 1, _ENDING_US))
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
    first = wall_of(datetime.combine(days[0], time.min))
    end = wall_of(datetime.combine(days[-1] + timedelta(days=1), time.min))
    rows = timeline(timezone, "shift", "both")
    return rows.resolve(first)[0] * SECOND, rows.resolve(end)[-1] * SECOND
