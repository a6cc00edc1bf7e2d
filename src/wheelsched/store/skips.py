"""Due times that nothing fires for, on Postgres: the rows that stand for them.

Invariant: whoever stops a timer writes what it leaves behind in the same transaction, and looks at
the runs only when the timer is stopped: a claim in flight has ended by then.
"""

from collections.abc import Sequence
from uuid import UUID

from wheelsched.core.compile import compile_schedule
from wheelsched.core.misfire import Skip
from wheelsched.core.model import Job, SkipReason
from wheelsched.core.pause import left_behind
from wheelsched.store.connection import Connection
from wheelsched.store.days import Days
from wheelsched.store.queries import load_queries

QUERIES = load_queries("skips.sql")
KNOWN = 1_000  # runs at which a timer may stand again: few were armed ahead when it was moved back


async def stop_timer(
    connection: Connection,
    job: Job,
    reason: SkipReason,
    days: Days,
    *,
    until_us: int | None = None,
) -> None:
    """Stops the timer of a job that is locked, and writes what it leaves behind until now, or
    until an instant that comes before."""
    timer = await connection.fetchrow(QUERIES["stop_timer"], job.job_id)
    if timer is not None:
        stopped_at_us = timer["stopped_at"]
        if until_us is not None:
            stopped_at_us = min(stopped_at_us, until_us)
        await leave_behind(connection, job, (timer["due_at"], stopped_at_us), reason, days)


async def leave_behind(
    connection: Connection, job: Job, stretch_us: tuple[int, int], reason: SkipReason, days: Days
) -> None:
    """Writes the due times from where a timer stood until it was stopped."""
    timer_us, stopped_at_us = stretch_us
    if timer_us > stopped_at_us:  # as nearly always
        return
    rows = await connection.fetch(QUERIES["list_known"], job.job_id, timer_us, stopped_at_us, KNOWN)
    schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
    known_us = {row["due_at"] for row in rows}
    skip = left_behind(schedule, timer_us, stopped_at_us, reason, known_us)
    if skip is not None:
        await write_skip(connection, job.job_id, skip, days)


async def withdraw(connection: Connection, job_ids: Sequence[UUID], reason: SkipReason) -> None:
    """Skips the armed runs of jobs that are locked, except those that may be sent before their
    shard hears of it."""
    await connection.execute(QUERIES["withdraw_armed"], job_ids, reason)


async def write_skip(connection: Connection, job_id: UUID, skip: Skip, days: Days) -> None:
    """Writes the one row that stands for all the due times of a skip."""
    days.append(skip.last_us)
    await connection.execute(
        QUERIES["write_skip"], job_id, skip.last_us, skip.reason, skip.count, skip.first_us
    )
