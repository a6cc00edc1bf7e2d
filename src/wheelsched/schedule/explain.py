"""Explains a schedule: its description, its next due times and its warnings.

Invariant: each clock change of the next thirteen months that skips or repeats a time of the
schedule has one warning, and no other change has one. The warnings are derived from the due times.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from wheelsched.schedule.bounds import is_excluded
from wheelsched.schedule.compile import (
    compile_recurrence,
    compile_schedule,
    next_wall_of,
)
from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.cron.terms import Choose
from wheelsched.schedule.describe.schedule import words
from wheelsched.schedule.dialects import dialect_warnings
from wheelsched.schedule.dst import AS_SHOWN, local_of, timeline
from wheelsched.schedule.spec import Recurrence, Spec
from wheelsched.values.duration import SECOND

_THIRTEEN_MONTHS_S: Final = 397 * 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


NextWall = Callable[[int], int | None]
"""The next match of the wall clock after a second, like `Calendar.next_wall`."""


class DueTime(Struct, frozen=True, kw_only=True):
    """One due time, in UTC and in the local time of its zone."""

    utc: datetime
    local: datetime


class Explanation(Struct, frozen=True, kw_only=True):
    """The description of a schedule, its next due times and its warnings."""

    words: str
    next_times: tuple[DueTime, ...]
    warnings: tuple[str, ...]


class _Change(NamedTuple):
    """A clock change: the wall clock skips or repeats [from_s, until_s)."""

    instant_s: int
    from_s: int
    until_s: int
    is_gap: bool


def explain(
    spec: Spec, job_id: UUID, *, now_us: int, anchor_us: int | None = None, count: int = 5
) -> Explanation:
    """Describe a schedule, with its next `count` due times and its warnings."""
    choose = cron.hashed_by(job_id.bytes)
    anchor_us = now_us if anchor_us is None else anchor_us
    return Explanation(
        words=words(spec, choose),
        next_times=tuple(_next_times(spec, job_id, anchor_us, now_us, count)),
        warnings=(
            *dialect_warnings(spec),
            *_hash_warnings(spec),
            *_change_warnings(spec, choose, now_us),
        ),
    )


def _next_times(
    spec: Spec, job_id: UUID, anchor_us: int, now_us: int, count: int
) -> Iterator[DueTime]:
    schedule = compile_schedule(spec, job_id, anchor_us)
    due_us = schedule.next_after(now_us)
    for _ in range(count):
        if due_us is None:
            return
        instant = _EPOCH + timedelta(microseconds=due_us)
        yield DueTime(utc=instant, local=instant.astimezone(ZoneInfo(spec.timezone)))
        due_us = schedule.next_after(due_us)


def _changes(timezone: str, now_s: int) -> Iterator[_Change]:
    rows = timeline(timezone, *AS_SHOWN)
    before = rows.at(now_s)
    while before.end_s < now_s + _THIRTEEN_MONTHS_S:
        after = rows.at(before.end_s)
        walls = after.start_s + before.offset_s, after.start_s + after.offset_s
        if walls[0] != walls[1]:
            yield _Change(after.start_s, min(walls), max(walls), is_gap=walls[0] < walls[1])
        before = after


def _hash_warnings(spec: Spec) -> Iterator[str]:
    if spec.kind == "cron" and cron.is_hashed(cron.template(spec.expression)):
        yield "the value of H depends on the job's id, so another job runs at other times"


def _change_warnings(spec: Spec, choose: Choose, now_us: int) -> Iterator[str]:
    next_wall = next_wall_of(spec, choose)
    due = compile_recurrence(spec, choose, 0)
    for change in _changes(spec.timezone, now_us // SECOND):
        wall_s = next_wall(change.from_s - 1)
        if wall_s is None or wall_s >= change.until_s:
            continue
        if change.is_gap:
            if not is_excluded(spec, change.instant_s * SECOND):
                yield _gap_warning(spec, next_wall, due, change)
        elif (warning := _overlap_warning(spec, choose, due, change)) is not None:
            yield warning


def _gap_warning(spec: Spec, next_wall: NextWall, due: Recurrence, change: _Change) -> str:
    start, end = local_of(change.from_s), local_of(change.until_s)
    wall_s = next_wall(change.from_s - 1)
    assert wall_s is not None
    affected = _affected(next_wall, wall_s, change, "does not occur", "do not occur")
    next_us = due.next_after(change.instant_s * SECOND - 1)
    is_at_end = next_us == change.instant_s * SECOND
    if next_us is None:
        becomes = "there is no run for it"
    elif is_at_end and next_wall(change.until_s - 1) != change.until_s:
        becomes = f"it runs once at {_clock(end, start)} instead"
    else:
        following = (_EPOCH + timedelta(microseconds=next_us)).astimezone(ZoneInfo(spec.timezone))
        becomes = f"the next run is at {_clock(following, start)}"
    return (
        f"{start:%Y-%m-%d}: clocks go forward from {start:%H:%M} to {_clock(end, start)}, "
        f"so {affected}; {becomes}"
    )


def _overlap_warning(spec: Spec, choose: Choose, due: Recurrence, change: _Change) -> str | None:
    wall_s = _first_repeated(spec, choose, change)
    if wall_s is None:
        return None
    # At the change the clock jumps from the end of the overlap back to its start.
    first_us = (change.instant_s + wall_s - change.until_s) * SECOND
    second_us = (change.instant_s + wall_s - change.from_s) * SECOND
    becomes = {
        (True, True): "it runs both times",
        (True, False): "it runs the first time only",
        (False, True): "it runs the second time only",
        (False, False): "there is no run for it",
    }[_is_due(due, first_us), _is_due(due, second_us)]
    start, end = local_of(change.from_s), local_of(change.until_s)
    next_wall = next_wall_of(spec, choose)
    affected = _affected(next_wall, wall_s, change, "occurs twice", "occur twice")
    return (
        f"{end:%Y-%m-%d}: clocks go back from {end:%H:%M} to {_clock(start, end)}, "
        f"so {affected}; {becomes}"
    )


def _affected(next_wall: NextWall, wall_s: int, change: _Change, one: str, several: str) -> str:
    """A clause such as `02:30 does not occur`, for the times that a change skips or repeats."""
    day = local_of(change.from_s if change.is_gap else change.until_s)
    from_text = _clock(local_of(wall_s), day)
    next_s = next_wall(wall_s)
    if next_s is None or next_s >= change.until_s:
        return f"{from_text} {one}"
    return f"its times from {from_text} until {_clock(local_of(change.until_s), day)} {several}"


def _first_repeated(spec: Spec, choose: Choose, change: _Change) -> int | None:
    """The first wall-clock time in an overlap that has a copy within the bounds."""
    width_s = change.until_s - change.from_s
    anywhere = compile_recurrence(replace(spec, dst_overlap="both"), choose, 0)
    due_us = anywhere.next_after((change.instant_s - width_s) * SECOND - 1)
    if due_us is None or due_us >= (change.instant_s + width_s) * SECOND:
        return None
    since_s = due_us // SECOND - change.instant_s
    return change.until_s + since_s if since_s < 0 else change.from_s + since_s


def _is_due(recurrence: Recurrence, instant_us: int) -> bool:
    return recurrence.next_after(instant_us - 1) == instant_us


def _clock(moment: datetime, day: datetime) -> str:
    """A time of day, with its date if it is not on `day`."""
    time = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
    return time if moment.date() == day.date() else f"{time} on {moment:%Y-%m-%d}"
