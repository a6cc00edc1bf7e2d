"""The lease connection on real Postgres: its end is seen at once, and its backend by the others."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit, urlunsplit
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace
from tests.integration.test_database_failures import through
from tests.ports import reserved_port
from tests.postgres import Connect, reachable_directory
from tests.proxy import Proxy
from tests.waiting import WAIT_LIMIT_S, until

from wheelsched.config import EmbeddedConfig, StoreConfig
from wheelsched.core.lease import Backend
from wheelsched.embedded.postgres import EmbeddedPostgres
from wheelsched.errors import StoreTimeout, StoreUnavailable
from wheelsched.ports import BackendView, Lease, LeaseStore
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.lease_connection import Described, LeaseConnections
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.schema.migrate import migrate

pytestmark = pytest.mark.proof

TTL_US = 60_000_000
LONG_MS = 120_000  # what succeeds has all the time that a busy machine may take


def with_long_timeouts(url: str) -> StoreConfig:
    return StoreConfig(url=url, role="shard", lease_timeout_ms=LONG_MS, connect_timeout_ms=LONG_MS)


@pytest.fixture
async def owner(database: str, connect: Connect) -> Connection:
    return await connect(database)


@pytest.fixture
async def leases(database: str) -> AsyncIterator[LeaseStore]:
    async with await Database.open(with_long_timeouts(database)) as opened:
        yield PostgresStore(opened).leases


async def view_of(leases: LeaseStore, shard_id: UUID) -> BackendView:
    return next(view for view in await leases.watch_backends() if view.shard_id == shard_id)


async def waits_for_lock(owner: Connection, pid: int) -> bool:
    return bool(
        await owner.fetchval(
            "SELECT count(*) > 0 FROM pg_locks WHERE pid = $1 AND NOT granted", pid
        )
    )


@contextmanager
def short_lease_timeout(connections: LeaseConnections) -> Iterator[None]:
    """Leaves little time for a renewal over the lease connection that is open."""
    session = connections._session
    connections._session = replace(session, command_timeout_ms=100)
    try:
        yield
    finally:
        connections._session = session


async def fail_to_renew(leases: LeaseStore, lease: Lease, owner: Connection) -> None:
    """A renewal waits for a lock until the server ends it. The server has nothing left to do."""
    pid = (await view_of(leases, lease.shard_id)).backend.pid
    async with owner.transaction():
        await owner.execute("SELECT FROM shards FOR UPDATE")
        renewing = asyncio.create_task(leases.renew(lease, TTL_US))
        await until(lambda: waits_for_lock(owner, pid))
        assert await owner.fetchval("SELECT pg_cancel_backend($1)", pid)
        with pytest.raises(StoreTimeout):
            await renewing
    assert leases.is_connected()


def terminate_while_frozen(url: str, pid: int) -> None:
    """Ends a backend while the loop of this process stands still, as when it is frozen."""

    async def terminate() -> None:
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT pg_terminate_backend($1, 20000)", pid)
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(terminate()))
    thread.start()
    thread.join(60)


async def test_a_process_that_was_frozen_sees_the_end_before_it_does_anything(
    database: str, leases: LeaseStore
) -> None:
    lease = await leases.join(uuid4(), TTL_US)
    assert leases.is_connected()
    terminate_while_frozen(database, (await view_of(leases, lease.shard_id)).backend.pid)
    assert not leases.is_connected()  # without a turn of the loop


async def test_a_cut_connection_is_replaced_at_the_next_renewal(database: str) -> None:
    options = parse_qs(urlsplit(database).query)
    async with (
        Proxy(f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}") as proxy,
        await Database.open(with_long_timeouts(through(proxy, database, "unused"))) as opened,
    ):
        leases = PostgresStore(opened).leases
        lease = await leases.join(uuid4(), TTL_US)
        before = (await view_of(leases, lease.shard_id)).backend
        proxy.cut()
        async with asyncio.timeout(WAIT_LIMIT_S):
            await leases.wait_disconnected()
        assert not leases.is_connected()
        assert (await leases.renew(lease, TTL_US)).renewals == 1
        assert leases.is_connected()
        assert (await view_of(leases, lease.shard_id)).backend.pid != before.pid


async def test_a_renewal_that_timed_out_goes_over_a_new_connection_and_then_ends_the_old(
    database: str, owner: Connection
) -> None:
    """A slow renewal costs no trust: the old connection is open until the new one has renewed.

    It may still be written, when the lock is free: then it publishes nothing.
    """
    async with await Database.open(with_long_timeouts(database)) as opened:
        leases = PostgresStore(opened).leases
        lease = await leases.join(uuid4(), TTL_US)
        before = (await view_of(leases, lease.shard_id)).backend
        async with owner.transaction():
            await owner.execute("SELECT FROM shards FOR UPDATE")
            with short_lease_timeout(opened.lease_connections), pytest.raises(StoreTimeout):
                await leases.renew(lease, TTL_US)
            assert leases.is_connected()
        await leases.renew(lease, TTL_US)
        assert leases.is_connected()
        assert (await view_of(leases, lease.shard_id)).backend.pid != before.pid

        async def is_gone() -> bool:
            query = "SELECT count(*) = 0 FROM pg_stat_get_activity($1)"
            return bool(await owner.fetchval(query, before.pid))

        await until(is_gone)


async def test_a_renewal_over_a_new_connection_whose_answer_is_lost_ends_trust(
    database: str, owner: Connection
) -> None:
    """The others see the end of the new connection, so the old one must not be relied on."""
    options = parse_qs(urlsplit(database).query)
    async with (
        Proxy(f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}") as proxy,
        await Database.open(with_long_timeouts(through(proxy, database, "unused"))) as opened,
    ):
        leases = PostgresStore(opened).leases
        lease = await leases.join(uuid4(), TTL_US)
        before = (await view_of(leases, lease.shard_id)).backend
        await fail_to_renew(leases, lease, owner)
        proxy.trap("renew", "sent")
        with pytest.raises(StoreUnavailable):
            await leases.renew(lease, TTL_US)

        async def is_published() -> bool:
            return (await view_of(leases, lease.shard_id)).backend.pid != before.pid

        await until(is_published)
        assert not leases.is_connected()
        await leases.renew(lease, TTL_US)
        assert leases.is_connected()


async def test_a_slow_renewal_is_repeated_over_the_old_connection_if_there_is_no_other(
    database: str, owner: Connection
) -> None:
    role = f"few_{uuid4().hex}"
    await owner.execute(f"CREATE ROLE {role} LOGIN IN ROLE wheelsched_shard")
    try:
        url = urlunsplit(urlsplit(database)._replace(netloc=f"{role}@"))
        async with await Database.open(with_long_timeouts(url)) as few:
            leases = PostgresStore(few).leases
            lease = await leases.join(uuid4(), TTL_US)
            before = (await view_of(leases, lease.shard_id)).backend
            await owner.execute(f"ALTER ROLE {role} CONNECTION LIMIT 1")
            await fail_to_renew(leases, lease, owner)
            with pytest.raises(StoreUnavailable):
                await leases.renew(lease, TTL_US)
            assert (await leases.renew(lease, TTL_US)).renewals == 1
            assert leases.is_connected()
            assert (await view_of(leases, lease.shard_id)).backend == before
    finally:
        await owner.execute(f"DROP ROLE {role}")


async def test_a_pid_that_another_backend_has_is_not_taken_over(
    database: str, leases: LeaseStore, owner: Connection
) -> None:
    """Where the start is hidden, a reused pid looks alive: the takeover comes later."""
    lease, dead = await leases.join(uuid4(), TTL_US), uuid4()
    await owner.execute(
        "INSERT INTO shards (shard_id, expires_at, backend_pid, server_start)"
        " VALUES ($1, 'infinity', pg_backend_pid(), pg_postmaster_start_time())",
        dead,
    )
    seen = await view_of(leases, dead)
    assert seen.is_alive
    assert not await leases.take_over_gone(lease, seen)


async def test_a_pid_whose_start_differs_is_gone(
    database: str, leases: LeaseStore, owner: Connection
) -> None:
    await owner.execute("GRANT pg_read_all_stats TO wheelsched_shard")
    try:
        lease, dead = await leases.join(uuid4(), TTL_US), uuid4()
        own = await view_of(leases, lease.shard_id)
        assert own.is_alive
        assert own.backend.started_us is not None
        await owner.execute(
            "INSERT INTO shards (shard_id, expires_at, backend_pid, backend_start, server_start)"
            " VALUES ($1, 'infinity', pg_backend_pid(), '2026-01-01', pg_postmaster_start_time())",
            dead,
        )
        seen = await view_of(leases, dead)
        assert not seen.is_alive
        assert await leases.take_over_gone(lease, seen)
    finally:
        await owner.execute("REVOKE pg_read_all_stats FROM wheelsched_shard")


async def test_a_takeover_of_a_gone_shard_waits_for_its_last_claim(
    database: str, leases: LeaseStore, owner: Connection, connect: Connect
) -> None:
    """Its lease connection has ended, and a statement of it is still under way elsewhere."""
    lease, dead = await leases.join(uuid4(), TTL_US), uuid4()
    await owner.execute(
        "INSERT INTO shards (shard_id, expires_at, backend_pid, server_start)"
        " VALUES ($1, 'infinity', 1, pg_postmaster_start_time())",
        dead,
    )
    gone = await view_of(leases, dead)
    assert not gone.is_alive
    claims = await connect(database)
    waits = "SELECT count(*) > 0 FROM pg_locks WHERE $1 = ANY(pg_blocking_pids(pid))"
    async with claims.transaction():
        await claims.fetch("SELECT FROM shards WHERE shard_id = $1 FOR KEY SHARE", dead)
        taking = asyncio.create_task(leases.take_over_gone(lease, gone))
        await until(lambda: owner.fetchval(waits, claims.get_server_pid()))
        assert not taking.done()
    assert await taking


@pytest.mark.parametrize(
    ("ends_after_us", "is_published"),
    [(None, True), (TTL_US, True), (TTL_US - 1, False), (60 * TTL_US, True)],
)
def test_a_backend_that_the_server_may_end_within_a_lease_is_not_published(
    ends_after_us: int | None, is_published: bool
) -> None:
    backend = Backend(1, None, 2)
    published = Described(backend, ends_after_us).published(TTL_US)
    assert published == (backend if is_published else None)


@pytest.mark.parametrize(
    ("setting", "is_published"),
    [
        ("tcp_user_timeout=50s", False),
        ("tcp_user_timeout=70s", True),
        ("idle_session_timeout=50s", False),
        ("tcp_keepalives_idle=1", True),  # and 9 probes
    ],
)
async def test_over_tcp_the_timeouts_of_the_session_decide(
    setting: str, is_published: bool
) -> None:
    """A server may end the connection of a shard that it cannot reach, and no message arrives."""
    name, _, value = setting.partition("=")
    home = reachable_directory()
    with reserved_port() as port:
        config = EmbeddedConfig(home=home, port=port, settings={"fsync": "off", name: value})
        with EmbeddedPostgres.start(config) as server:
            connection = await asyncpg.connect(server.url)
            await migrate(connection)
            await connection.close()
            for url, is_expected in ((server.url, True), (server.tcp_url, is_published)):
                async with await Database.open(with_long_timeouts(url)) as opened:
                    leases = PostgresStore(opened).leases
                    lease = await leases.join(uuid4(), TTL_US)
                    published = [view.shard_id for view in await leases.watch_backends()]
                    assert (lease.shard_id in published) is is_expected
    shutil.rmtree(home)


async def test_a_renewal_over_a_former_connection_publishes_nothing(
    leases: LeaseStore, owner: Connection
) -> None:
    lease = await leases.join(uuid4(), TTL_US)
    await owner.execute("UPDATE shards SET lease_connection = 99, backend_pid = 7")
    await leases.renew(Lease(lease.shard_id, lease.fence), TTL_US)
    assert (await view_of(leases, lease.shard_id)).backend.pid == 7
