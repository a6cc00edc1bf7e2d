"""The due times of a calendar: its wall-clock matches, resolved to UTC stretch by stretch.

Invariant: a second is due if and only if its stretch resolves a match of the calendar to it, or if
it ends a gap that contains a match. Several matches in one gap are one due time. A calendar that
matches at least hourly across a clock change runs through it: there the rules for gaps and
overlaps do not apply, and a match is due whenever the wall clock shows it.
"""

from typing import Final

from wheelsched.schedule.dst import REACH_S, Stretch, Timeline, resolve
from wheelsched.schedule.spec import END_S, Calendar

_SECOND_US: Final = 1_000_000
_HOUR_S: Final = 3_600
# The jobs of a hot second share one step, and a backlog needs a few more. The cache is small,
# because there may be ten thousand calendars.
_CACHED_STEPS: Final = 16
_UNKNOWN: Final = -1  # no due time lies before 1970


class WallClock:
    """A `Recurrence` of whole seconds: a calendar read in a time zone."""

    __slots__ = ("_cache", "_calendar", "_stretch", "_timeline")

    def __init__(self, calendar: Calendar, timeline: Timeline) -> None:
        self._calendar = calendar
        self._timeline = timeline
        self._stretch = Stretch(0, 0, 0, 0, 0, 0, 0)  # of the last step; mostly also of the next
        self._cache: dict[int, int | None] = {}

    def next_after(self, after_us: int) -> int | None:
        """The next due time > `after_us`, cached for the next caller."""
        # One lookup, not two: another thread may clear the cache in between.
        cached_us = self._cache.get(after_us, _UNKNOWN)
        if cached_us != _UNKNOWN:
            return cached_us
        due_s = self._next_second(after_us // _SECOND_US if after_us >= 0 else -1)
        due_us = None if due_s is None else due_s * _SECOND_US
        if len(self._cache) >= _CACHED_STEPS:
            self._cache.clear()
        self._cache[after_us] = due_us
        return due_us

    def last_before(self, before_us: int) -> int | None:
        """The last due time < `before_us`, or None."""
        latest_s = min((before_us - 1) // _SECOND_US, END_S - 1)
        while latest_s >= 0:
            stretch = self._stretch_at(latest_s)
            until_s = min(latest_s + stretch.offset_s + 1, stretch.wall_end_s)
            wall_s = self._calendar.last_wall(until_s)
            if wall_s is not None and wall_s >= stretch.wall_s:
                return (wall_s - stretch.offset_s) * _SECOND_US
            if self._gap_has_match(stretch):
                return stretch.start_s * _SECOND_US
            latest_s = _resume_before(stretch, until_s, wall_s)
        return None

    def count(self, after_us: int, until_us: int) -> int:
        """How many due times lie in (`after_us`, `until_us`]."""
        first_s = max(after_us // _SECOND_US + 1, 0)
        end_s = min(until_us // _SECOND_US + 1, END_S)
        total = 0
        while first_s < end_s:
            stretch = self._stretch_at(first_s)
            offset_s = stretch.offset_s
            total += self._calendar.count_walls(
                max(first_s + offset_s, stretch.wall_s), min(end_s + offset_s, stretch.wall_end_s)
            )
            if (
                first_s == stretch.start_s
                and self._gap_has_match(stretch)
                and not self._matches(stretch.start_s + offset_s)
            ):
                total += 1
            first_s = stretch.end_s
        return total

    def instants_of(self, wall_s: int) -> list[int]:
        """The UTC seconds at which a wall-clock match is due."""
        return resolve(self._stretch_at, wall_s)

    def _next_second(self, after_s: int) -> int | None:
        if after_s >= END_S:
            return None
        stretch = self._stretch
        if not stretch.start_s <= after_s < stretch.end_s:
            stretch = self._stretch = self._stretch_at(after_s)
        from_s = max(after_s + stretch.offset_s + 1, stretch.wall_s)
        while True:
            wall_s = self._calendar.next_wall(from_s - 1)
            if wall_s is not None and wall_s < stretch.wall_end_s:
                due_s = wall_s - stretch.offset_s
                return due_s if due_s < END_S else None
            stretch = self._stretch_at(_resume_after(stretch, from_s, wall_s))
            if stretch.start_s >= END_S:
                return None
            if self._gap_has_match(stretch):
                return stretch.start_s
            from_s = stretch.wall_s

    def _stretch_at(self, utc_s: int) -> Stretch:
        """The stretch of a UTC second, without the DST rules at changes that are run through."""
        stretch = self._timeline.at(utc_s)
        first_s = stretch.start_s + stretch.offset_s
        if stretch.gap_s < first_s and self._runs_through(stretch.gap_s, first_s):
            stretch = stretch._replace(gap_s=first_s)
        if first_s < stretch.wall_s and self._runs_through(first_s, stretch.wall_s):
            stretch = stretch._replace(wall_s=first_s)
        last_s = stretch.end_s + stretch.offset_s
        if stretch.wall_end_s < last_s and self._runs_through(
            stretch.wall_end_s, stretch.shown_until_s
        ):
            stretch = stretch._replace(wall_end_s=last_s)
        return stretch

    def _runs_through(self, from_s: int, until_s: int) -> bool:
        """Whether three successive matches, at most an hour apart, span a gap or an overlap.

        The range is in wall-clock seconds. The last match in it and the first after it are two of
        the three; the third comes before or after them.
        """
        calendar = self._calendar
        if not calendar.count_walls(from_s, until_s):
            return False
        last_s = calendar.last_wall(until_s)
        assert last_s is not None
        next_s = calendar.next_wall(last_s)
        if next_s is None or next_s - last_s > _HOUR_S:
            return False
        return (
            calendar.count_walls(last_s - _HOUR_S, last_s) > 0
            or calendar.count_walls(next_s + 1, next_s + _HOUR_S + 1) > 0
        )

    def _gap_has_match(self, stretch: Stretch) -> bool:
        wall_start_s = stretch.start_s + stretch.offset_s
        if stretch.gap_s >= wall_start_s:
            return False
        # Count, because a search would continue to the next match, however far away.
        return self._calendar.count_walls(stretch.gap_s, wall_start_s) > 0

    def _matches(self, wall_s: int) -> bool:
        return self._calendar.count_walls(wall_s, wall_s + 1) > 0


# After a stretch without a match the search continues in its neighbour. That one may repeat the
# same wall-clock times, but never further back or ahead than the reach of a change. If all of that
# and everything up to the next match is known to be empty, the search skips years in one jump.


def _resume_after(stretch: Stretch, from_s: int, wall_s: int | None) -> int:
    """The UTC second to continue from if [from_s, wall_s) of the wall clock has no match."""
    if from_s > stretch.wall_end_s - REACH_S:
        return stretch.end_s
    return max(stretch.end_s, (END_S if wall_s is None else wall_s) - REACH_S)


def _resume_before(stretch: Stretch, until_s: int, wall_s: int | None) -> int:
    """The UTC second to go back to if (wall_s, until_s) of the wall clock has no match."""
    if until_s < stretch.wall_s + REACH_S:
        return stretch.start_s - 1
    return min(stretch.start_s - 1, -1 if wall_s is None else wall_s + REACH_S)
