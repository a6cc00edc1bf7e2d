"""Refuses schedules that are well formed but can never be due, or have too much jitter.

Invariant: an accepted schedule of a job is due at least once, and its jitter is not longer than
its nominal interval. The result depends on the current time only through what has passed.
"""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from wheelsched.errors import JitterTooLong, ScheduleError, ScheduleInPast, ScheduleNeverFires
from wheelsched.schedule.compile import compile_recurrence
from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.cron.terms import Choose
from wheelsched.schedule.min_interval import shortest_interval_us
from wheelsched.schedule.spec import Recurrence, Spec
from wheelsched.values.duration import format_duration


def search_from(spec: Spec, now_us: int, grace_us: int) -> int:
    """A schedule registered now must be due after this instant. A one-off may use its grace."""
    return now_us - grace_us - 1 if spec.kind == "at" else now_us


def check_due(spec: Spec, *, now_us: int, grace_us: int) -> None:
    """Refuse a schedule that is never due, and a rule that is never due for some job.

    The values of `H` depend on the job's id, which is unknown here. So the rule is tested with the
    values that give the fewest due times, and without its start, end and excluded dates.
    """
    after_us = search_from(spec, now_us, grace_us)
    if spec.end_us is not None and spec.end_us <= after_us:
        raise ScheduleNeverFires(
            f"the end, {_iso(spec.end_us)}, has passed; choose a later end",
            pointer="/schedule/end",
        )
    tried = spec
    if spec.kind == "cron" and cron.is_hashed(cron.template(spec.expression)):
        tried = replace(spec, start_us=None, end_us=None, exclude=())
    recurrence = compile_recurrence(tried, cron.worst_case, now_us)
    if recurrence.next_after(after_us) is None:
        raise never_due(tried, recurrence, cron.worst_case, now_us=now_us, grace_us=grace_us)


def never_due(
    spec: Spec, recurrence: Recurrence, choose: Choose, *, now_us: int, grace_us: int
) -> ScheduleError:
    """The error for a schedule without a future due time: why, and what to change."""
    filled = spec.expression
    if spec.kind == "cron":
        filled = cron.fill(cron.template(spec.expression), choose)
    after_us = search_from(spec, now_us, grace_us)
    endless = compile_recurrence(replace(spec, end_us=None), choose, now_us)
    if spec.end_us is not None and (due_us := endless.next_after(after_us)) is not None:
        return ScheduleNeverFires(
            f"{filled!r} is next due at {_iso(due_us)}, after the end, {_iso(spec.end_us)}; "
            "choose a later end",
            pointer="/schedule/end",
        )
    last_us = recurrence.last_before(now_us)
    if last_us is None:
        return ScheduleNeverFires(
            f"{filled!r} is never due: no time matches it within its start, end, excluded dates "
            "and DST rules"
        )
    last = f"{filled!r} is never due again: its last due time was {_iso(last_us)}"
    if spec.kind == "at":
        return ScheduleInPast(
            f"{last}, longer ago than the grace of {format_duration(grace_us)}; "
            "choose a time in the future"
        )
    return ScheduleNeverFires(
        f"{last}; change the rule or the excluded dates so that a later one remains"
    )


def check_jitter(spec: Spec) -> None:
    """Refuse a jitter that is longer than the nominal interval.

    A clock change or an `H` can move two due times closer together. Then `jitter` shortens the
    delay when the run is dispatched.
    """
    if spec.jitter_us == 0:
        return
    interval_us = shortest_interval_us(spec, cron.worst_case)
    if interval_us is not None and spec.jitter_us > interval_us:
        raise JitterTooLong(
            f"a jitter of {format_duration(spec.jitter_us)} is longer than the interval between "
            f"two runs; at most {format_duration(interval_us)} is allowed",
            pointer="/jitter",
        )


def _iso(instant_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant_us)).isoformat()
