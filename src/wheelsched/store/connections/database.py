"""The connection pools of a process, and how its statements run.

Invariant: the lease always has a connection, however busy the others are. Every statement has a
timeout, in the client and on the server.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import asyncpg
import structlog

from wheelsched.closing import Closing
from wheelsched.config import StoreConfig
from wheelsched.errors import PoolExhausted, RightMissing, SchemaTooOld
from wheelsched.ports import Caller
from wheelsched.store.connections.connect import Connector
from wheelsched.store.connections.connection import Connection, RawConnection, use_plain_values
from wheelsched.store.connections.failure import translated_errors
from wheelsched.store.connections.lease_connection import LeaseConnections
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.connections.session import Session
from wheelsched.store.schema.migrate import check_schema
from wheelsched.store.schema.rights import check_rights, read_account

if TYPE_CHECKING:  # asyncpg's classes take type arguments in their stubs only
    from asyncpg.pool import PoolConnectionProxy

    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    PooledConnection: TypeAlias = PoolConnectionProxy[asyncpg.Record]
else:
    Pool = asyncpg.Pool
    PooledConnection = Connection

log = structlog.get_logger("wheelsched.store")

QUERIES = load_queries("session.sql")

# A server that hangs answers neither a cancel request nor the end of a connection.
RELEASE_TIMEOUT_S: Final = 1
CLOSE_TIMEOUT_S: Final = 2
# Why a connection cannot be tidied up. asyncpg ends it then.
ENDED: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)

# The statements of a shard look up every row of a batch by its key, regardless of the statistics.
# Those of today's table or of a new hot second are always wrong, and a hash join over a day of runs
# that is assumed to have one row takes seconds. A generic plan also saves planning over every day
# of history; it is made while tomorrow's table is empty, and must not read that table sequentially
# later. The other roles join batches with each other, so that their plans depend on the lengths.
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

    def __init__(self, config: StoreConfig, connector: Connector, work: Pool, lease: Pool) -> None:
        self._config = config
        self.connector = connector
        self._work = work
        self._lease = lease
        self.lease_connections = LeaseConnections(
            connector, session_of(config, config.lease_timeout_ms)
        )
        self._queues = {
            work: asyncio.Semaphore(config.connections),
            lease: asyncio.Semaphore(config.lease_connections),
        }

    @classmethod
    async def open(cls, config: StoreConfig) -> Self:
        """Connects, and checks the schema and the rights of the role."""
        with translated_errors(), ExitStack() as opened:
            connector = Connector(config.url, config.connect_timeout_ms)
            try:
                work = await _pool(
                    connector, config.connections, session_of(config, config.command_timeout_ms)
                )
            except asyncpg.InvalidParameterValueError as error:  # the role does not exist
                raise SchemaTooOld(
                    f"the server has no role wheelsched_{config.role}; "
                    "run `wheelsched db migrate`, which creates the roles and repairs their rights"
                ) from error
            except asyncpg.InsufficientPrivilegeError as error:
                raise await _not_a_member(connector, config) from error
            opened.callback(work.terminate)
            lease = await _pool(
                connector, config.lease_connections, session_of(config, config.lease_timeout_ms)
            )
            opened.callback(lease.terminate)
            async with work.acquire() as connection:
                await _check(connection, config)
            opened.pop_all()
        return cls(config, connector, work, lease)

    async def close(self) -> None:
        """Waits for statements in flight, and closes every connection, in bounded time."""
        self.connector.close()
        self.lease_connections.close()
        await asyncio.gather(*(_close(pool) for pool in (self._lease, self._work)))

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

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection from the pool for everything but the lease."""
        return self._acquired(self._work, self._config.command_timeout_ms)

    def lease_connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection from the pool for leases and the clock; renewals have their own."""
        return self._acquired(self._lease, self._config.lease_timeout_ms)

    @asynccontextmanager
    async def tenant(self, caller: Caller) -> AsyncIterator[Connection]:
        """A transaction that sees only rows of the caller's tenant, by row-level security."""
        begin = QUERIES["begin_for_tenant"].format(tenant_id=caller.tenant_id)
        async with self.connection() as connection, _transaction(connection, begin):
            yield connection

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Connection]:
        """A transaction that sees all tenants and tokens, but no jobs and runs."""
        begin = QUERIES["begin_for_operator"]
        async with self.connection() as connection, _transaction(connection, begin):
            yield connection

    @asynccontextmanager
    async def _acquired(self, pool: Pool, timeout_ms: int) -> AsyncIterator[Connection]:
        with translated_errors():
            try:
                # Cheaper than the timeout of the pool, which starts a task.
                async with asyncio.timeout(timeout_ms / 1000):
                    connection = await self._next_of(pool)
            except TimeoutError as error:
                if pool.get_idle_size() or pool.get_size() < pool.get_max_size():
                    raise
                raise PoolExhausted from error
            try:
                yield connection
            except asyncpg.ReadOnlySQLTransactionError:
                self.connector.drop()  # also the idle ones: the server became a standby
                raise
            finally:
                try:
                    await _release(pool, connection)
                finally:
                    self._queues[pool].release()

    async def _next_of(self, pool: Pool) -> PooledConnection:
        """A connection, in the order of the requests.

        asyncpg gives a released connection to the task that happens to ask for one at that moment,
        and moves the waiting tasks to the end of its queue. Under load some of them wait four times
        as long as most.
        """
        queue = self._queues[pool]
        await queue.acquire()
        try:
            return await pool.acquire()
        except BaseException:
            queue.release()
            raise


async def _not_a_member(connector: Connector, config: StoreConfig) -> RightMissing:
    session = Session(name="wheelsched-operator", command_timeout_ms=config.command_timeout_ms)
    connection = await connector.connect(session)
    try:
        account = await read_account(connection)
    finally:
        await connection.close(timeout=CLOSE_TIMEOUT_S)
    role = f"wheelsched_{config.role}"
    return account.refused(f"may not use the role {role}", account.membership(role))


async def _check(connection: Connection, config: StoreConfig) -> None:
    """Raises an error unless the schema is current and its roles have their rights."""
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
    """A transaction that `begin` starts, for a tenant or for an operator."""
    try:
        await connection.execute(begin)
        yield
    except BaseException:
        with suppress(*ENDED):
            await connection.execute(QUERIES["roll_back"], timeout=RELEASE_TIMEOUT_S)
        raise
    await connection.execute(QUERIES["commit"])


def session_of(config: StoreConfig, timeout_ms: int) -> Session:
    """The session of a role, with a timeout for each statement."""
    return Session(
        name=f"wheelsched-{config.role}",
        command_timeout_ms=timeout_ms,
        settings={
            "role": f"wheelsched_{config.role}",
            "search_path": "wheelsched",
            "statement_timeout": str(timeout_ms),
            "idle_in_transaction_session_timeout": str(timeout_ms),
            "jit": "off",
            **PLANNING[config.role],
        },
    )


async def _pool(connector: Connector, size: int, session: Session) -> Pool:
    """A pool with one open connection, so that errors show at once."""

    async def connect(*_: object, **__: object) -> RawConnection:
        return await connector.connect(session)

    pool = await asyncpg.create_pool(
        min_size=0,  # nothing but a statement opens a connection
        max_size=size,
        max_inactive_connection_lifetime=0,
        connect=connect,
        init=use_plain_values,
        reset=_keep_session,
    )
    try:
        async with pool.acquire():
            return pool
    except BaseException:
        pool.terminate()
        raise


async def _keep_session(_: Connection) -> None:
    """Replaces the reset of a connection, a round trip: no statement changes session state."""


async def _release(pool: Pool, connection: PooledConnection) -> None:
    """Returns a connection to its pool.

    An error is ignored: the statement already has its result or its own error, which may be the
    cancellation of the task.
    """
    with suppress(*ENDED):
        await pool.release(connection, timeout=RELEASE_TIMEOUT_S)


async def _close(pool: Pool) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await pool.close()
    except ENDED as error:
        log.warning("pool.aborted", error=str(error) or type(error).__name__)
        pool.terminate()
