"""Jobs of one tenant, on Postgres: registering thousands at once.

Invariant: a registration is one transaction. All of its jobs are there, with their timers, or none
is; those whose name is taken are left out and named.

A function of the database does all of it in one round trip, for as many jobs as one part has:
what cost most on a busy machine was waiting for the next turn, seven times. It takes arrays and
not COPY: Postgres refuses COPY into a table with row-level security, and a staging table that is
copied into, and from there inserted, costs the same within the noise of measuring. It does without
ON CONFLICT, which cost as much again: where a name is taken, all of it is sent a careful way. The
parts spill nothing to disk, and the program can do something else in between. Jobs are sorted by
name: of two calls with the same names one waits for the other, and neither for both.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from wheelsched.core.audit import registered
from wheelsched.errors import JobNameTaken, QuotaExceeded, StoreContention, TenantNotFound
from wheelsched.ports import Caller, Registration
from wheelsched.store.connection import Connection
from wheelsched.store.database import Database
from wheelsched.store.definition import encode_definition, encode_tags
from wheelsched.store.queries import load_queries

QUERIES = load_queries("jobs.sql")
PART = 1_000
QUOTA_EXCEEDED = "WSQ01"  # as the function says it
TRIES = 4  # of a registration that waits for another which waits for it


class _Finish(NamedTuple):
    """What there is once for all parts of a registration: its entry in the audit, and its count."""

    actor: str | None
    subject: str | None
    detail: str | None
    added: int


_MORE_COME: Final = _Finish(None, None, None, 0)


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
        if len(jobs) <= PART:
            async with database.connection() as connection:
                await _add(connection, caller, jobs, jobs)
        else:
            async with database.tenant(caller) as connection:
                *parts, last = _parts(jobs)
                for part in parts:
                    await _add(connection, caller, part)
                await _add(connection, caller, last, jobs)
    except JobNameTaken:
        async with database.tenant(caller) as connection:
            added = await _add_missing(connection, jobs)
            if added:
                await _add(connection, caller, (), added)  # they are there: the audit and the count
            return await _refused(connection, jobs)
    return set()


def _in_order(jobs: Sequence[Registration]) -> list[Registration]:
    """Each job once, by name; of two with one name, the first stays first."""
    once: dict[UUID, Registration] = {}
    for each in jobs:
        once.setdefault(each.job.job_id, each)
    return sorted(once.values(), key=lambda each: each.job.name)


def _finish_of(caller: Caller, jobs: Sequence[Registration]) -> _Finish:
    entry = registered([registration.job for registration in jobs])
    detail = msgspec.json.encode(entry.detail).decode()
    return _Finish(caller.actor, entry.subject, detail, len(_counted(jobs)))


def _counted(jobs: Sequence[Registration]) -> list[Registration]:
    """The jobs that have a place in the quota: those that have a future."""
    return [registration for registration in jobs if registration.due_us is not None]


async def _add(
    connection: Connection,
    caller: Caller,
    part: Sequence[Registration],
    new: Sequence[Registration] = (),
) -> None:
    """Adds jobs that are all new, or raises `JobNameTaken`.

    With the last part comes all that is `new`, for the audit and against the quota of the tenant.
    """
    finish = _finish_of(caller, new) if new else _MORE_COME
    try:
        await connection.execute(
            QUERIES["register_jobs"], caller.tenant_id, *_columns(part), *finish
        )
    except asyncpg.UniqueViolationError as error:
        raise JobNameTaken from error
    except asyncpg.ForeignKeyViolationError as error:
        raise TenantNotFound from error
    except asyncpg.PostgresError as error:
        if error.sqlstate != QUOTA_EXCEEDED:
            raise
        before, quota = map(int, str(error.detail).split())
        raise _too_many(before, quota, _counted(new)) from error


async def _add_missing(connection: Connection, jobs: Sequence[Registration]) -> list[Registration]:
    """Adds those that are new, the first of each name, and gives them."""
    added: list[Registration] = []
    for part in _parts(jobs):
        rows = await connection.fetch(QUERIES["add_missing_jobs"], *_columns(part))
        new_ids = {row["job_id"] for row in rows}
        new = [each for each in part if each.job.job_id in new_ids]
        due_us = [each.due_us for each in new]
        await connection.execute(QUERIES["start_timers"], [each.job.job_id for each in new], due_us)
        added += new
    return added


def _too_many(before: int, quota: int, new: Sequence[Registration]) -> QuotaExceeded:
    return QuotaExceeded(
        f"the tenant has {before:,} jobs and may have {quota:,}: "
        f"{len(new):,} more are too many, and none was registered",
        room=quota - before,
        new=frozenset(registration.job.job_id for registration in new),
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
