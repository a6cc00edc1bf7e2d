"""Registers jobs of one tenant, thousands at a time, on Postgres.

Invariant: a registration is one transaction. Either all of its jobs are registered, with their
timers, or none is; jobs whose name is taken are left out and returned.

A function of the database registers a batch in one round trip, because on a busy machine most of
the time went into waiting for the event loop after each of seven. It takes arrays instead of COPY:
Postgres refuses COPY into a table with row-level security, and a staging table was not faster. It
does not use ON CONFLICT, which doubled the cost: only if a name is taken is the registration sent
again, in the slower way. Batches are small enough to stay in memory on the server, and other tasks
run between them. Jobs are sorted by name, so that two registrations of the same names cannot
deadlock.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from wheelsched.core.audit import registered
from wheelsched.errors import JobNameTaken, QuotaExceeded, StoreContention, TenantNotFound
from wheelsched.ports import Caller, Registration
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.definition import encode_definition, encode_tags

QUERIES = load_queries("jobs.sql")
BATCH = 1_000
QUOTA_EXCEEDED = "WSQ01"  # SQLSTATE raised by the function
MAX_ATTEMPTS = 4  # of a registration that is aborted by a deadlock


class _Summary(NamedTuple):
    """The audit entry of a registration and its job count, sent with its last batch."""

    actor: str | None
    subject: str | None
    detail: str | None
    added: int


_NO_SUMMARY: Final = _Summary(None, None, None, 0)


async def register(database: Database, caller: Caller, jobs: Sequence[Registration]) -> set[UUID]:
    """Registers jobs, and returns those whose name is taken."""
    ordered = _in_order(jobs)
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return await _register(database, caller, ordered)
        except StoreContention:
            continue
    return await _register(database, caller, ordered)


async def _register(database: Database, caller: Caller, jobs: Sequence[Registration]) -> set[UUID]:
    try:
        if len(jobs) <= BATCH:
            async with database.connection() as connection:
                await _add(connection, caller, jobs, jobs)
        else:
            async with database.tenant(caller) as connection:
                *batches, last = _batches(jobs)
                for batch in batches:
                    await _add(connection, caller, batch)
                await _add(connection, caller, last, jobs)
    except JobNameTaken:
        async with database.tenant(caller) as connection:
            added = await _add_missing(connection, jobs)
            if added:
                await _add(connection, caller, (), added)  # only the audit entry and the count
            return await _not_registered(connection, jobs)
    return set()


def _in_order(jobs: Sequence[Registration]) -> list[Registration]:
    """The jobs by name, without repeated ids; jobs with the same name keep their order."""
    once: dict[UUID, Registration] = {}
    for each in jobs:
        once.setdefault(each.job.job_id, each)
    return sorted(once.values(), key=lambda each: each.job.name)


def _summary_of(caller: Caller, jobs: Sequence[Registration]) -> _Summary:
    entry = registered([registration.job for registration in jobs])
    detail = msgspec.json.encode(entry.detail).decode()
    return _Summary(caller.actor, entry.subject, detail, len(_counted(jobs)))


def _counted(jobs: Sequence[Registration]) -> list[Registration]:
    """The jobs that count towards the quota: those with a due time."""
    return [registration for registration in jobs if registration.due_us is not None]


async def _add(
    connection: Connection,
    caller: Caller,
    batch: Sequence[Registration],
    new: Sequence[Registration] = (),
) -> None:
    """Adds a batch of jobs, or raises `JobNameTaken`.

    The last batch comes with all `new` jobs of the registration, which are checked against the
    tenant's quota and audited.
    """
    summary = _summary_of(caller, new) if new else _NO_SUMMARY
    try:
        await connection.execute(
            QUERIES["register_jobs"], caller.tenant_id, *_columns(batch), *summary
        )
    except asyncpg.UniqueViolationError as error:
        raise JobNameTaken from error
    except asyncpg.ForeignKeyViolationError as error:
        raise TenantNotFound from error
    except asyncpg.PostgresError as error:
        if error.sqlstate != QUOTA_EXCEEDED:
            raise
        before, quota = map(int, str(error.detail).split())
        raise _quota_exceeded(before, quota, _counted(new)) from error


async def _add_missing(connection: Connection, jobs: Sequence[Registration]) -> list[Registration]:
    """Adds the jobs whose name is free, the first of each name, and returns them."""
    added: list[Registration] = []
    for batch in _batches(jobs):
        rows = await connection.fetch(QUERIES["add_missing_jobs"], *_columns(batch))
        new_ids = {row["job_id"] for row in rows}
        new = [each for each in batch if each.job.job_id in new_ids]
        due_us = [each.due_us for each in new]
        await connection.execute(QUERIES["start_timers"], [each.job.job_id for each in new], due_us)
        added += new
    return added


def _quota_exceeded(before: int, quota: int, new: Sequence[Registration]) -> QuotaExceeded:
    return QuotaExceeded(
        f"registering {len(new):,} more jobs would exceed the quota: the tenant has {before:,} "
        f"of {quota:,}; none was registered",
        room=quota - before,
        new=frozenset(registration.job.job_id for registration in new),
    )


async def _not_registered(connection: Connection, jobs: Sequence[Registration]) -> set[UUID]:
    """The jobs that were left out because their name is taken."""
    job_ids = {each.job.job_id for each in jobs}
    rows = await connection.fetch(QUERIES["find_jobs"], list(job_ids))
    return job_ids - {row["job_id"] for row in rows}


def _batches(jobs: Sequence[Registration]) -> Iterator[Sequence[Registration]]:
    for start in range(0, len(jobs), BATCH):
        yield jobs[start : start + BATCH]


def _columns(jobs: Sequence[Registration]) -> tuple[list[object], ...]:
    return (
        [each.job.job_id for each in jobs],
        [each.due_us for each in jobs],
        [each.job.name for each in jobs],
        [encode_definition(each.job) for each in jobs],
        [encode_tags(each.job) for each in jobs],
        [each.job.created_at_us for each in jobs],
    )
