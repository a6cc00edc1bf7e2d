"""Deduplication in the user's own Postgres: the effect of a run, exactly once.

Invariant: the note that a key is done and whatever the handler wrote on the same connection commit
together or not at all. Postgres lets the second of two attempts wait for the first: it never sees
a key that is half done.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

from wheelsched.errors import PoolExhausted, RunInProgress
from wheelsched.worker import log
from wheelsched.worker.deduplication import WAIT_MS, Claim
from wheelsched.worker.delivery import Connection

if TYPE_CHECKING:  # asyncpg's classes take type arguments in their stubs only
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
else:
    Pool = asyncpg.Pool

_SQL: Final = files(__package__) / "sql"
CHECK: Final = (_SQL / "once_check.sql").read_text("utf-8")
TABLE: Final = (_SQL / "once_table.sql").read_text("utf-8")
CLAIM: Final = (_SQL / "once_claim.sql").read_text("utf-8")
HOLD: Final = (_SQL / "once_hold.sql").read_text("utf-8")
FORGET: Final = (_SQL / "once_forget.sql").read_text("utf-8")

# IF NOT EXISTS looks before another has committed; then it is the catalogue that objects.
MADE_BY_ANOTHER: Final = (
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateTableError,
    asyncpg.UniqueViolationError,
)
PATIENCE_S = 10.0  # for the database itself; `wait_ms` is for the attempt before
FORGET_EACH: Final = 1_000  # claims; more rows than that are forgotten at a time
FORGET_AT_ONCE: Final = 2_000


class PostgresOnce:
    """`Deduplication` in a table of the user's database, `wheelsched_once`.

    The table is made when it is missing and the account may do so; `TABLE` is its definition for
    those who make their tables themselves. Keys are kept `keep_days`: longer than the history, so
    that a backfill of anything in it still finds them.
    """

    def __init__(self, pool: Pool, *, keep_days: int = 100, wait_ms: int = WAIT_MS) -> None:
        self._pool = pool
        self._keep_days = keep_days
        self._wait_s = wait_ms / 1_000
        self._claims = 0
        self._has_table = False

    @asynccontextmanager
    async def once(self, key: str) -> AsyncIterator[Claim]:
        async with self._connection() as connection:
            await self._make_table(connection)
            async with connection.transaction():
                yield Claim(await self._claim(connection, key), connection)
                await connection.execute(HOLD, timeout=PATIENCE_S)
            self._claims += 1
            if self._claims % FORGET_EACH == 0:
                await self._forget(connection)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        try:
            connection = await self._pool.acquire(timeout=PATIENCE_S)
        except TimeoutError as error:
            raise PoolExhausted from error
        try:
            yield connection
        finally:
            await self._pool.release(connection)

    async def _claim(self, connection: Connection, key: str) -> bool:
        try:
            return bool(await connection.fetchval(CLAIM, key, timeout=self._wait_s))
        except TimeoutError as error:
            raise RunInProgress from error

    async def _make_table(self, connection: Connection) -> None:
        """Makes the table unless it is there, while others may be making it too.

        Looks first: making an index waits for every open transaction, even one that is there.
        """
        if self._has_table:
            return
        if not await connection.fetchval(CHECK, timeout=PATIENCE_S):
            with suppress(*MADE_BY_ANOTHER):
                await connection.execute(TABLE, timeout=PATIENCE_S)
        self._has_table = True

    async def _forget(self, connection: Connection) -> None:
        """Deletes some keys of long ago. The run is done: it does not fail when this does."""
        try:
            await connection.execute(FORGET, self._keep_days, FORGET_AT_ONCE, timeout=PATIENCE_S)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            detail = f"old keys were not deleted: {error}"
            log.write(logging.WARNING, "keys.kept", detail, {"error": str(error)})
