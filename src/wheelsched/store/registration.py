"""Jobs of one tenant, on Postgres: registering thousands at once.

Invariant: a registration is one transaction. All of its jobs are there, with their timers, or none
is; those whose name is taken are left out and named.

`unnest` and not COPY: Postgres refuses COPY into a table with row-level security, and a staging
table that is copied into, and from there inserted, costs the same within the noise of measuring.
What did cost was ON CONFLICT, so that the first sending does without it. The jobs of a call go in
parts: no part spills to disk, and the program can do something else in between. They are sorted by
name: of two calls with the same names one waits for the other, and neither for both.
"""

from collections.abc import Iterator, Sequence
from uuid import UUID

import asyncpg

from wheelsched.core.audit import registered
from wheelsched.errors import JobNameTaken, QuotaExceeded, StoreContention, TenantNotFound
from wheelsched.ports import Caller, Registration
from wheelsched.store.audit import note
from wheelsched.store.connection import Connection
from wheelsched.store.database import Database
from wheelsched.store.definition import encode_definition, encode_tags
from wheelsched.store.queries import load_queries

QUERIES = load_queries("jobs.sql")
PART = 1_000
TRIES = 4  # of a registration that waits for another which waits for it


async def register(database: Database, caller: Caller, jobs: Sequence[Registration]) -> set[UUID]:
    """Registers jobs, and gives those whose name another has."""
    given = _in_order(jobs)
    for _ in range(TRIES - 1):
        try:
            return await _register(database, caller, given)
        except StoreContention:
            continue  # the other has ended
    return await _register(database, caller, given)


async def _register(database: Database, caller: Caller, jobs: Sequence[Registration]) -> set[UUID]:
    try:
        async with database.tenant(caller) as connection:
            await _add_all(connection, jobs)
            await _finish(connection, caller, jobs)
            return set()
    except JobNameTaken:
        async with database.tenant(caller) as connection:
            added = await _add_missing(connection, jobs)
            if added:
                await _finish(connection, caller, added)
            return await _refused(connection, jobs)


def _in_order(jobs: Sequence[Registration]) -> list[Registration]:
    """Each job once, by name; of two with one name, the first stays first."""
    once: dict[UUID, Registration] = {}
    for each in jobs:
        once.setdefault(each.job.job_id, each)
    return sorted(once.values(), key=lambda each: each.job.name)


async def _add_all(connection: Connection, jobs: Sequence[Registration]) -> None:
    """Adds jobs that are all new, or raises `JobNameTaken`."""
    for part in _parts(jobs):
        try:
            await connection.execute(QUERIES["add_jobs"], *_columns(part))
        except asyncpg.UniqueViolationError as error:
            raise JobNameTaken from error
        await _add_timers(connection, part)


async def _add_missing(connection: Connection, jobs: Sequence[Registration]) -> list[Registration]:
    """Adds those that are new, the first of each name, and gives them."""
    added: list[Registration] = []
    for part in _parts(jobs):
        rows = await connection.fetch(QUERIES["add_missing_jobs"], *_columns(part))
        new_ids = {row["job_id"] for row in rows}
        new = [each for each in part if each.job.job_id in new_ids]
        await _add_timers(connection, new)
        added += new
    return added


async def _add_timers(connection: Connection, jobs: Sequence[Registration]) -> None:
    job_ids, due_us = [each.job.job_id for each in jobs], [each.due_us for each in jobs]
    await connection.execute(QUERIES["add_timers"], job_ids, due_us)


async def _finish(connection: Connection, caller: Caller, new: Sequence[Registration]) -> None:
    """Writes the audit, and holds the count of the tenant's jobs against its quota."""
    entry = registered([registration.job for registration in new])
    await note(connection, caller.tenant_id, caller.actor, entry)
    try:
        count = await connection.fetchrow(QUERIES["count_jobs"], len(new))
    except asyncpg.ForeignKeyViolationError as error:
        raise TenantNotFound from error
    assert count
    if count["jobs"] > count["job_quota"]:
        before = count["jobs"] - len(new)
        raise QuotaExceeded(
            f"the tenant has {before:,} jobs and may have {count['job_quota']:,}: "
            f"{len(new):,} more are too many, and none was registered"
        )


async def _refused(connection: Connection, jobs: Sequence[Registration]) -> set[UUID]:
    """The jobs that are not there: another has their name."""
    job_ids = {each.job.job_id for each in jobs}
    rows = await connection.fetch(QUERIES["find_jobs"], list(job_ids))
    return job_ids - {row["job_id"] for row in rows}


def _parts(jobs: Sequence[Registration]) -> Iterator[Sequence[Registration]]:
    for start in range(0, len(jobs), PART):
        yield jobs[start : start + PART]


def _columns(jobs: Sequence[Registration]) -> tuple[list[object], ...]:
    return (
        [each.job.job_id for each in jobs],
        [each.due_us for each in jobs],
        [each.job.name for each in jobs],
        [encode_definition(each.job) for each in jobs],
        [encode_tags(each.job) for each in jobs],
        [each.job.created_at_us for each in jobs],
    )
