"""Builds the runs that a person requests: triggers, backfills and retries.

Invariant: a request does not affect the schedule. Its runs have keys that no scheduled run can have
(see `model`), and the timer of the job does not move. Backfills and retries go to the late lane,
never ahead of on-time work.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from wheelsched.core.model import Job, Lane, Run, Trigger, requested_due_us
from wheelsched.core.state import RunEvent, move_run
from wheelsched.errors import BackfillTooLarge, InvalidField, TooManyRuns
from wheelsched.schedule.spec import Schedule

MAX_BACKFILL: Final = 10_000  # due times per request

# Unfinished requested runs per job. A shard keeps the armed ones in memory, about 2 kB each, and
# deleting the job is one transaction.
MAX_REQUESTED: Final = 100_000


def trigger(job: Job, now_us: int) -> Run:
    """A manual run of a job, due now."""
    return _requested(job, now_us, Trigger.MANUAL)


def count_backfill(schedule: Schedule, since_us: int, until_us: int, now_us: int) -> int:
    """How many due times a backfill of [`since_us`, `until_us`) would fill.

    The range must lie in the past, because the schedule itself fires future due times.
    """
    if not since_us < until_us <= now_us:
        raise InvalidField(
            "the end of a backfill must be later than its start and not in the future",
            pointer="/until",
        )
    return schedule.count(since_us - 1, until_us - 1)


def backfill(job: Job, schedule: Schedule, since_us: int, until_us: int, now_us: int) -> list[Run]:
    """A run for each due time of a job in [`since_us`, `until_us`), in order."""
    count = count_backfill(schedule, since_us, until_us, now_us)
    if count > MAX_BACKFILL:
        raise BackfillTooLarge(
            f"there are {count:,} due times in this range; one request may fill at most "
            f"{MAX_BACKFILL:,}, so choose an earlier end",
            pointer="/until",
        )
    runs: list[Run] = []
    filled_us = schedule.next_after(since_us - 1)
    while filled_us is not None and filled_us < until_us:
        runs.append(_requested(job, now_us, Trigger.BACKFILL, len(runs), filled_us))
        filled_us = schedule.next_after(filled_us)
    return runs


def refuse_too_many(unfinished: int, requested: int, limit: int) -> None:
    """Raise `TooManyRuns` if the unfinished and the newly requested runs exceed the limit."""
    if unfinished + requested > limit:
        raise TooManyRuns(
            f"this job has {min(unfinished, limit):,} unfinished requested runs, and this request "
            f"adds {requested:,}; at most {limit:,} are allowed. Wait until some have finished, or "
            "cancel them"
        )


def moved_past(due_us: Sequence[int], taken_us: int) -> list[int]:
    """New due times for the runs of a request, in order, after one that is already taken."""
    return [requested_due_us(taken_us + 1, index) for index in range(len(due_us))]


def retry(run: Run, now_us: int) -> Run:
    """The run after a manual retry, alone or as part of a redrive.

    Its attempts are counted anew, and it waits in the late lane like a backfill. An unfinished run
    is returned unchanged, because it is still being attempted.
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
