"""Records skipped due times, in memory.

Invariant: like on Postgres, stopping a timer records the due times that it leaves unarmed.
"""

from uuid import UUID

from msgspec.structs import replace

from wheelsched.core.model import Job, Run, RunState, SkipReason
from wheelsched.core.policies.misfire import Skip
from wheelsched.core.policies.pause import unarmed_dues
from wheelsched.schedule.compile import compile_schedule
from wheelsched.testing.tables import IN_TIME_US, MemoryTables


def stop_timer(
    tables: MemoryTables, job: Job, reason: SkipReason, *, until_us: int | None = None
) -> None:
    """Stop the timer of a job, and record its unarmed due times until now or `until_us`."""
    timer = tables.timers.pop(job.job_id, None)
    stopped_at_us = tables.now_us()
    if until_us is not None:
        stopped_at_us = min(stopped_at_us, until_us)
    if timer is None or timer.due_us is None or timer.due_us > stopped_at_us:
        return
    known_us = {key.due_us for key in tables.runs if key.job_id == job.job_id}
    schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
    skip = unarmed_dues(schedule, timer.due_us, stopped_at_us, reason, known_us)
    if skip is not None:
        write_skip(tables, job, skip)


def withdraw(tables: MemoryTables, job_id: UUID, reason: SkipReason) -> None:
    """Skip the armed runs of a job, except those that may be sent before their shard knows."""
    now_us = tables.now_us()
    for row in [row for key, row in tables.runs.items() if key.job_id == job_id]:
        is_first = row.run.state is RunState.ARMED and not row.had_retry
        if is_first and row.run.due_us > now_us + IN_TIME_US:
            row.run = replace(
                row.run,
                state=RunState.SKIPPED,
                skip_reason=reason,
                finished_at_us=now_us,
                missed_count=1,
                missed_since_us=row.run.due_us,
            )


def write_skip(tables: MemoryTables, job: Job, skip: Skip) -> None:
    """Write the one run that stands for all due times of a skip."""
    run = Run(
        job_id=job.job_id,
        due_us=skip.last_us,
        tenant_id=job.tenant_id,
        state=RunState.SKIPPED,
        finished_at_us=tables.now_us(),
        skip_reason=skip.reason,
        missed_count=skip.count,
        missed_since_us=skip.first_us,
    )
    if tables.write_run(run):
        return
    row = tables.runs[run.key]
    if row.run.state is RunState.SKIPPED and row.run.skip_reason is skip.reason:
        row.run = replace(row.run, missed_count=skip.count, missed_since_us=skip.first_us)
