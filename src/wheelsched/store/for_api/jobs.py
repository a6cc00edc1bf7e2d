"""The jobs of one tenant, on Postgres: registered, read, edited, paused and deleted by the API.

Invariant: a change locks the job, then its timer, and reads the runs only after that. No claim is
in flight by then, so that no run is armed unnoticed by an acknowledged change.
"""

from collections.abc import Collection, Sequence
from functools import partial
from uuid import UUID

import asyncpg

from wheelsched.core.audit import changed
from wheelsched.core.model import Draft, Job, JobState, RunKey, SkipReason
from wheelsched.core.partition import partition_of
from wheelsched.core.policies.misfire import Skip
from wheelsched.errors import (
    JobChanged,
    JobNameTaken,
    JobNotFound,
    JobNotPausable,
    QuotaExceeded,
)
from wheelsched.ports import (
    FIRST_JOB,
    Acknowledged,
    Caller,
    Deleted,
    JobFilter,
    JobPosition,
    JobsFound,
    JobsPage,
    Registration,
    planned,
)
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.definition import (
    ENCODER,
    decode_either,
    decode_job,
    encode_definition,
    encode_tags,
)
from wheelsched.store.for_api.audit import note
from wheelsched.store.for_api.registration import register
from wheelsched.store.for_api.shared_reads import SharedReads
from wheelsched.store.for_api.skips import stop_timer, withdraw, write_skip
from wheelsched.store.for_shard.hints import hint
from wheelsched.store.schema.days import Days, with_days

QUERIES = load_queries("jobs.sql")


class PostgresJobs:
    """`JobStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = SharedReads(database, _fetch_jobs)
        self._pages = SharedReads(database, _fetch_page)

    async def register(self, caller: Caller, jobs: Sequence[Registration]) -> set[UUID]:
        if not jobs:
            return set()
        return await register(self._database, caller, jobs)

    async def get(self, caller: Caller, job_id: UUID) -> Job:
        return planned(await self.read(caller, job_id))

    async def read(self, caller: Caller, job_id: UUID) -> Job | Draft:
        rows = await self._jobs.read(caller.tenant_id, job_id)
        if job_id not in rows:
            raise JobNotFound
        return decode_either(rows[job_id])

    async def list_jobs(
        self, caller: Caller, wanted: JobFilter, limit: int, after: JobPosition = FIRST_JOB
    ) -> list[Job | Draft]:
        found = await self.list_jobs_unless(caller, JobsPage(wanted, limit, after), None)
        return [] if found.jobs is None else list(found.jobs)

    async def list_jobs_unless(
        self, caller: Caller, page: JobsPage, known: bytes | None
    ) -> JobsFound:
        wanted, limit, after = page
        tags = ENCODER.encode(wanted.tags).decode()
        filters = (wanted.state, wanted.name, tags)
        return await self._pages.read((caller.tenant_id, *after, *filters, limit, known), None)

    async def read_names(self, caller: Caller, job_ids: Collection[UUID]) -> dict[UUID, str]:
        async with self._database.tenant(caller) as connection:
            rows = await connection.fetch(QUERIES["read_names"], list(set(job_ids)))
        return {row["job_id"]: row["name"] for row in rows}

    async def edit(
        self, caller: Caller, job: Job, due_us: int | None, *, is_rescheduled: bool
    ) -> Acknowledged:
        change = partial(self._edit, caller, job, due_us, is_rescheduled)
        return await with_days(self._database, change)

    async def pause(self, caller: Caller, job_id: UUID, version: int | None = None) -> Acknowledged:
        return await with_days(self._database, partial(self._pause, caller, job_id, version))

    async def resume(
        self,
        caller: Caller,
        job_id: UUID,
        due_us: int | None,
        version: int | None = None,
        skip: Skip | None = None,
    ) -> Acknowledged:
        change = partial(self._resume, caller, job_id, due_us, version, skip)
        return await with_days(self._database, change)

    async def delete(self, caller: Caller, job_id: UUID, version: int | None = None) -> Deleted:
        return await with_days(self._database, partial(self._delete, caller, job_id, version))

    async def _edit(
        self, caller: Caller, job: Job, due_us: int | None, is_rescheduled: bool, days: Days
    ) -> Acknowledged:
        async with self._database.tenant(caller) as connection:
            before = planned(await _locked(connection, job.job_id))
            if before.version != job.version - 1:
                raise JobChanged
            await _replace(connection, job)
            if is_rescheduled:
                next_us = due_us if job.state is JobState.ACTIVE else None
                await _move_timer(connection, before, next_us, days)
                await withdraw(connection, [job.job_id], SkipReason.EDITED)
            else:
                await connection.execute(QUERIES["bump_timer"], job.job_id, job.version)
            entry = changed("edit", job, is_rescheduled=is_rescheduled)
            await note(connection, caller.tenant_id, caller.actor, entry)
            await _recount(connection, before.state, job.state)
            return await _acknowledged(connection, job.job_id)

    async def _pause(
        self, caller: Caller, job_id: UUID, version: int | None, days: Days
    ) -> Acknowledged:
        async with self._database.tenant(caller) as connection:
            job = planned(await _locked(connection, job_id))
            if version not in (None, job.version):
                raise JobChanged
            if job.state is JobState.FINISHED:
                raise JobNotPausable
            if job.state is JobState.ACTIVE:
                paused_at_us = await connection.fetchval(
                    QUERIES["change_state"], job_id, JobState.PAUSED, JobState.ACTIVE
                )
                # Later due times are recorded when the job is resumed.
                await stop_timer(connection, job, SkipReason.PAUSED, days, until_us=paused_at_us)
                entry = changed("pause", job)
                await note(connection, caller.tenant_id, caller.actor, entry)
            await withdraw(connection, [job_id], SkipReason.PAUSED)
            return await _acknowledged(connection, job_id)

    async def _resume(
        self,
        caller: Caller,
        job_id: UUID,
        due_us: int | None,
        version: int | None,
        skip: Skip | None,
        days: Days,
    ) -> Acknowledged:
        async with self._database.tenant(caller) as connection:
            job = planned(await _locked(connection, job_id))
            if job.state is JobState.FINISHED:
                raise JobNotPausable
            if job.state is JobState.PAUSED:
                if version not in (None, job.version):
                    raise JobChanged
                state = JobState.FINISHED if due_us is None else JobState.ACTIVE
                await connection.execute(QUERIES["change_state"], job_id, state, JobState.PAUSED)
                if due_us is not None:
                    await connection.execute(
                        QUERIES["start_timer"], job_id, job.version + 1, due_us
                    )
                if skip is not None:
                    await write_skip(connection, job_id, skip, days)
                entry = changed("resume", job)
                await note(connection, caller.tenant_id, caller.actor, entry)
                await _recount(connection, job.state, state)
            return await _acknowledged(connection, job_id)

    async def _delete(
        self, caller: Caller, job_id: UUID, version: int | None, days: Days
    ) -> Deleted:
        async with self._database.tenant(caller) as connection:
            job = await _locked(connection, job_id)
            if version not in (None, job.version):
                raise JobChanged
            if isinstance(job, Job):  # a draft has no timer
                await stop_timer(connection, job, SkipReason.DELETED, days)
            await withdraw(connection, [job_id], SkipReason.DELETED)
            await connection.execute(QUERIES["cancel_waiting"], job_id)
            late = await connection.fetch(QUERIES["list_late_retries"], job_id)
            await hint(connection, job_id)
            soon = await _too_late(connection, job_id)
            await connection.execute(QUERIES["delete_job"], job_id)
            await note(connection, caller.tenant_id, caller.actor, changed("delete", job))
            if isinstance(job, Job):  # drafts are not counted: see `plan`
                await _recount(connection, job.state, JobState.FINISHED)
            too_late = {*soon, *(RunKey(job_id, row["due_at"]) for row in late)}
            return Deleted(job=job, too_late=tuple(sorted(too_late)))


async def _fetch_jobs(
    connection: Connection, tenant_id: UUID, job_ids: Collection[UUID]
) -> dict[UUID, asyncpg.Record]:
    rows = await connection.fetch(QUERIES["read_jobs"], tenant_id, list(job_ids))
    return {row["job_id"]: row for row in rows}


async def _fetch_page(
    connection: Connection, arguments: tuple[object, ...], _: Collection[None]
) -> JobsFound:
    """A page of jobs, decoded once for all that share it."""
    # An empty or unchanged page is one row without a job.
    rows = await connection.fetch(QUERIES["list_jobs"], *arguments)
    fingerprint = rows[0]["fingerprint"]
    if fingerprint is not None and fingerprint == arguments[-1]:
        return JobsFound(fingerprint, None)
    return JobsFound(fingerprint, [decode_either(row) for row in rows if row["job_id"] is not None])


async def _move_timer(connection: Connection, before: Job, due_us: int | None, days: Days) -> None:
    """Starts the timer of a new schedule, at a due time that may have passed by now.

    Skipped due times of the old schedule are recorded up to there; after that the new one applies.
    """
    until_us = None if due_us is None else due_us - 1
    await stop_timer(connection, before, SkipReason.EDITED, days, until_us=until_us)
    if due_us is not None:
        await connection.execute(QUERIES["start_timer"], before.job_id, before.version + 1, due_us)


async def _locked(connection: Connection, job_id: UUID) -> Job | Draft:
    row = await connection.fetchrow(QUERIES["lock_job"], job_id)
    if row is None:
        raise JobNotFound
    return decode_either(row)


async def _replace(connection: Connection, job: Job) -> None:
    try:
        await connection.execute(
            QUERIES["edit_job"],
            job.job_id,
            job.version - 1,
            job.name,
            job.state,
            encode_definition(job),
            encode_tags(job),
            job.updated_at_us,
        )
    except asyncpg.UniqueViolationError as error:
        raise JobNameTaken from error


async def _recount(connection: Connection, before: JobState, after: JobState) -> None:
    """Updates the number of the tenant's jobs, which does not include finished ones."""
    added = (before is JobState.FINISHED) - (after is JobState.FINISHED)
    if not added:
        return
    row = await connection.fetchrow(QUERIES["count_job"], added)
    assert row
    if added > 0 and row["jobs"] > row["job_quota"]:
        raise QuotaExceeded(
            "making a finished job active again would exceed the quota: the tenant has "
            f"{row['jobs'] - added:,} of {row['job_quota']:,} jobs"
        )


async def _acknowledged(connection: Connection, job_id: UUID) -> Acknowledged:
    """The job after a change and the runs that it came too late for; notifies the shard."""
    await hint(connection, job_id)
    job = await connection.fetchrow(QUERIES["get_job"], job_id)
    assert job
    return Acknowledged(job=decode_job(job), too_late=await _too_late(connection, job_id))


async def _too_late(connection: Connection, job_id: UUID) -> tuple[RunKey, ...]:
    late = await connection.fetch(QUERIES["list_too_late"], job_id, partition_of(job_id))
    return tuple(RunKey(job_id, row["due_at"]) for row in late)
