"""Creates daily tables ahead of time, and removes what is past its retention, on Postgres.

Invariant: no statement here takes a lock that the hot path waits for. An unfinished run and its job
stay until the run is past every retention. Several processes may do this at the same time, and each
may be interrupted at any point.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import date
from uuid import UUID

import asyncpg

from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.schema.settings import Settings

QUERIES = load_queries("retention.sql")
DAYS_AHEAD = 3
BATCH = 1_000
BEFORE_ALL = (0, UUID(int=0))


class Retention:
    """The housekeeping that the owner of the schema does about once an hour."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_days_ahead(self, days: int = DAYS_AHEAD) -> int:
        """Creates the tables of the coming days, and returns how many were missing."""
        made: int = await self._database.fetchval(QUERIES["make_days_ahead"], days)
        return made

    async def drop_old_days(self, settings: Settings) -> int:
        """Drops the tables of days past the retention, and returns how many were dropped.

        Two processes that detach tables would deadlock. So only one does it at a time, and
        a second one does nothing.
        """
        async with self._lock() as is_locked:
            return await self._drop(settings) if is_locked else 0

    async def remove_finished(self, days: int, batch: int = BATCH) -> int:
        """Removes the jobs that finished more than `days` ago, and returns how many.

        Their history stays for its own retention. Each batch is one transaction.
        """
        removed, after = 0, BEFORE_ALL
        while True:
            async with self._database.connection() as connection, connection.transaction():
                rows = await connection.fetch(QUERIES["lock_finished"], days, *after, batch)
                if not rows:
                    return removed
                job_ids = [row["job_id"] for row in rows]
                removed += await connection.fetchval(QUERIES["remove_finished"], job_ids)
                after = (rows[-1]["updated_at"], rows[-1]["job_id"])

    async def _drop(self, settings: Settings) -> int:
        async with self._database.connection() as connection:
            days = await _days_to_drop(connection, settings)
            await _run_each(connection, QUERIES["write_detachments"], days)
            dropped = await _run_each(connection, QUERIES["write_drops"], days)
            await connection.execute(QUERIES["forget_days"], days)
            await connection.execute(QUERIES["forget_retries"], settings.history_days)
            await connection.execute(QUERIES["forget_answers"])
            await _in_pages(connection, QUERIES["forget_dead"], settings.dead_days)
            await _in_pages(connection, QUERIES["forget_refused"], settings.finished_days)
            await connection.execute(QUERIES["forget_payloads"])
        return dropped

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[bool]:
        """Tries to take a lock that nothing else waits for, in a transaction that reads no run."""
        async with self._database.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                await connection.execute(QUERIES["allow_idle"])
                await connection.execute(QUERIES["lock_retention"])
                is_locked = True
            except asyncpg.LockNotAvailableError:
                is_locked = False
            try:
                yield is_locked
            finally:
                await transaction.rollback()


async def _days_to_drop(connection: Connection, settings: Settings) -> list[date]:
    """The days past retention, after their dead runs were moved to tables that outlive them.

    A day with an unfinished run stays until the run has ended or is past the retention of dead
    runs.
    """
    found = await connection.fetch(QUERIES["list_past_days"], settings.history_days)
    past_all = {
        row["day"] for row in await connection.fetch(QUERIES["list_past_days"], settings.dead_days)
    }
    days = []
    for (day,) in found:
        if day not in past_all:
            await _keep_dead(connection, day)
            if await connection.fetchval(QUERIES["has_live"], day):
                continue
        days.append(day)
    return days


async def _keep_dead(connection: Connection, day: date) -> None:
    """Moves the dead runs of a day to the tables that outlive it."""
    after: Iterable[object] | None = BEFORE_ALL
    while after is not None:
        last = await connection.fetchrow(QUERIES["keep_dead"], day, *after, BATCH)
        after = None if last is None else last.values()


async def _in_pages(connection: Connection, forget: str, days: int) -> None:
    while await connection.fetchval(forget, days, BATCH):
        pass


async def _run_each(connection: Connection, writer: str, days: list[date]) -> int:
    """Executes the statements that a query generates, and returns how many took effect."""
    done = 0
    for (statement,) in await connection.fetch(writer, days):
        try:
            await connection.execute(statement)
        except (asyncpg.UndefinedTableError, asyncpg.ObjectNotInPrerequisiteStateError):
            continue  # another process did it
        done += 1
    return done
