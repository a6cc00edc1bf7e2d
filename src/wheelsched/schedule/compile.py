"""Compiles a spec into its due times.

Invariant: equal specs give equal due times. Two jobs with equal specs differ only in `H`, in the
anchor of an `every` without a start, and in jitter. Calendars and recurrences are shared through
bounded caches, so compiling at each arming costs little more than a lookup.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import assert_never
from uuid import UUID

from wheelsched.schedule import at
from wheelsched.schedule.bounds import Bounded, excluded_by
from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.cron.terms import Choose
from wheelsched.schedule.dst import timeline, wall_of
from wheelsched.schedule.every import Every, interval_us
from wheelsched.schedule.jitter import Jittered
from wheelsched.schedule.rrule import bounds as rrule_bounds
from wheelsched.schedule.rrule import calendar as rrule_calendar
from wheelsched.schedule.rrule import rule as rrule
from wheelsched.schedule.spec import DstGap, DstOverlap, Recurrence, Schedule, Spec
from wheelsched.schedule.wallclock import WallClock


def compile_schedule(spec: Spec, job_id: UUID, anchor_us: int) -> Schedule:
    """The due times of one job. An `every` without a start counts from `anchor_us`."""
    key = job_id.bytes
    recurrence = compile_recurrence(spec, cron.hashed_by(key), anchor_us)
    return Jittered(recurrence, key, spec.jitter_us)


def compile_recurrence(spec: Spec, choose: Choose, anchor_us: int) -> Recurrence:
    """The due times of a spec, where `choose` picks the value of each `H`."""
    recurrence = _unbounded(spec, choose, anchor_us)
    excluded = excluded_by(spec)
    return Bounded(recurrence, excluded) if excluded else recurrence


def next_wall_of(spec: Spec, choose: Choose) -> Callable[[int], int | None]:
    """The `next_wall` function of a spec: its wall-clock times, before any zone is applied."""
    match spec.kind:
        case "cron":
            chosen = cron.choices(cron.template(spec.expression), choose)
            return cron.calendar(spec.expression, chosen).next_wall
        case "rrule":
            return _next_wall_of_rule(rrule.read(spec.expression), spec.timezone)
        case "at":
            moment = at.read_moment(spec.expression)
            return at.At([wall_of(moment)] if moment.tzinfo is None else []).next_after
        case "every":
            return at.At([]).next_after
        case _:
            assert_never(spec.kind)


def _unbounded(spec: Spec, choose: Choose, anchor_us: int) -> Recurrence:
    match spec.kind:
        case "cron":
            gap, overlap = spec.dst_gap, spec.dst_overlap
            shared = _shared_cron(spec.expression, spec.timezone, gap, overlap)
            return shared or _cron(spec.expression, choose, spec.timezone, gap, overlap)
        case "rrule":
            return _rrule(spec.expression, spec.timezone, spec.dst_gap, spec.dst_overlap)
        case "at":
            return _at(spec.expression, spec.timezone, spec.dst_gap, spec.dst_overlap)
        case "every":
            start_us = anchor_us if spec.start_us is None else spec.start_us
            return Every(interval_us(spec.expression), start_us)
        case _:
            assert_never(spec.kind)


@lru_cache(maxsize=16_384)
def _shared_cron(text: str, timezone: str, gap: DstGap, overlap: DstOverlap) -> Recurrence | None:
    """The recurrence that all jobs with this expression share; None if it has an `H`."""
    if cron.is_hashed(cron.template(text)):
        return None
    return _cron(text, cron.worst_case, timezone, gap, overlap)


def _cron(text: str, choose: Choose, timezone: str, gap: DstGap, overlap: DstOverlap) -> Recurrence:
    return _wall_clock(text, cron.choices(cron.template(text), choose), timezone, gap, overlap)


# As many as calendars, because most expressions are used in one zone only.
@lru_cache(maxsize=16_384)
def _wall_clock(
    text: str, chosen: tuple[int, ...], timezone: str, gap: DstGap, overlap: DstOverlap
) -> Recurrence:
    return WallClock(cron.calendar(text, chosen), timeline(timezone, gap, overlap))


# An entry is only a text and a reference. Rules with the same pattern share the rest.
@lru_cache(maxsize=16_384)
def _rrule(text: str, timezone: str, gap: DstGap, overlap: DstOverlap) -> Recurrence:
    rule = rrule.read(text)
    return rrule_bounds.clock(rrule_calendar.pattern_of(rule, timezone), timezone, gap, overlap)


def _next_wall_of_rule(rule: rrule.Rule, timezone: str) -> Callable[[int], int | None]:
    """The `next_wall` function of a rule, without the local times that EXDATE names."""
    calendar = rrule_calendar.calendar(rrule_calendar.pattern_of(rule, timezone))
    excluded = {wall_of(stamp.moment) for stamp in rule.excluded if not stamp.is_utc}

    def next_wall(after_s: int) -> int | None:
        wall_s = calendar.next_wall(after_s)
        while wall_s is not None and wall_s in excluded:
            wall_s = calendar.next_wall(wall_s)
        return wall_s

    return next_wall


@lru_cache(maxsize=4096)
def _at(text: str, timezone: str, gap: DstGap, overlap: DstOverlap) -> Recurrence:
    instants_us = at.instants_us(at.read_moment(text), timeline(timezone, gap, overlap))
    return at.At([at.round_up(instant_us) for instant_us in instants_us])
