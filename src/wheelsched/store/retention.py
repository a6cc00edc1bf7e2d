"""Stage *sweep*, on Postgres: daily tables made ahead, and what is past its retention removed.

Invariant: no statement here takes a lock that the hot path waits for. A live run, and its job,
stay until the run is past every retention. Any number of processes may do this at once, and each
may be cut short anywhere.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import date
from uuid import UUID

import asyncpg

from wheelsched.store.connection import Connection
from wheelsched.store.database import Database
from wheelsched.store.queries import load_queries
from wheelsched.store.settings import Settings

QUERIES = load_queries("retention.sql")
DAYS_AHEAD = 3
BATCH = 1_000
BEFORE_ALL = (0, UUID(int=0))


class Retention:
    """What the owner of the schema does once an hour or so."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_days_ahead(self, days: int = DAYS_AHEAD) -> int:
        """Makes the tables of the coming days, and gives how many were missing."""
        made: int = await self._database.fetchval(QUERIES["make_days_ahead"], days)
        return made

    async def drop_old_days(self, settings: Settings) -> int:
        """Drops what is older than the retention, and gives how many tables that were.

        One process at a time, since two that detach would wait for each other; whoever comes
        second leaves it to the first.
        """
        async with self._turn() as is_ours:
            return await self._drop(settings) if is_ours else 0

    async def remove_finished(self, days: int, batch: int = BATCH) -> int:
        """Removes the jobs that finished so long ago, and gives how many they were.

        Their history stays for its own retention. Each batch is a transaction.
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
    async def _turn(self) -> AsyncIterator[bool]:
        """Holds a lock that nothing else waits for, in a transaction that touches no run."""
        async with self._database.connection() as connection:
            turn = connection.transaction()
            await turn.start()
            try:
                await connection.execute(QUERIES["wait_idle"])
                await connection.execute(QUERIES["take_turn"])
                is_ours = True
            except asyncpg.LockNotAvailableError:
                is_ours = False
            try:
                yield is_ours
            finally:
                await turn.rollback()


async def _days_to_drop(connection: Connection, settings: Settings) -> list[date]:
    """The days past retention, from which the dead have been moved away.

    A day with a live run stays until the run has ended, or is older than dead runs may become.
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
    """Moves the dead runs of a day to where they outlive it."""
    after: Iterable[object] | None = BEFORE_ALL
    while after is not None:
        last = await connection.fetchrow(QUERIES["keep_dead"], day, *after, BATCH)
        after = None if last is None else last.values()


async def _in_pages(connection: Connection, forget: str, days: int) -> None:
    while await connection.fetchval(forget, days, BATCH):
        pass


async def _run_each(connection: Connection, writer: str, days: list[date]) -> int:
    """Runs the statements that a statement writes; gives how many were ours to run."""
    done = 0
    for (statement,) in await connection.fetch(writer, days):
        try:
            await connection.execute(statement)
        except (asyncpg.UndefinedTableError, asyncpg.ObjectNotInPrerequisiteStateError):
            continue  # another process was quicker
        done += 1
    return done
