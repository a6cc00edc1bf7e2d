"""From a spec to due times: the parts of each kind, put together.

Invariant: equal specs give equal due times; of two jobs they differ only by `H`, by the anchor
of an `every` without start, and by jitter. Calendars and recurrences are shared and bounded in
number, so that compiling at each arming costs little more than a look-up.
"""

from functools import lru_cache
from typing import assert_never
from uuid import UUID

from wheelsched.core import at, cron, rrule, rrule_calendar
from wheelsched.core.bounds import Bounded, excluded_by
from wheelsched.core.dst import timeline
from wheelsched.core.duration import parse_duration
from wheelsched.core.every import Every
from wheelsched.core.jitter import Jittered
from wheelsched.core.spec import DstGap, DstOverlap, Recurrence, Schedule, Spec
from wheelsched.core.wallclock import WallClock


def compile_schedule(spec: Spec, job_id: UUID, anchor_us: int) -> Schedule:
    """The due times of one job; an `every` without start counts from `anchor_us`."""
    recurrence = compile_recurrence(spec, cron.hashed_by(job_id.bytes), anchor_us)
    return Jittered(recurrence, job_id.bytes, spec.jitter_us)


def compile_recurrence(spec: Spec, choose: cron.Choose, anchor_us: int) -> Recurrence:
    """The due times of a spec whose every `H` is filled by `choose`."""
    recurrence = _unbounded(spec, choose, anchor_us)
    excluded = excluded_by(spec)
    return Bounded(recurrence, excluded) if excluded else recurrence


def is_elapsed(spec: Spec) -> bool:
    """Whether it repeats by elapsed time, untouched by the rules for gaps and overlaps."""
    match spec.kind:
        case "cron":
            return cron.is_elapsed(spec.expression)
        case "rrule":
            return rrule.is_elapsed(rrule.read(spec.expression))
        case "every":
            return True
        case "at":
            return False
        case _:
            assert_never(spec.kind)


def _unbounded(spec: Spec, choose: cron.Choose, anchor_us: int) -> Recurrence:
    match spec.kind:
        case "cron":
            expression = cron.fill(cron.template(spec.expression), choose)
            gap, overlap = _dst_rules(spec.expression, spec.dst_gap, spec.dst_overlap)
            return _cron(expression, spec.timezone, gap, overlap)
        case "rrule":
            return _rrule(spec.expression, spec.timezone, spec.dst_gap, spec.dst_overlap)
        case "at":
            return _at(spec.expression, spec.timezone, spec.dst_gap, spec.dst_overlap)
        case "every":
            start_us = anchor_us if spec.start_us is None else spec.start_us
            return Every(parse_duration(spec.expression), start_us)
        case _:
            assert_never(spec.kind)


# As many as there are calendars: each expression is mostly used in one zone.
@lru_cache(maxsize=16_384)
def _cron(expression: str, timezone: str, gap: DstGap, overlap: DstOverlap) -> Recurrence:
    return WallClock(cron.calendar(expression), timeline(timezone, gap, overlap))


@lru_cache(maxsize=16_384)
def _dst_rules(text: str, gap: DstGap, overlap: DstOverlap) -> tuple[DstGap, DstOverlap]:
    return ("skip", "both") if cron.is_elapsed(text) else (gap, overlap)


@lru_cache(maxsize=1024)
def _rrule(text: str, timezone: str, gap: DstGap, overlap: DstOverlap) -> Recurrence:
    rule = rrule.read(text)
    if rrule.is_elapsed(rule):
        gap, overlap = "skip", "both"
    return WallClock(rrule_calendar.calendar(rule, timezone), timeline(timezone, gap, overlap))


@lru_cache(maxsize=4096)
def _at(text: str, timezone: str, gap: DstGap, overlap: DstOverlap) -> Recurrence:
    return at.At(at.instants_us(at.read_moment(text), timeline(timezone, gap, overlap)))
