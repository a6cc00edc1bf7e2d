"""Registration: what a user wrote becomes a `Spec`, or an error that says where and why not.

Invariant: no input takes more than some milliseconds to accept or refuse, and every refusal
points at the field that is wrong and says what would be right.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final, TypeVar, cast, get_args
from uuid import UUID
from zoneinfo import available_timezones

from msgspec.structs import replace

from wheelsched.core import at, bounds, cron, every, rrule_bounds, rrule_lines
from wheelsched.core.acceptance import check_due, check_jitter, never_due, search_from
from wheelsched.core.compile import compile_schedule
from wheelsched.core.dst import instant_us, timeline
from wheelsched.core.duration import MILLISECOND, MINUTE, SECOND, parse_duration
from wheelsched.core.fields import escaped, shown, unknown_fields
from wheelsched.core.problem_list import ProblemList
from wheelsched.core.relative import absolute
from wheelsched.core.spec import END_US, DstGap, DstOverlap, Kind, Spec
from wheelsched.core.spelling import check_spelling
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

MAX_EXPRESSION: Final = 255
Read = TypeVar("Read")

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_OPTIONS: Final = ("start", "end", "exclude")
_UNBOUNDED: Final = (None, None, ())
_DST_GAPS: Final = get_args(DstGap)
_DST_OVERLAPS: Final = get_args(DstOverlap)
# Files beside the zones that mean whatever a host was set up with.
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
    """The spec of a schedule as a user wrote it: a string, or an object with one kind.

    What it accepts without an `H` is due at least once. With one, the job's id decides which
    times it stands for, and whether any of them lies within start, end and excluded dates: the
    second step of a registration, `first_due_us`, knows the id and refuses what has none.
    """
    problems = ProblemList()
    note = problems.note
    zone = note(_read_timezone, timezone)
    gap = note(_read_dst, "gap", dst_gap, _DST_GAPS)
    overlap = note(_read_dst, "overlap", dst_overlap, _DST_OVERLAPS)
    jitter_us = note(_read_jitter, jitter)
    timed = note(_read_schedule, schedule, zone or "UTC", now_us)
    if timed is not None:
        # What failed is left to its default, so that what depends on other fields is checked too.
        spec = replace(
            timed,
            dst_gap=cast("DstGap", gap or "shift"),
            dst_overlap=cast("DstOverlap", overlap or "first"),
            jitter_us=jitter_us or 0,
        )
        if zone is not None:  # it decides what has passed
            pointer = _pointer_of(schedule, spec.kind)
            note(_pointed, pointer, partial(check_due, spec, now_us=now_us, grace_us=grace_us))
        note(check_jitter, spec)
    problems.raise_as_found()
    return spec


def first_due_us(spec: Spec, job_id: UUID, *, now_us: int, grace_us: int = MINUTE) -> int:
    """When a job registered now is due first; a one-off may be as late as its grace.

    `ScheduleNeverFires` where the times that the job's id chose for an `H` leave nothing.
    """
    schedule = compile_schedule(spec, job_id, now_us)
    due_us = schedule.next_after(search_from(spec, now_us, grace_us))
    if due_us is None:
        choose = cron.hashed_by(job_id.bytes)
        with _PointingAt("/schedule"):
            raise never_due(spec, schedule, choose, now_us=now_us, grace_us=grace_us)
    return due_us


def one_off_like(text: str, like: Spec, *, now_us: int) -> tuple[Spec, int] | None:
    """A one-off that differs from another by its time alone, and when it is due.

    What `parse` and `first_due_us` give, in a third of the time; None where only they can tell, as
    of a time that is past, or local, or none at all.
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
    """Give the errors of a kind, which knows no documents, the place of the field they are of.

    A class and no generator: it is entered for every job of a bulk, and this costs a third.
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
    """The schedule itself; the rules for clock changes and the jitter are left to be set."""
    problems = ProblemList(_unknown_keys(schedule))
    try:
        kind, written = _read_kind(absolute(schedule, now_us))
    except InvalidField as error:
        ProblemList([*problems.found, error]).raise_as_found()
        raise
    start_us = problems.note(_read_bound, written, "start", timezone)
    end_us = problems.note(_read_bound, written, "end", timezone)
    problems.note(_check_order, written, start_us, end_us)
    exclude = problems.note(_read_exclusions, written.get("exclude"))
    expression = problems.note(
        _pointed,
        _pointer_of(schedule, kind),
        _read_expression,
        kind,
        written[kind],
        timezone,
        start_us,
        now_us,
    )
    problems.raise_as_found()
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
    return unknown_fields(keys, (*_KINDS, *_OPTIONS), lambda key: f"/schedule/{escaped(key)}")


def _read_kind(schedule: object) -> tuple[Kind, Mapping[str, object]]:
    """The kind of a schedule, and what was written under each key."""
    if isinstance(schedule, str):
        kind = _kind_of(schedule)
        text = schedule.strip()
        return kind, {kind: text[len("every") :] if kind == "every" else text}
    if not isinstance(schedule, dict):
        raise ScheduleMissing(
            "a schedule is a string, or an object with one of cron, at, every and rrule",
            pointer="/schedule",
        )
    kinds = [kind for kind in _KINDS if schedule.get(kind) is not None]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of them"
        raise ScheduleMissing(
            f"a schedule has exactly one of {', '.join(_KINDS)}; this one has {found}",
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
    kind: Kind, written: object, timezone: str, start_us: int | None, now_us: int
) -> str:
    if not isinstance(written, str) or not written.strip():
        raise ScheduleMissing("a schedule is text, such as '0 9 * * 1-5' or 'every 5m'")
    if len(written) > MAX_EXPRESSION:
        raise ScheduleTooLong(
            f"the expression has {len(written)} characters; it may have {MAX_EXPRESSION}"
        )
    match kind:
        case "cron":
            check_spelling(written)
            return cron.normalise(written)
        case "at":
            _in_range(at.round_up(_instant_us(written, timezone, "first")), written)
            return at.normalise(written)
        case "every":
            return every.normalise(written)
        case "rrule":
            # A whole second, and one that is still to come: COUNT counts it.
            first_us = now_us + 1 if start_us is None else start_us
            first = rrule_bounds.stamp_at(-(-first_us // SECOND), timezone)
            return rrule_lines.normalise(
                written, first=first, is_started=start_us is not None, timezone=timezone
            )


def _read_bound(written: Mapping[str, object], key: str, timezone: str) -> int | None:
    """A start or an end; of a date, the first moment or the last."""
    if written.get(key) is None:
        return None
    text = written[key]
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
    """The instant of a time, local or not."""
    rules = timeline(timezone, "shift", overlap)
    return at.instants_us(at.read_moment(text), rules)[0]


def _in_range(instant_us: int, text: str) -> int:
    """An instant, unless it is out of range, which its year may not show."""
    if not 0 <= instant_us < END_US:
        raise InvalidInstant(
            f"{quoted(text)} is out of range; times are 1970-01-01T00:00:00Z to "
            "2199-12-31T23:59:59Z"
        )
    return instant_us


def _check_order(written: Mapping[str, object], start_us: int | None, end_us: int | None) -> None:
    if start_us is not None and end_us is not None and end_us < start_us:
        raise EndBeforeStart(
            f"the end, {written['end']}, is before the start, {written['start']}",
            pointer="/schedule/end",
        )


def _read_exclusions(written: object) -> tuple[str, ...]:
    if written is None:
        return ()
    if not isinstance(written, list) or len(written) > bounds.MAX_EXCLUSIONS:
        raise InvalidExclusion(
            f"exclude is a list of at most {bounds.MAX_EXCLUSIONS} dates and ranges of dates",
            pointer="/schedule/exclude",
        )
    problems = ProblemList()
    exclusions = tuple(
        problems.note(_pointed, f"/schedule/exclude/{index}", _read_exclusion, text)
        for index, text in enumerate(written)
    )
    problems.raise_as_found()
    return exclusions


def _read_exclusion(written: object) -> str:
    if not isinstance(written, str):
        raise InvalidExclusion
    return bounds.normalise_exclusion(written)


def _read_timezone(written: object) -> str:
    if not isinstance(written, str) or written not in _timezones():
        raise UnknownTimezone(
            f"{shown(written)} is not a time zone; use a name of the IANA database, "
            "such as Europe/London",
            pointer="/timezone",
        )
    return written


@cache
def _timezones() -> frozenset[str]:
    """The names that mean the same on every host: no files beside the zones, no `right/…`.

    Reading them takes a tenth of a second, once in a process, as zone rules are read once.
    """
    return frozenset(available_timezones()) - _HOST_ZONES


def _read_dst(name: str, written: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(written, str) or written not in allowed:
        raise InvalidDst(
            f"{shown(written)} is not one of {', '.join(allowed)}", pointer=f"/dst/{name}"
        )
    return written


def _read_jitter(written: object) -> int:
    if not isinstance(written, str):
        raise InvalidDuration(
            f"{shown(written)} is not a duration; write text such as '90s'", pointer="/jitter"
        )
    return parse_duration(written, pointer="/jitter")
