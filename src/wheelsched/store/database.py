"""Under every stage: the pools of connections, and the one way to run a statement.

Invariant: whatever the work waits for, the lease has a connection; and no statement waits
forever, on either side.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import asyncpg

from wheelsched.closing import Closing
from wheelsched.config import StoreConfig
from wheelsched.errors import InvalidDatabaseUrl, PoolExhausted, RightMissing, SchemaTooOld
from wheelsched.ports import Caller
from wheelsched.store.connection import Connection, use_plain_values
from wheelsched.store.failure import named_failures
from wheelsched.store.migrate import check_schema
from wheelsched.store.queries import load_queries
from wheelsched.store.rights import check_rights, read_account

if TYPE_CHECKING:  # asyncpg's classes take type arguments in their stubs only
    from asyncpg.pool import PoolConnectionProxy

    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    PooledConnection: TypeAlias = PoolConnectionProxy[asyncpg.Record]
else:
    Pool = asyncpg.Pool
    PooledConnection = Connection

QUERIES = load_queries("session.sql")

# A shard's statements look every row of a batch up by its key, whatever the statistics say: those
# of a table that began today, or of a second that was never there before, are always wrong, and
# a hash join over a day of runs that "has one row" is a batch that takes seconds. One plan for
# all batches also saves planning over every day of history; it is made while tomorrow's table is
# empty, and must not read the whole of it then. The other roles join batches with each other, for
# which a plan has to know their lengths.
LOOK_UP_BY_KEY = {
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "random_page_cost": "1.1",
}
KNOW_LENGTHS = {"plan_cache_mode": "force_custom_plan"}
PLANNING = {"shard": LOOK_UP_BY_KEY, "api": KNOW_LENGTHS, "owner": KNOW_LENGTHS}


class Database(Closing):
    """The connections of one process to Postgres."""

    def __init__(self, config: StoreConfig, work: Pool, lease: Pool) -> None:
        self._config = config
        self._work = work
        self._lease = lease
        self._turns = {
            work: asyncio.Semaphore(config.connections),
            lease: asyncio.Semaphore(config.lease_connections),
        }

    @classmethod
    async def open(cls, config: StoreConfig) -> Self:
        """Connects, and refuses a schema that is not the program's."""
        with named_failures(), ExitStack() as opened:
            try:
                work = await _pool(config, config.connections, config.command_timeout_ms)
            except asyncpg.InvalidParameterValueError as error:  # the server knows no such role
                raise SchemaTooOld(
                    f"the server has no role wheelsched_{config.role}; "
                    "run `wheelsched db migrate`, which creates the roles and repairs their rights"
                ) from error
            except asyncpg.InsufficientPrivilegeError as error:
                raise await _not_a_member(config) from error
            except ValueError as error:
                raise InvalidDatabaseUrl(f"{InvalidDatabaseUrl.__doc__} ({error})") from error
            opened.callback(work.terminate)
            lease = await _pool(config, config.lease_connections, config.lease_timeout_ms)
            opened.callback(lease.terminate)
            async with work.acquire() as connection:
                await _check(connection, config)
            opened.pop_all()
        return cls(config, work, lease)

    async def close(self) -> None:
        """Waits for what runs, and closes every connection."""
        with named_failures():
            await self._lease.close()
            await self._work.close()

    async def fetch(self, sql: str, *arguments: object) -> Sequence[asyncpg.Record]:
        """All rows of one statement."""
        async with self.connection() as connection:
            return await connection.fetch(sql, *arguments)

    async def fetchrow(self, sql: str, *arguments: object) -> asyncpg.Record | None:
        """The first row of one statement."""
        async with self.connection() as connection:
            return await connection.fetchrow(sql, *arguments)

    async def fetchval(self, sql: str, *arguments: object) -> Any:
        """The first value of one statement."""
        async with self.connection() as connection:
            return await connection.fetchval(sql, *arguments)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for work."""
        async with self._acquired(self._work, self._config.command_timeout_ms) as connection:
            yield connection

    @asynccontextmanager
    async def lease_connection(self) -> AsyncIterator[Connection]:
        """A connection for the lease."""
        async with self._acquired(self._lease, self._config.lease_timeout_ms) as connection:
            yield connection

    @asynccontextmanager
    async def tenant(self, caller: Caller) -> AsyncIterator[Connection]:
        """A transaction that sees the rows of the caller's tenant, by the rules of the database."""
        begin = QUERIES["begin_for_tenant"].format(tenant_id=caller.tenant_id)
        async with self.connection() as connection, _transaction(connection, begin):
            yield connection

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Connection]:
        """A transaction that sees all tenants and tokens, and nothing that belongs to them."""
        begin = QUERIES["begin_for_operator"]
        async with self.connection() as connection, _transaction(connection, begin):
            yield connection

    @asynccontextmanager
    async def _acquired(self, pool: Pool, timeout_ms: int) -> AsyncIterator[Connection]:
        with named_failures():
            try:
                async with asyncio.timeout(timeout_ms / 1000):  # a timeout of the pool's is a task
                    connection = await self._next_of(pool)
            except TimeoutError as error:
                if pool.get_idle_size() or pool.get_size() < pool.get_max_size():
                    raise
                raise PoolExhausted from error
            try:
                yield connection
            finally:
                try:
                    await pool.release(connection, timeout=timeout_ms / 1000)
                finally:
                    self._turns[pool].release()

    async def _next_of(self, pool: Pool) -> PooledConnection:
        """A connection, in the order of asking.

        asyncpg gives one that comes back to whoever asks at that moment, and sends those who waited
        for it to the end of the queue: under load some wait four times as long as most.
        """
        turn = self._turns[pool]
        await turn.acquire()
        try:
            return await pool.acquire()
        except BaseException:
            turn.release()
            raise


async def _not_a_member(config: StoreConfig) -> RightMissing:
    connection = await asyncpg.connect(config.url, timeout=config.connect_timeout_ms / 1000)
    try:
        account = await read_account(connection)
    finally:
        await connection.close()
    role = f"wheelsched_{config.role}"
    return account.refused(f"may not use the role {role}", account.membership(role))


async def _check(connection: Connection, config: StoreConfig) -> None:
    """Refuses a schema that is not the program's, and one without the rights of its roles."""
    try:
        await check_schema(connection)
        await check_rights(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        raise RightMissing(
            f"the role wheelsched_{config.role} lacks a right ({error}), e.g. after a restore "
            "without roles; run `wheelsched db migrate`, which repairs them"
        ) from error


@asynccontextmanager
async def _transaction(connection: Connection, begin: str) -> AsyncIterator[None]:
    """A transaction that knows for whom it is since its first statement."""
    try:
        await connection.execute(begin)
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute(QUERIES["roll_back"])
        raise
    await connection.execute(QUERIES["commit"])


async def _pool(config: StoreConfig, size: int, timeout_ms: int) -> Pool:
    return await asyncpg.create_pool(
        config.url,
        min_size=1,
        max_size=size,
        timeout=config.connect_timeout_ms / 1000,
        command_timeout=timeout_ms / 1000,
        max_inactive_connection_lifetime=0,
        init=use_plain_values,
        reset=_keep_session,
        server_settings={
            "application_name": f"wheelsched-{config.role}",
            "role": f"wheelsched_{config.role}",
            "search_path": "wheelsched",
            "statement_timeout": str(timeout_ms),
            "idle_in_transaction_session_timeout": str(timeout_ms),
            "jit": "off",
            **PLANNING[config.role],
        },
    )


async def _keep_session(_: Connection) -> None:
    """Saves the round trip of a reset: no statement of ours leaves anything in its session."""
