"""Deduplication in the user's own Postgres, for exactly-once effects.

Invariant: the row that marks a key as done and the handler's writes on the same connection commit
together or not at all. Postgres makes a second attempt wait for the first, so it never sees an
unfinished key.
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

# IF NOT EXISTS does not see a table that another session has not committed yet. Then the catalogue
# reports a duplicate.
CREATED_CONCURRENTLY: Final = (
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateTableError,
    asyncpg.UniqueViolationError,
)
TIMEOUT_S = 10.0  # of a statement; `wait_ms` limits the wait for an earlier attempt
CLAIMS_PER_CLEANUP: Final = 1_000
ROWS_PER_CLEANUP: Final = 2_000  # more than the claims, so that old rows do not accumulate


class PostgresOnce:
    """`Deduplication` in a table of the user's database, `wheelsched_once`.

    The table is created if it is missing and the account has the right. `TABLE` is its definition,
    for those who create their tables themselves. Keys are kept for `keep_days`, which should be
    longer than the history, so that a backfill of old runs still finds them.
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
            await self._create_table(connection)
            async with connection.transaction():
                yield Claim(await self._claim(connection, key), connection)
                await connection.execute(HOLD, timeout=TIMEOUT_S)
            self._claims += 1
            if self._claims % CLAIMS_PER_CLEANUP == 0:
                await self._delete_old_keys(connection)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        try:
            connection = await self._pool.acquire(timeout=TIMEOUT_S)
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

    async def _create_table(self, connection: Connection) -> None:
        """Create the table if it is missing. Other processes may do the same at the same time.

        It checks first, because creating an index waits for every open transaction, even if the
        index exists.
        """
        if self._has_table:
            return
        if not await connection.fetchval(CHECK, timeout=TIMEOUT_S):
            with suppress(*CREATED_CONCURRENTLY):
                await connection.execute(TABLE, timeout=TIMEOUT_S)
        self._has_table = True

    async def _delete_old_keys(self, connection: Connection) -> None:
        """Delete some expired keys. The run is already done, so an error here must not fail it."""
        try:
            await connection.execute(FORGET, self._keep_days, ROWS_PER_CLEANUP, timeout=TIMEOUT_S)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            detail = f"old keys were not deleted: {error}"
            log.write(logging.WARNING, "keys.kept", detail, {"error": str(error)})
