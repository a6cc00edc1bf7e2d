"""The oracle: which due times a schedule has, by looking at every second.

Invariant: nothing is computed here that could be looked up: each second is translated to the wall
clock of its zone by zoneinfo, and held against the fields. Slow, and hard to get wrong. A crowd
of jobs that were registered together asks the same questions: each is answered once.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from tests.checker.records import Schedule

SECOND_US = 1_000_000
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RANGES = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def due_times(schedule: Schedule, after_us: int, until_us: int) -> list[int]:
    """The due times in (`after_us`, `until_us`], by the database's clock."""
    after_us = max(after_us, schedule.start_us - 1)
    if schedule.end_us is not None:
        until_us = min(until_us, schedule.end_us)
    match schedule.kind:
        case "at":
            return [schedule.at_us] if after_us < schedule.at_us <= until_us else []
        case "every":
            return list(_intervals(schedule, after_us, until_us))
        case "cron":
            return list(_remembered(schedule, after_us, until_us))


@lru_cache(maxsize=1_000)
def _remembered(schedule: Schedule, after_us: int, until_us: int) -> tuple[int, ...]:
    return tuple(_seconds(schedule, after_us, until_us))


def _intervals(schedule: Schedule, after_us: int, until_us: int) -> Iterator[int]:
    due_us = schedule.anchor_us
    while due_us <= until_us:
        if due_us > after_us:
            yield due_us
        due_us += schedule.every_us


def _seconds(schedule: Schedule, after_us: int, until_us: int) -> Iterator[int]:
    fields = [_numbers(*field) for field in zip(schedule.cron.split(), RANGES, strict=True)]
    zone = ZoneInfo(schedule.timezone)
    second = after_us // SECOND_US
    before = _wall(second, zone)
    while (second := second + 1) * SECOND_US <= until_us:
        wall = _wall(second, zone)
        is_due = _matches(fields, wall) and (not wall.fold or _runs_on(schedule, _repeated(wall)))
        if is_due or _matches_gap(schedule, fields, before, wall):
            yield second * SECOND_US
        before = wall


def _wall(second: int, zone: ZoneInfo) -> datetime:
    return (EPOCH + timedelta(seconds=second)).astimezone(zone)


def _matches_gap(
    schedule: Schedule, fields: list[frozenset[int]], before: datetime, wall: datetime
) -> bool:
    """Whether a time that the wall clock has just jumped over is made up for."""
    skipped = before.replace(tzinfo=None) + SECOND
    end = wall.replace(tzinfo=None)
    if skipped >= end or _runs_on(schedule, (skipped, end)):
        return False
    return any(_matches(fields, moment) for moment in _each_second(skipped, end))


def _repeated(wall: datetime) -> tuple[datetime, datetime]:
    """The times that the clock shows twice, around one of them."""
    start = end = wall.replace(tzinfo=None, fold=0)
    while _is_repeated(start - SECOND, wall.tzinfo):
        start -= SECOND
    while _is_repeated(end, wall.tzinfo):
        end += SECOND
    return start, end


def _is_repeated(moment: datetime, zone: tzinfo | None) -> bool:
    first, second = (moment.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    assert first is not None
    assert second is not None
    return first > second


@lru_cache(maxsize=1_000)
def _runs_on(schedule: Schedule, change: tuple[datetime, datetime]) -> bool:
    """Whether a schedule goes on through a change of clocks as if there were none.

    It does if it has three times in a row, none more than an hour after the one before, of which
    the last time that is skipped or repeated is the first or the second.
    """
    fields = [_numbers(*field) for field in zip(schedule.cron.split(), RANGES, strict=True)]
    start, end = change
    seconds = _each_second(start - HOUR, end + 2 * HOUR)
    times = [moment for moment in seconds if _matches(fields, moment)]
    for first, second, third in zip(times, times[1:], times[2:], strict=False):
        if second - first <= HOUR and third - second <= HOUR:
            last = second if second < end else first
            following = third if second < end else second
            if start <= last < end <= following:
                return True
    return False


def _each_second(start: datetime, end: datetime) -> Iterator[datetime]:
    while start < end:
        yield start
        start += SECOND


def _matches(fields: list[frozenset[int]], wall: datetime) -> bool:
    second, minute, hour, day, month, weekday = fields
    return (
        wall.second in second
        and wall.minute in minute
        and wall.hour in hour
        and wall.day in day
        and wall.month in month
        and wall.isoweekday() % 7 in weekday
    )


def _numbers(text: str, bounds: tuple[int, int]) -> frozenset[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        stretch, _, step = part.partition("/")
        first, _, last = stretch.partition("-")
        low = bounds[0] if stretch == "*" else int(first)
        high = bounds[1] if stretch == "*" else int(last or first)
        numbers.update(range(low, high + 1, int(step or 1)))
    return frozenset(number % 7 for number in numbers) if bounds == (0, 7) else frozenset(numbers)
