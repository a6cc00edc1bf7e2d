"""Jobs of one tenant, on Postgres: what the API writes.

Invariant: a change locks the job, then its timer, and looks at the runs only then. A claim in
flight has ended by that time, so that no run is armed behind the back of an acknowledged change.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from wheelsched.core.model import Job, JobState, RunKey, RunState, SkipReason
from wheelsched.core.partition import partition_of
from wheelsched.errors import JobChanged, JobNameTaken, JobNotFound, JobNotPausable
from wheelsched.ports import Acknowledged, JobFilter, Registration
from wheelsched.store.connection import Connection
from wheelsched.store.database import Database
from wheelsched.store.definition import ENCODER, decode_job, encode_definition, encode_tags
from wheelsched.store.queries import load_queries

QUERIES = load_queries("jobs.sql")


class PostgresJobs:
    """`JobStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, tenant_id: UUID, jobs: Sequence[Registration]) -> set[UUID]:
        if not jobs:
            return set()
        async with self._database.tenant(tenant_id) as connection:
            added = await connection.fetch(
                QUERIES["register_jobs"],
                [registration.job.job_id for registration in jobs],
                [partition_of(registration.job.job_id) for registration in jobs],
                [registration.job.name for registration in jobs],
                [encode_definition(registration.job) for registration in jobs],
                [encode_tags(registration.job) for registration in jobs],
                [registration.job.created_at_us for registration in jobs],
                [registration.due_us for registration in jobs],
            )
            timed = [row for row in added if row["due_at"] is not None]
            await connection.execute(
                QUERIES["start_timers"],
                [row["job_id"] for row in timed],
                [row["partition"] for row in timed],
                [row["version"] for row in timed],
                [row["due_at"] for row in timed],
            )
            if len(added) == len(jobs):
                return set()
            return await _refused(connection, jobs, {row["job_id"] for row in added})

    async def get(self, tenant_id: UUID, job_id: UUID) -> Job:
        async with self._database.tenant(tenant_id) as connection:
            row = await connection.fetchrow(QUERIES["get_job"], job_id)
        if row is None:
            raise JobNotFound
        return decode_job(row)

    async def list_jobs(
        self, tenant_id: UUID, wanted: JobFilter, limit: int, after_name: str = ""
    ) -> list[Job]:
        tags = ENCODER.encode(wanted.tags).decode()
        async with self._database.tenant(tenant_id) as connection:
            rows = await connection.fetch(
                QUERIES["list_jobs"], after_name, wanted.state, wanted.name, tags, limit
            )
        return [decode_job(row) for row in rows]

    async def edit(
        self, tenant_id: UUID, job: Job, due_us: int | None, *, is_rescheduled: bool
    ) -> Acknowledged:
        async with self._database.tenant(tenant_id) as connection:
            before = await _locked(connection, job.job_id)
            if before.version != job.version - 1:
                raise JobChanged
            named = await connection.fetch(QUERIES["find_names"], [job.name])
            if any(row["job_id"] != job.job_id for row in named):
                raise JobNameTaken
            await connection.execute(
                QUERIES["edit_job"],
                job.job_id,
                before.version,
                job.name,
                job.state,
                encode_definition(job),
                encode_tags(job),
                job.updated_at_us,
            )
            if not is_rescheduled:
                await connection.execute(QUERIES["bump_timer"], job.job_id, job.version)
            elif due_us is None or job.state is not JobState.ACTIVE:
                await connection.execute(QUERIES["stop_timer"], job.job_id)
            else:
                await _start_timer(connection, job, due_us)
            if is_rescheduled:
                await _withdraw(connection, job.job_id, SkipReason.EDITED)
            return await _acknowledged(connection, job.job_id)

    async def pause(self, tenant_id: UUID, job_id: UUID) -> Acknowledged:
        async with self._database.tenant(tenant_id) as connection:
            job = await _locked(connection, job_id)
            if job.state is JobState.FINISHED:
                raise JobNotPausable
            if job.state is JobState.ACTIVE:
                await connection.execute(
                    QUERIES["change_state"], job_id, JobState.PAUSED, JobState.ACTIVE
                )
                await connection.execute(QUERIES["stop_timer"], job_id)
                await _withdraw(connection, job_id, SkipReason.PAUSED)
            return await _acknowledged(connection, job_id)

    async def resume(self, tenant_id: UUID, job_id: UUID, due_us: int | None) -> Acknowledged:
        async with self._database.tenant(tenant_id) as connection:
            job = await _locked(connection, job_id)
            if job.state is JobState.FINISHED:
                raise JobNotPausable
            if job.state is JobState.PAUSED:
                state = JobState.FINISHED if due_us is None else JobState.ACTIVE
                await connection.execute(QUERIES["change_state"], job_id, state, JobState.PAUSED)
                if due_us is not None:
                    resumed = replace(job, version=job.version + 1)
                    await _start_timer(connection, resumed, due_us)
            return await _acknowledged(connection, job_id)

    async def delete(self, tenant_id: UUID, job_id: UUID) -> Acknowledged:
        async with self._database.tenant(tenant_id) as connection:
            await _locked(connection, job_id)
            await connection.execute(QUERIES["stop_timer"], job_id)
            await connection.execute(QUERIES["withdraw_armed"], job_id, RunState.CANCELLED, None)
            await connection.execute(QUERIES["cancel_waiting"], job_id)
            acknowledged = await _acknowledged(connection, job_id)
            await connection.execute(QUERIES["delete_job"], job_id)
            return acknowledged


async def _locked(connection: Connection, job_id: UUID) -> Job:
    row = await connection.fetchrow(QUERIES["lock_job"], job_id)
    if row is None:
        raise JobNotFound
    return decode_job(row)


async def _start_timer(connection: Connection, job: Job, due_us: int) -> None:
    partition = partition_of(job.job_id)
    await connection.execute(
        QUERIES["start_timers"], [job.job_id], [partition], [job.version], [due_us]
    )


async def _withdraw(connection: Connection, job_id: UUID, reason: SkipReason) -> None:
    await connection.execute(QUERIES["withdraw_armed"], job_id, RunState.SKIPPED, reason)


async def _acknowledged(connection: Connection, job_id: UUID) -> Acknowledged:
    """The job as it is now, what came too late for, and a hint to its shard on commit."""
    await connection.execute(QUERIES["hint"], job_id)
    job = await connection.fetchrow(QUERIES["get_job"], job_id)
    assert job
    late = await connection.fetch(QUERIES["list_too_late"], job_id)
    too_late = tuple(RunKey(job_id, row["due_at"]) for row in late)
    return Acknowledged(job=decode_job(job), too_late=too_late)


async def _refused(
    connection: Connection, jobs: Sequence[Registration], added: set[UUID]
) -> set[UUID]:
    """Of the jobs that were not added, those that are not there from an earlier sending."""
    missing = {entry.job.job_id: entry.job.name for entry in jobs if entry.job.job_id not in added}
    rows = await connection.fetch(QUERIES["find_names"], list(missing.values()))
    present = {(row["job_id"], row["name"]) for row in rows}
    return {job_id for job_id, name in missing.items() if (job_id, name) not in present}
