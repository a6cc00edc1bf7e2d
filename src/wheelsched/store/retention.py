"""Stage *sweep*, on Postgres: daily tables and one-offs, made ahead and removed past retention.

Invariant: no statement here takes a lock that the hot path waits for, and no job goes that has a
live run. Any number of processes may do this at once, and each may be cut short anywhere.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg

from wheelsched.store.connection import Connection
from wheelsched.store.database import Database
from wheelsched.store.queries import load_queries

QUERIES = load_queries("retention.sql")
FORGET = (
    QUERIES["forget_days"],
    QUERIES["forget_dead"],
    QUERIES["forget_retries"],
    QUERIES["forget_answers"],
)
DAYS_AHEAD = 3
RETENTION_DAYS = 90
ONE_OFF_DAYS = 7  # they count against the quota of their tenant for so long
ONE_OFF_BATCH = 1_000
REFUSED_BATCH = 1_000
BEFORE_ALL = (0, UUID(int=0))


class Retention:
    """What the owner of the schema does once an hour or so."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_days_ahead(self, days: int = DAYS_AHEAD) -> int:
        """Makes the tables of the coming days, and gives how many were missing."""
        made: int = await self._database.fetchval(QUERIES["make_days_ahead"], days)
        return made

    async def drop_old_days(self, days: int = RETENTION_DAYS) -> int:
        """Drops what is older than the retention, and gives how many tables that were.

        One process at a time, since two that detach would wait for each other; whoever comes
        second leaves it to the first.
        """
        async with self._turn() as is_ours:
            return await self._drop(days) if is_ours else 0

    async def remove_one_offs(self, days: int = ONE_OFF_DAYS, batch: int = ONE_OFF_BATCH) -> int:
        """Removes the one-offs that ended so long ago, and gives how many they were.

        Their history stays for its own retention. Each batch is a transaction.
        """
        removed, after = 0, BEFORE_ALL
        while True:
            async with self._database.connection() as connection, connection.transaction():
                rows = await connection.fetch(QUERIES["lock_one_offs"], days, *after, batch)
                if not rows:
                    return removed
                job_ids = [row["job_id"] for row in rows]
                removed += await connection.fetchval(QUERIES["remove_one_offs"], job_ids)
                after = (rows[-1]["updated_at"], rows[-1]["job_id"])

    async def _drop(self, days: int) -> int:
        async with self._database.connection() as connection:
            await _run_each(connection, QUERIES["write_detachments"], days)
            dropped = await _run_each(connection, QUERIES["write_drops"], days)
            for forget in FORGET:
                await connection.execute(forget, days)
            while await connection.fetchval(QUERIES["forget_refused"], days, REFUSED_BATCH):
                pass
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


async def _run_each(connection: Connection, writer: str, days: int) -> int:
    """Runs the statements that a statement writes; gives how many were ours to run."""
    done = 0
    for (statement,) in await connection.fetch(writer, days):
        try:
            await connection.execute(statement)
        except (asyncpg.UndefinedTableError, asyncpg.ObjectNotInPrerequisiteStateError):
            continue  # another process was quicker
        done += 1
    return done
