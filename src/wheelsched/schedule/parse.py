"""Parses a schedule from user input into a `Spec`, or reports every problem in it.

Invariant: accepting or refusing any input takes a few milliseconds at most. Every error points at
the invalid field and says what would be valid.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final, TypeVar, cast, get_args
from uuid import UUID
from zoneinfo import available_timezones

from msgspec.structs import replace

from wheelsched.errors import (
    EndBeforeStart,
    InvalidDst,
    InvalidDuration,
    InvalidExclusion,
    InvalidField,
    InvalidInstant,
    ScheduleMissing,
    ScheduleTooLong,
    UnknownField,
    UnknownTimezone,
    quoted,
)
from wheelsched.schedule import at, bounds, every
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.dst import instant_us, timeline
from wheelsched.schedule.relative import absolute
from wheelsched.schedule.rrule import bounds as rrule_bounds
from wheelsched.schedule.rrule import lines as rrule_lines
from wheelsched.schedule.satisfiable import check_due, check_jitter, never_due, search_from
from wheelsched.schedule.spec import END_US, DstGap, DstOverlap, Kind, Spec
from wheelsched.schedule.spelling import check_spelling
from wheelsched.values.duration import MILLISECOND, MINUTE, SECOND, parse_duration
from wheelsched.values.fields import display_value, escape_pointer, unknown_fields
from wheelsched.values.problem_list import ProblemList

MAX_EXPRESSION: Final = 255
Read = TypeVar("Read")

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_OPTIONS: Final = ("start", "end", "exclude")
_UNBOUNDED: Final = (None, None, ())
_DST_GAPS: Final = get_args(DstGap)
_DST_OVERLAPS: Final = get_args(DstOverlap)
# These are files among the zones whose meaning depends on how the host was set up.
_HOST_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})


def parse(
    schedule: object,
    *,
    timezone: object = "UTC",
    dst_gap: object = "shift",
    dst_overlap: object = "first",
    jitter: object = "0s",
    now_us: int,
    grace_us: int = MINUTE,
) -> Spec:
    """Parse a schedule: a string, or an object with exactly one kind.

    A schedule without `H` that is accepted here is due at least once. With `H`, the job's id
    decides the times, and so whether any of them lies within start, end and excluded dates. The
    second step of a registration, `first_due_us`, knows the id and refuses a schedule that is
    never due.
    """
    problems = ProblemList()
    note = problems.note
    zone = note(_read_timezone, timezone)
    gap = note(_read_dst, "gap", dst_gap, _DST_GAPS)
    overlap = note(_read_dst, "overlap", dst_overlap, _DST_OVERLAPS)
    jitter_us = note(_read_jitter, jitter)
    timed = note(_read_schedule, schedule, zone or "UTC", now_us)
    if timed is not None:
        # An invalid field gets its default, so that checks across fields still run.
        spec = replace(
            timed,
            dst_gap=cast("DstGap", gap or "shift"),
            dst_overlap=cast("DstOverlap", overlap or "first"),
            jitter_us=jitter_us or 0,
        )
        if zone is not None:  # the zone decides which times have passed
            pointer = _pointer_of(schedule, spec.kind)
            note(_pointed, pointer, partial(check_due, spec, now_us=now_us, grace_us=grace_us))
        note(check_jitter, spec)
    problems.raise_single_or_all()
    return spec


def first_due_us(spec: Spec, job_id: UUID, *, now_us: int, grace_us: int = MINUTE) -> int:
    """The first due time of a job registered now. A one-off may be late by its grace.

    Raises `ScheduleNeverFires` if the values that the job's id gives to `H` are never due.
    """
    schedule = compile_schedule(spec, job_id, now_us)
    due_us = schedule.next_after(search_from(spec, now_us, grace_us))
    if due_us is None:
        choose = cron.hashed_by(job_id.bytes)
        with _PointingAt("/schedule"):
            raise never_due(spec, schedule, choose, now_us=now_us, grace_us=grace_us)
    return due_us


def one_off_like(text: str, like: Spec, *, now_us: int) -> tuple[Spec, int] | None:
    """The spec and the due time of a one-off that differs from another only in its time.

    A shortcut for `parse` and `first_due_us` that takes a third of the time. Returns None for a
    time that is past, local or invalid: those need the full check.
    """
    bounds_of_like = like.start_us, like.end_us, like.exclude
    if like.kind != "at" or like.jitter_us or bounds_of_like != _UNBOUNDED:
        return None
    try:
        moment = at.read_moment(text)
    except InvalidInstant:
        return None
    if moment.tzinfo is None:
        return None
    due_us = at.round_up(instant_us(moment))
    if not now_us < due_us < END_US:
        return None
    return replace(like, expression=at.normalise(text)), due_us


class _PointingAt:
    """Adds the pointer of a field to errors that have none.

    A class rather than a generator: a bulk request enters it for every job, and a class takes a
    third of the time.
    """

    __slots__ = ("_pointer",)

    def __init__(self, pointer: str) -> None:
        self._pointer = pointer

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, InvalidField):
            error.pointer = error.pointer or self._pointer


def _read_schedule(schedule: object, timezone: str, now_us: int) -> Spec:
    """Parse the schedule itself, without the DST rules and the jitter."""
    problems = ProblemList(_unknown_keys(schedule))
    try:
        kind, fields = _read_kind(absolute(schedule, now_us))
    except InvalidField as error:
        ProblemList([*problems.found, error]).raise_single_or_all()
        raise
    start_us = problems.note(_read_bound, fields, "start", timezone)
    end_us = problems.note(_read_bound, fields, "end", timezone)
    problems.note(_check_order, fields, start_us, end_us)
    exclude = problems.note(_read_exclusions, fields.get("exclude"))
    expression = problems.note(
        _pointed,
        _pointer_of(schedule, kind),
        _read_expression,
        kind,
        fields[kind],
        timezone,
        start_us,
        now_us,
    )
    problems.raise_single_or_all()
    return Spec(
        kind=kind,
        expression=expression,
        timezone=timezone,
        start_us=start_us,
        end_us=end_us,
        exclude=exclude,
    )


def _pointer_of(schedule: object, kind: Kind) -> str:
    return "/schedule" if isinstance(schedule, str) else f"/schedule/{kind}"


def _pointed(pointer: str, read: Callable[..., Read], *arguments: object) -> Read:
    with _PointingAt(pointer):
        return read(*arguments)


def _unknown_keys(schedule: object) -> list[UnknownField]:
    if not isinstance(schedule, dict):
        return []
    keys = map(str, schedule)
    return unknown_fields(
        keys, (*_KINDS, *_OPTIONS), lambda key: f"/schedule/{escape_pointer(key)}"
    )


def _read_kind(schedule: object) -> tuple[Kind, Mapping[str, object]]:
    """The kind of a schedule, and its fields."""
    if isinstance(schedule, str):
        kind = _kind_of(schedule)
        text = schedule.strip()
        return kind, {kind: text[len("every") :] if kind == "every" else text}
    if not isinstance(schedule, dict):
        raise ScheduleMissing(
            "a schedule must be a string, or an object with one of cron, at, every, rrule",
            pointer="/schedule",
        )
    kinds = [kind for kind in _KINDS if schedule.get(kind) is not None]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of them"
        raise ScheduleMissing(
            f"a schedule must have exactly one of {', '.join(_KINDS)}; this one has {found}",
            pointer="/schedule",
        )
    return kinds[0], schedule


def _kind_of(text: str) -> Kind:
    lowered = text.strip().lower()
    if lowered.startswith("every"):
        return "every"
    if rrule_lines.is_recurrence(lowered):
        return "rrule"
    return "at" if at.is_moment(lowered) else "cron"


def _read_expression(
    kind: Kind, value: object, timezone: str, start_us: int | None, now_us: int
) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ScheduleMissing("a schedule must be text, e.g. '0 9 * * 1-5' or 'every 5m'")
    if len(value) > MAX_EXPRESSION:
        raise ScheduleTooLong(
            f"the expression has {len(value)} characters; at most {MAX_EXPRESSION} are allowed"
        )
    match kind:
        case "cron":
            check_spelling(value)
            return cron.normalise(value)
        case "at":
            _in_range(at.round_up(_instant_us(value, timezone, "first")), value)
            return at.normalise(value)
        case "every":
            return every.normalise(value)
        case "rrule":
            # A whole second in the future, because COUNT counts it.
            first_us = now_us + 1 if start_us is None else start_us
            first = rrule_bounds.stamp_at(-(-first_us // SECOND), timezone)
            return rrule_lines.normalise(
                value, first=first, is_started=start_us is not None, timezone=timezone
            )


def _read_bound(fields: Mapping[str, object], key: str, timezone: str) -> int | None:
    """A start or an end. A date means its first or its last moment."""
    if fields.get(key) is None:
        return None
    text = fields[key]
    with _PointingAt(f"/schedule/{key}"):
        if not isinstance(text, str):
            raise InvalidInstant
        if key == "end" and at.is_endless(text):
            return None
        if at.is_date(text):
            from_us, until_us = bounds.interval_of_dates(text, timezone)
            return from_us if key == "start" else until_us - MILLISECOND
        if key == "end":
            return _in_range(_instant_us(text, timezone, "last"), text)
        return _in_range(at.round_up(_instant_us(text, timezone, "first")), text)


def _instant_us(text: str, timezone: str, overlap: DstOverlap) -> int:
    """The instant of a time, with or without an offset."""
    rules = timeline(timezone, "shift", overlap)
    return at.instants_us(at.read_moment(text), rules)[0]


def _in_range(instant_us: int, text: str) -> int:
    """Return the instant if it is in range. Checking the year of the text is not enough."""
    if not 0 <= instant_us < END_US:
        raise InvalidInstant(
            f"{quoted(text)} is out of range; expected 1970-01-01T00:00:00Z to 2199-12-31T23:59:59Z"
        )
    return instant_us


def _check_order(fields: Mapping[str, object], start_us: int | None, end_us: int | None) -> None:
    if start_us is not None and end_us is not None and end_us < start_us:
        raise EndBeforeStart(
            f"the end, {fields['end']}, is before the start, {fields['start']}",
            pointer="/schedule/end",
        )


def _read_exclusions(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > bounds.MAX_EXCLUSIONS:
        raise InvalidExclusion(
            f"exclude must be a list of at most {bounds.MAX_EXCLUSIONS} dates or ranges of dates",
            pointer="/schedule/exclude",
        )
    problems = ProblemList()
    exclusions = tuple(
        problems.note(_pointed, f"/schedule/exclude/{index}", _read_exclusion, text)
        for index, text in enumerate(value)
    )
    problems.raise_single_or_all()
    return exclusions


def _read_exclusion(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidExclusion
    return bounds.normalise_exclusion(value)


def _read_timezone(value: object) -> str:
    if not isinstance(value, str) or value not in _timezones():
        raise UnknownTimezone(
            f"{display_value(value)} is not a valid time zone; use an IANA name, "
            "e.g. Europe/London",
            pointer="/timezone",
        )
    return value


@cache
def _timezones() -> frozenset[str]:
    """The zone names that mean the same on every host. Reading them takes 0.1 s, once."""
    return frozenset(available_timezones()) - _HOST_ZONES


def _read_dst(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidDst(
            f"{display_value(value)} is not valid; must be one of: {', '.join(allowed)}",
            pointer=f"/dst/{name}",
        )
    return value


def _read_jitter(value: object) -> int:
    if not isinstance(value, str):
        raise InvalidDuration(
            f"{display_value(value)} is not a valid duration; write text, e.g. '90s'",
            pointer="/jitter",
        )
    return parse_duration(value, pointer="/jitter")
