"""Records the due times that a stopped timer skips, on Postgres.

Invariant: the due times between a timer's position and the instant of its stop are recorded in the
transaction that stops it. The runs are read after the timer was stopped, when no claim can
be in flight.
"""

from collections.abc import Sequence
from uuid import UUID

from wheelsched.core.model import Job, SkipReason
from wheelsched.core.policies.misfire import Skip
from wheelsched.core.policies.pause import unarmed_dues
from wheelsched.jobs.describe import schedule_of
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.schema.days import Days

QUERIES = load_queries("skips.sql")
MAX_EXISTING = 1_000  # runs past the position of a timer that was moved back: few were armed ahead


async def stop_timer(
    connection: Connection,
    job: Job,
    reason: SkipReason,
    days: Days,
    *,
    until_us: int | None = None,
) -> None:
    """Stops the timer of a locked job, and records the due times that it skips until now, or until
    an earlier instant."""
    timer = await connection.fetchrow(QUERIES["stop_timer"], job.job_id)
    if timer is not None:
        stopped_at_us = timer["stopped_at"]
        if until_us is not None:
            stopped_at_us = min(stopped_at_us, until_us)
        await record_skipped(connection, job, (timer["due_at"], stopped_at_us), reason, days)


async def record_skipped(
    connection: Connection, job: Job, stretch_us: tuple[int, int], reason: SkipReason, days: Days
) -> None:
    """Records the due times between a timer's position and the instant of its stop."""
    timer_us, stopped_at_us = stretch_us
    if timer_us > stopped_at_us:  # nearly always
        return
    rows = await connection.fetch(
        QUERIES["list_existing_runs"], job.job_id, timer_us, stopped_at_us, MAX_EXISTING
    )
    existing_us = {row["due_at"] for row in rows}
    skip = unarmed_dues(schedule_of(job), timer_us, stopped_at_us, reason, existing_us)
    if skip is not None:
        await write_skip(connection, job.job_id, skip, days)


async def withdraw(connection: Connection, job_ids: Sequence[UUID], reason: SkipReason) -> None:
    """Skips the armed runs of locked jobs, except those that may be sent before their shard is
    notified."""
    await connection.execute(QUERIES["withdraw_armed"], job_ids, reason)


async def write_skip(connection: Connection, job_id: UUID, skip: Skip, days: Days) -> None:
    """Writes the row that summarises the due times of a skip."""
    days.append(skip.last_us)
    await connection.execute(
        QUERIES["write_skip"], job_id, skip.last_us, skip.reason, skip.count, skip.first_us
    )
