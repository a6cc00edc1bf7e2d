"""Acceptance: schedules that can be read, and yet cannot be what their user meant.

Invariant: what is accepted for a job is due at least once for that job, and its jitter is no
longer than its nominal interval. Neither depends on the day on which it is asked, except by what
has passed.
"""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from wheelsched.core import cron
from wheelsched.core.compile import compile_recurrence
from wheelsched.core.cron_terms import Choose
from wheelsched.core.duration import format_duration
from wheelsched.core.nominal import shortest_interval_us
from wheelsched.core.spec import Recurrence, Spec
from wheelsched.errors import JitterTooLong, ScheduleError, ScheduleInPast, ScheduleNeverFires


def search_from(spec: Spec, now_us: int, grace_us: int) -> int:
    """The instant after which a schedule registered now must be due; a one-off has its grace."""
    return now_us - grace_us - 1 if spec.kind == "at" else now_us


def check_due(spec: Spec, *, now_us: int, grace_us: int) -> None:
    """Refuse what is due for no job; and a rule that for some jobs is never due at all.

    Which times an `H` stands for is known only with the job's id. Without it, the rule is tried
    where it has the fewest due times, and its bounds only as far as all jobs share them.
    """
    after_us = search_from(spec, now_us, grace_us)
    if spec.end_us is not None and spec.end_us <= after_us:
        raise ScheduleNeverFires(
            f"the end, {_shown(spec.end_us)}, has passed; choose a later end",
            pointer="/schedule/end",
        )
    tried = spec
    if spec.kind == "cron" and cron.is_hashed(cron.template(spec.expression)):
        tried = replace(spec, start_us=None, end_us=None, exclude=())
    recurrence = compile_recurrence(tried, cron.least_lucky, now_us)
    if recurrence.next_after(after_us) is None:
        raise never_due(tried, recurrence, cron.least_lucky, now_us=now_us, grace_us=grace_us)


def never_due(
    spec: Spec, recurrence: Recurrence, choose: Choose, *, now_us: int, grace_us: int
) -> ScheduleError:
    """Why a schedule without a coming due time has none, and what would be right."""
    filled = spec.expression
    if spec.kind == "cron":
        filled = cron.fill(cron.template(spec.expression), choose)
    after_us = search_from(spec, now_us, grace_us)
    endless = compile_recurrence(replace(spec, end_us=None), choose, now_us)
    if spec.end_us is not None and (due_us := endless.next_after(after_us)) is not None:
        return ScheduleNeverFires(
            f"{filled!r} is due next at {_shown(due_us)}, after the end, {_shown(spec.end_us)}; "
            "choose a later end",
            pointer="/schedule/end",
        )
    last_us = recurrence.last_before(now_us)
    if last_us is None:
        return ScheduleNeverFires(
            f"{filled!r} is never due: no such time comes, within its start, end and "
            "excluded dates, and the rules for clock changes"
        )
    last = f"{filled!r} is never due again: its last time was {_shown(last_us)}"
    if spec.kind == "at":
        return ScheduleInPast(
            f"{last}, longer ago than the grace of {format_duration(grace_us)}; "
            "choose a time that is still to come"
        )
    return ScheduleNeverFires(f"{last}; choose a rule, or excluded dates, that leave a later one")


def check_jitter(spec: Spec) -> None:
    """Refuse a jitter that is longer than the nominal interval.

    Where two due times come closer, by a clock change or by the `H` of a job, the jitter gives
    way when the run is dispatched: see `jitter`.
    """
    if spec.jitter_us == 0:
        return
    interval_us = shortest_interval_us(spec, cron.least_lucky)
    if interval_us is not None and spec.jitter_us > interval_us:
        raise JitterTooLong(
            f"a jitter of {format_duration(spec.jitter_us)} is longer than the "
            f"{format_duration(interval_us)} between two runs, which is the most it may be",
            pointer="/jitter",
        )


def _shown(instant_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant_us)).isoformat()
