"""Requests: the runs that a person asks for, beside those of the schedule, or once more.

Invariant: a request takes nothing from the schedule. Its runs have keys that no scheduled run
can have (see `model`), and the timer of the job stays where it is. What comes in bulk, or back
from the dead, goes to the late lane and never ahead of on-time work.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from wheelsched.core.model import Job, Lane, Run, Trigger, requested_due_us
from wheelsched.core.spec import Schedule
from wheelsched.core.state import RunEvent, move_run
from wheelsched.errors import BackfillTooLarge, InvalidField, TooManyRuns

MAX_BACKFILL: Final = 10_000  # due times of one request

# Runs of one job that were asked for and are not finished. A shard keeps those that are armed in
# memory, about two kilobytes each, and to delete the job is one transaction.
MAX_REQUESTED: Final = 100_000


def trigger(job: Job, now_us: int) -> Run:
    """The run of a job that is wanted now."""
    return _requested(job, now_us, Trigger.MANUAL)


def count_backfill(schedule: Schedule, since_us: int, until_us: int, now_us: int) -> int:
    """How many due times a backfill of [`since_us`, `until_us`) fills: its preview.

    All of the range lies in the past: what is still to come is the schedule's own.
    """
    if not since_us < until_us <= now_us:
        raise InvalidField(
            "a backfill goes from an earlier to a later time, and not past now", pointer="/until"
        )
    return schedule.count(since_us - 1, until_us - 1)


def backfill(job: Job, schedule: Schedule, since_us: int, until_us: int, now_us: int) -> list[Run]:
    """A run for each due time of a job in [`since_us`, `until_us`), in their order."""
    count = count_backfill(schedule, since_us, until_us, now_us)
    if count > MAX_BACKFILL:
        raise BackfillTooLarge(
            f"there are {count:,} due times in this range; at most {MAX_BACKFILL:,} are filled by "
            "one request, so write an earlier end",
            pointer="/until",
        )
    runs: list[Run] = []
    filled_us = schedule.next_after(since_us - 1)
    while filled_us is not None and filled_us < until_us:
        runs.append(_requested(job, now_us, Trigger.BACKFILL, len(runs), filled_us))
        filled_us = schedule.next_after(filled_us)
    return runs


def refuse_too_many(waiting: int, asked: int, most: int) -> None:
    """Raises `TooManyRuns` if a job with so many unfinished runs cannot have so many more."""
    if waiting + asked > most:
        raise TooManyRuns(
            f"this job may have at most {most:,} unfinished runs that were asked for; it has "
            f"{min(waiting, most):,}, and {asked:,} more were asked for. Wait until some of them "
            "have finished, or cancel them"
        )


def moved_past(due_us: Sequence[int], taken_us: int) -> list[int]:
    """Instants for the runs of a request, in their order, behind one that another run has."""
    return [requested_due_us(taken_us + 1, index) for index in range(len(due_us))]


def retry(run: Run, now_us: int) -> Run:
    """The run after a person asked to try it again, alone or by a redrive.

    It has a fresh budget of attempts, and waits for its first in the late lane, as a backfill
    does. One that is unfinished is being tried already, and stays as it is.
    """
    state = move_run(run.state, RunEvent.RETRY)
    if state is run.state:
        return run
    return replace(
        run,
        state=state,
        lane=Lane.LATE,
        attempts_before=run.attempt,
        retry_at_us=now_us,
        finished_at_us=None,
    )


def _requested(
    job: Job, now_us: int, trigger: Trigger, index: int = 0, backfill_of_us: int | None = None
) -> Run:
    return Run(
        job_id=job.job_id,
        due_us=requested_due_us(now_us, index),
        tenant_id=job.tenant_id,
        state=move_run(None, RunEvent.REQUEST),
        trigger=trigger,
        lane=Lane.LATE if trigger is Trigger.BACKFILL else Lane.ON_TIME,
        backfill_of_us=backfill_of_us,
        retry_at_us=now_us,
    )
