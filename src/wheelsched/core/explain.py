"""Explain a schedule: its words, its next times, and what coming clock changes do to it.

Invariant: there is one warning for each change of the next thirteen months in which a time of
the schedule is skipped or repeated, and none for any other.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import Struct

from wheelsched.core import cron
from wheelsched.core.bounds import is_excluded
from wheelsched.core.compile import compile_schedule, is_elapsed, next_wall_of
from wheelsched.core.dst import ELAPSED, local_of, timeline
from wheelsched.core.duration import SECOND
from wheelsched.core.spec import Spec
from wheelsched.core.words import words

_THIRTEEN_MONTHS_S: Final = 397 * 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DueTime(Struct, frozen=True, kw_only=True):
    """One due time, as machines and as people of its zone read it."""

    utc: datetime
    local: datetime


class Explanation(Struct, frozen=True, kw_only=True):
    """What a schedule means."""

    words: str
    next_times: tuple[DueTime, ...]
    warnings: tuple[str, ...]


class _Change(NamedTuple):
    """A change of clocks: [from_s, until_s) of the wall clock never was, or was twice."""

    instant_s: int
    from_s: int
    until_s: int
    is_gap: bool


def explain(
    spec: Spec, job_id: UUID, *, now_us: int, anchor_us: int | None = None, count: int = 5
) -> Explanation:
    """The words of a schedule, its next `count` due times, and a warning for each clock change."""
    choose = cron.hashed_by(job_id.bytes)
    next_wall = next_wall_of(spec, choose)
    anchor_us = now_us if anchor_us is None else anchor_us
    return Explanation(
        words=words(spec, choose),
        next_times=tuple(_next_times(spec, job_id, anchor_us, now_us, count)),
        warnings=tuple(
            _warning(spec, change, wall_s)
            for change in _changes(spec.timezone, now_us // SECOND)
            if (wall_s := next_wall(change.from_s - 1)) is not None
            and wall_s < change.until_s
            and not is_excluded(spec, change.instant_s * SECOND)
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
    rows = timeline(timezone, *ELAPSED)
    before = rows.at(now_s)
    while before.end_s < now_s + _THIRTEEN_MONTHS_S:
        after = rows.at(before.end_s)
        walls = after.start_s + before.offset_s, after.start_s + after.offset_s
        if walls[0] != walls[1]:
            yield _Change(after.start_s, min(walls), max(walls), is_gap=walls[0] < walls[1])
        before = after


def _warning(spec: Spec, change: _Change, wall_s: int) -> str:
    start, end, first = (local_of(s) for s in (change.from_s, change.until_s, wall_s))
    if change.is_gap:
        happens = f"{start:%Y-%m-%d}: clocks go forward from {start:%H:%M} to {end:%H:%M}"
        return f"{happens}, so that {first:%H:%M} does not occur; {_in_gap(spec, end)}"
    happens = f"{end:%Y-%m-%d}: clocks go back from {end:%H:%M} to {start:%H:%M}"
    return f"{happens}, so that {first:%H:%M} occurs twice; {_in_overlap(spec)}"


def _in_gap(spec: Spec, end: datetime) -> str:
    if is_elapsed(spec):
        return "it repeats by elapsed time and has no run for the gap"
    if spec.dst_gap == "skip":
        return "there is no run for it"
    return f"there is one run at {end:%H:%M} instead"


def _in_overlap(spec: Spec) -> str:
    if is_elapsed(spec):
        return "it repeats by elapsed time and runs in both"
    return {
        "first": "it runs the first time only",
        "last": "it runs the second time only",
        "both": "it runs both times",
    }[spec.dst_overlap]
