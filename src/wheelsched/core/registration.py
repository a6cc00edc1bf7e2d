"""Registration: what a user wrote becomes a `Spec`, or an error that says where and why not.

Invariant: no input takes more than some milliseconds to accept or refuse, and every refusal
points at the field that is wrong and says what would be right.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Final, cast, get_args
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from wheelsched.core import at, bounds, cron, every, rrule, rrule_bounds
from wheelsched.core.compile import compile_recurrence, compile_schedule
from wheelsched.core.dst import timeline
from wheelsched.core.duration import MILLISECOND, MINUTE, SECOND, format_duration, parse_duration
from wheelsched.core.spec import DstGap, DstOverlap, Kind, Recurrence, Spec
from wheelsched.errors import (
    EndBeforeStart,
    InvalidDst,
    InvalidExclusion,
    InvalidField,
    InvalidInstant,
    JitterTooLong,
    ScheduleInPast,
    ScheduleMissing,
    ScheduleNeverFires,
    ScheduleTooLong,
    UnknownTimezone,
)

MAX_EXPRESSION: Final = 255
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_OPTIONS: Final = ("start", "end", "exclude")
# How many due times ahead a jitter is held against; later, it is cut to fit where it must be.
_JITTER_STEPS: Final = 64
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
# Files beside the zones that mean whatever a host was set up with.
_HOST_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})


def parse(
    schedule: object,
    *,
    timezone: str = "UTC",
    dst_gap: str = "shift",
    dst_overlap: str = "first",
    jitter: str = "0s",
    now_us: int,
    grace_us: int = MINUTE,
) -> Spec:
    """The spec of a schedule as a user wrote it: a string, or an object with one kind."""
    _check_timezone(timezone)
    _check_dst(dst_gap, dst_overlap)
    kind, written = _read_kind(schedule)
    pointer = "/schedule" if isinstance(schedule, str) else f"/schedule/{kind}"
    start_us = _read_bound(written, "start", timezone)
    end_us = _read_bound(written, "end", timezone)
    if start_us is not None and end_us is not None and end_us < start_us:
        raise EndBeforeStart(
            f"the end, {written['end']}, is before the start, {written['start']}",
            pointer="/schedule/end",
        )
    with _pointing_at(pointer):
        expression = _read_expression(kind, written[kind], timezone, start_us, now_us)
    spec = Spec(
        kind=kind,
        expression=expression,
        timezone=timezone,
        dst_gap=cast("DstGap", dst_gap),
        dst_overlap=cast("DstOverlap", dst_overlap),
        start_us=start_us,
        end_us=end_us,
        exclude=_read_exclusions(written.get("exclude")),
        jitter_us=parse_duration(jitter, pointer="/jitter"),
    )
    recurrence = compile_recurrence(spec, cron.least_lucky, now_us)
    with _pointing_at(pointer):
        _check_due(spec, recurrence, now_us, grace_us)
    _check_jitter(spec, recurrence, now_us)
    return spec


def first_due_us(spec: Spec, job_id: UUID, *, now_us: int, grace_us: int = MINUTE) -> int | None:
    """When a job registered now is due first; a one-off may be as late as its grace."""
    return compile_schedule(spec, job_id, now_us).next_after(_search_from(spec, now_us, grace_us))


def _search_from(spec: Spec, now_us: int, grace_us: int) -> int:
    return now_us - grace_us - 1 if spec.kind == "at" else now_us


@contextmanager
def _pointing_at(pointer: str) -> Iterator[None]:
    """Give the errors of a kind, which knows no documents, the place of the field they are of."""
    try:
        yield
    except InvalidField as error:
        error.pointer = error.pointer or pointer
        raise


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
    for key in schedule:
        if key not in _KINDS and key not in _OPTIONS:
            raise ScheduleMissing(
                f"{str(key)[:40]!r} is unknown; a schedule has one of {', '.join(_KINDS)}, "
                f"and {', '.join(_OPTIONS)}",
                pointer="/schedule",
            )
    kinds = [kind for kind in _KINDS if kind in schedule]
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
    if lowered.startswith(("rrule:", "dtstart", "exdate", "freq=")):
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
            return cron.normalise(written)
        case "at":
            return at.normalise(written)
        case "every":
            return every.normalise(written)
        case "rrule":
            # A whole second, and one that is still to come: COUNT counts it.
            first_us = now_us + 1 if start_us is None else start_us
            first = rrule_bounds.stamp_at(-(-first_us // SECOND), timezone)
            return rrule.normalise(
                written, first=first, is_started=start_us is not None, timezone=timezone
            )


def _read_bound(written: Mapping[str, object], key: str, timezone: str) -> int | None:
    """A start or an end; of a date, the first moment or the last."""
    if written.get(key) is None:
        return None
    text = written[key]
    with _pointing_at(f"/schedule/{key}"):
        if not isinstance(text, str):
            raise InvalidInstant
        if at.is_date(text):
            from_us, until_us = bounds.interval_of_dates(text, timezone)
            return from_us if key == "start" else until_us - MILLISECOND
        rules = timeline(timezone, "shift", "first" if key == "start" else "last")
        return at.instants_us(at.read_moment(text), rules)[0]


def _read_exclusions(written: object) -> tuple[str, ...]:
    if written is None:
        return ()
    if not isinstance(written, list) or len(written) > bounds.MAX_EXCLUSIONS:
        raise InvalidExclusion(
            f"exclude is a list of at most {bounds.MAX_EXCLUSIONS} dates and ranges of dates",
            pointer="/schedule/exclude",
        )
    exclusions = []
    for index, text in enumerate(written):
        with _pointing_at(f"/schedule/exclude/{index}"):
            if not isinstance(text, str):
                raise InvalidExclusion
            exclusions.append(bounds.normalise_exclusion(text))
    return tuple(exclusions)


def _check_timezone(timezone: str) -> None:
    try:
        if _ZONE.fullmatch(timezone) is None or timezone in _HOST_ZONES:
            raise ValueError(timezone)  # noqa: TRY301 - one message for all that can be wrong
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UnknownTimezone(
            f"{timezone[:60]!r} is not a time zone; use a name of the IANA database, "
            "such as Europe/London",
            pointer="/timezone",
        ) from error


def _check_dst(gap: str, overlap: str) -> None:
    for name, value, allowed in (("gap", gap, DstGap), ("overlap", overlap, DstOverlap)):
        if value not in get_args(allowed):
            raise InvalidDst(
                f"{value[:40]!r} is not one of {', '.join(get_args(allowed))}",
                pointer=f"/dst/{name}",
            )


def _check_due(spec: Spec, recurrence: Recurrence, now_us: int, grace_us: int) -> None:
    if recurrence.next_after(_search_from(spec, now_us, grace_us)) is not None:
        return
    last_us = recurrence.last_before(now_us)
    if last_us is None:
        raise ScheduleNeverFires(
            f"{spec.expression!r} is never due: no such time comes, within its start, end and "
            "excluded dates, and the rules for clock changes"
        )
    last = f"{spec.expression!r} is never due again: its last time was {_shown(last_us)}"
    if spec.kind == "at":
        raise ScheduleInPast(
            f"{last}, longer ago than the grace of {format_duration(grace_us)}; "
            "choose a time that is still to come"
        )
    raise ScheduleNeverFires(f"{last}; choose a later end")


def _check_jitter(spec: Spec, recurrence: Recurrence, now_us: int) -> None:
    if spec.jitter_us == 0:
        return
    for due_us, next_us in pairwise(islice(_due_times(recurrence, now_us), _JITTER_STEPS)):
        if spec.jitter_us > next_us - due_us:
            raise JitterTooLong(
                f"a jitter of {format_duration(spec.jitter_us)} is longer than the "
                f"{format_duration(next_us - due_us)} between two runs, which is the most it "
                "may be",
                pointer="/jitter",
            )


def _due_times(recurrence: Recurrence, after_us: int) -> Iterator[int]:
    due_us = recurrence.next_after(after_us)
    while due_us is not None:
        yield due_us
        due_us = recurrence.next_after(due_us)


def _shown(instant_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant_us)).isoformat()
