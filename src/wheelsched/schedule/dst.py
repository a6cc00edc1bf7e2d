"""Converts wall-clock times to UTC across clock changes.

Invariant: a zone is a sequence of stretches of constant offset that cover UTC without gaps. Each
stretch resolves a range of wall-clock seconds, so that over all stretches

- a second that occurs twice resolves to the first copy, the last or both (`overlap`);
- a second that never occurs resolves to the end of its gap, or to nothing (`gap`).

With gap = skip and overlap = both, a time is due whenever the wall clock shows it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from wheelsched.schedule.spec import DstGap, DstOverlap

# 388 days, so a page of most zones contains two or three stretches.
_PAGE_BITS: Final = 25
# Since 1970 no zone has changed twice within six days, so a probe every five days misses none.
_PROBE: Final = timedelta(days=5)
_QUARTER_S: Final = 900
_QUARTER: Final = timedelta(seconds=_QUARTER_S)
# Due whenever the wall clock shows it.
AS_SHOWN: Final[tuple[DstGap, DstOverlap]] = ("skip", "both")
# More than the largest change of any zone: a day, when a zone crosses the date line.
REACH_S: Final = 2 * 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock has no zone
_SECOND: Final = timedelta(seconds=1)


class Stretch(NamedTuple):
    """UTC seconds [start_s, end_s) of one offset: the wall clock shows UTC + offset_s.

    It resolves the wall-clock seconds [wall_s, wall_end_s). Those in [gap_s, start_s + offset_s)
    never occurred and are due at start_s; without a gap the range is empty. `shown_until_s` is the
    wall-clock time at the change that ends the offset. It is later than end_s if a page boundary
    cuts the stretch.
    """

    start_s: int
    end_s: int
    offset_s: int
    wall_s: int
    wall_end_s: int
    gap_s: int
    shown_until_s: int


Change = tuple[int, int]
"""A UTC second, and the offset from it on."""


Page = tuple[list[int], list[Stretch]]
"""Where each stretch of a page starts, and the stretches."""


class Timeline:
    """The stretches of one zone under one policy, computed page by page on demand."""

    __slots__ = ("_gap", "_overlap", "_zone")

    def __init__(self, zone: ZoneInfo, gap: DstGap, overlap: DstOverlap) -> None:
        self._zone = zone
        self._gap = gap
        self._overlap = overlap

    def at(self, utc_s: int) -> Stretch:
        """The stretch that contains a UTC second."""
        starts, stretches = _page(self._zone, self._gap, self._overlap, utc_s >> _PAGE_BITS)
        return stretches[bisect_right(starts, utc_s) - 1]

    def resolve(self, wall_s: int) -> list[int]:
        """The UTC seconds of one wall-clock second: none, one or two, in order."""
        return resolve(self.at, wall_s)


def resolve(at: Callable[[int], Stretch], wall_s: int) -> list[int]:
    """The UTC seconds of a wall-clock second; `at` gives the stretch of each UTC second."""
    found = []
    stretch = at(wall_s - REACH_S)
    while stretch.start_s <= wall_s + REACH_S:
        if stretch.gap_s <= wall_s < stretch.start_s + stretch.offset_s:
            found.append(stretch.start_s)
        elif stretch.wall_s <= wall_s < stretch.wall_end_s:
            found.append(wall_s - stretch.offset_s)
        stretch = at(stretch.end_s)
    return found


# 0.5 kB per entry, shared by all timelines. A search through centuries, e.g. for a COUNT, evicts
# pages that were not used for a while, and not the present.
@lru_cache(maxsize=16_384)
def _page(zone: ZoneInfo, gap: DstGap, overlap: DstOverlap, number: int) -> Page:
    start_s, end_s = number << _PAGE_BITS, (number + 1) << _PAGE_BITS
    changes = _page_of_changes(zone, number)
    stretches = [
        cut
        for stretch in _stretches(changes, end_s + REACH_S, gap, overlap)
        if (cut := _clip(stretch, start_s, end_s)) is not None
    ]
    return [stretch.start_s for stretch in stretches], stretches


def _stretches(
    changes: Sequence[Change], end_s: int, gap: DstGap, overlap: DstOverlap
) -> Iterator[Stretch]:
    ends = [start_s for start_s, _ in changes[1:]] + [end_s]
    walls = [start_s + offset_s for start_s, offset_s in changes]
    wall_ends = [end + offset_s for end, (_, offset_s) in zip(ends, changes, strict=True)]
    # Before a stretch, the wall clock has shown everything up to `shown_until`. After it, the wall
    # clock will show everything from `shown_again` on.
    shown_until = [walls[0], *accumulate(wall_ends[:-1], max)]
    shown_again = [*accumulate(reversed(walls[1:]), min, initial=wall_ends[-1])][::-1]
    for index, (start_s, offset_s) in enumerate(changes):
        wall_s, wall_end_s = walls[index], wall_ends[index]
        gap_s = min(shown_until[index], wall_s) if gap == "shift" else wall_s
        if overlap == "first":
            wall_s = max(wall_s, shown_until[index])
        elif overlap == "last":
            wall_end_s = min(wall_end_s, shown_again[index])
        yield Stretch(start_s, ends[index], offset_s, wall_s, wall_end_s, gap_s, wall_ends[index])


def _clip(stretch: Stretch, start_s: int, end_s: int) -> Stretch | None:
    """The part of a stretch within [start_s, end_s). Cutting a constant offset changes no time."""
    if stretch.end_s <= start_s or stretch.start_s >= end_s:
        return None
    if stretch.start_s < start_s:
        wall_s = start_s + stretch.offset_s
        stretch = stretch._replace(
            start_s=start_s, wall_s=max(wall_s, stretch.wall_s), gap_s=wall_s
        )
    if stretch.end_s > end_s:
        wall_end_s = min(end_s + stretch.offset_s, stretch.wall_end_s)
        stretch = stretch._replace(end_s=end_s, wall_end_s=wall_end_s)
    return stretch


# Finding the changes is the slowest step, so all policies of a zone share them. A page takes about
# 400 bytes, and a zone has 216 pages until 2200.
@lru_cache(maxsize=16_384)
def _page_of_changes(zone: ZoneInfo, number: int) -> tuple[Change, ...]:
    # With the margin, the first and the last stretch of a page know their neighbours.
    start_s, end_s = (number << _PAGE_BITS) - REACH_S, ((number + 1) << _PAGE_BITS) + REACH_S
    return tuple(_changes(zone, start_s - start_s % _QUARTER_S, end_s))


# `fromutc` with the zone set on a UTC time is the fastest way to get an offset: 0.1 µs, where
# `fromtimestamp` and `timedelta(seconds=...)` take more than 1 µs each.


def _changes(zone: ZoneInfo, start_s: int, end_s: int) -> list[Change]:
    """The offset at `start_s`, then each change before `end_s`."""
    start = _EPOCH.replace(tzinfo=zone) + _SECOND * start_s
    end = start + _SECOND * (end_s - start_s)
    before = zone.fromutc(start) - start
    changes = [(start_s, before // _SECOND)]
    low = start
    while low < end:
        high = min(low + _PROBE, end)
        after = zone.fromutc(high) - high
        if after != before:
            changed = _first_change(zone, low, high)
            changes.append((start_s + (changed - start) // _SECOND, after // _SECOND))
            before = after
        low = high
    return changes


def _first_change(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The first second of the offset of `high`, which is not that of `low`."""
    before = zone.fromutc(low) - low
    # Nearly all clocks change on a quarter of an hour, so search by quarters first.
    for unit in (_QUARTER, _SECOND):
        if zone.fromutc(high - _SECOND) - (high - _SECOND) == before:
            return high
        units = (high - low) // unit
        while units > 1:
            middle = low + unit * (units // 2)
            if zone.fromutc(middle) - middle == before:
                low, units = middle, units - units // 2
            else:
                high, units = middle, units // 2
    return high


def offset_at(zone: ZoneInfo, utc_s: int) -> int:
    """The offset of a zone from UTC, in seconds."""
    instant = _EPOCH.replace(tzinfo=zone) + _SECOND * utc_s
    return (zone.fromutc(instant) - instant) // _SECOND


def instants_of_dates(timezone: str, first: date, last: date) -> tuple[int, int]:
    """UTC seconds [from, until) from the first second of these dates to the last.

    A clock change may repeat or skip midnight itself.
    """
    from_s = wall_of(datetime.combine(first, time.min))
    until_s = wall_of(datetime.combine(last + timedelta(days=1), time.min))
    rows = timeline(timezone, "shift", "both")
    last_shown = timeline(timezone, "skip", "both").resolve(until_s - 1)
    end_s = last_shown[-1] + 1 if last_shown else rows.resolve(until_s)[0]
    return rows.resolve(from_s)[0], end_s


def wall_of(local: datetime) -> int:
    """The wall-clock second of a datetime without a zone, rounded down."""
    return (local - _LOCAL_EPOCH) // _SECOND


def local_of(wall_s: int) -> datetime:
    """The datetime without a zone of a wall-clock second."""
    return _LOCAL_EPOCH + timedelta(seconds=wall_s)


def instant_us(moment: datetime) -> int:
    """The microsecond of a datetime with a zone."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


# There are 600 zones and six policies, but few services use more than a hundred.
@lru_cache(maxsize=4096)
def timeline(timezone: str, gap: DstGap, overlap: DstOverlap) -> Timeline:
    """The shared timeline of a zone under a policy."""
    return Timeline(ZoneInfo(timezone), gap, overlap)
