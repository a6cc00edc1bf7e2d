"""A URL that names several hosts: the one that accepts writes is used, whatever the others do.

No timeout of the store is shorter than a test: what hangs would hang for a minute.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs
from tests.blackholes import silent_server, unreachable_server
from tests.fleet import Fleet, fleet_on
from tests.ports import HOST, reserved_port
from tests.postgres import with_database
from tests.proxy import Proxy
from tests.replication import Standby, running_standby, socket_of, temporary_primary
from tests.waiting import until

from wheelsched.config import StoreConfig
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.daemon.database import read_schema
from wheelsched.embedded.postgres import EmbeddedPostgres
from wheelsched.errors import NoPrimary, StoreUnavailable
from wheelsched.ports import Hint, Lease
from wheelsched.store.connections.database import Database
from wheelsched.store.for_shard.hints import PostgresHints, hint
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.schema.migrate import migrate

pytestmark = pytest.mark.proof  # each has servers of its own

NAME = "several"
LONG_MS = 60_000
AT_ONCE_S = 20  # much less than a minute, on a machine that is busy
TTL_US = 60_000_000
BESIDE = OverlapPolicy(policy=OnOverlap.ALLOW)


@pytest.fixture(scope="module")
def primary() -> Iterator[EmbeddedPostgres]:
    with temporary_primary() as server:
        asyncio.run(_make_database(server))
        yield server


async def _make_database(server: EmbeddedPostgres) -> None:
    connection = await asyncpg.connect(server.url)
    await connection.execute(f"CREATE DATABASE {NAME}")
    await connection.close()
    connection = await asyncpg.connect(with_database(server.url, NAME))
    await migrate(connection)
    await connection.close()


@pytest.fixture
async def proxy(primary: EmbeddedPostgres) -> AsyncIterator[Proxy]:
    async with Proxy(socket_of(primary.url)) as proxy:
        yield proxy


def url_of(*hosts: str) -> str:
    return f"postgresql://wheelsched:unused@{','.join(hosts)}/{NAME}?sslmode=disable"


def address(proxy: Proxy) -> str:
    return f"{HOST}:{proxy.port}"


def config(url: str, **changes: int) -> StoreConfig:
    timeouts = {
        "command_timeout_ms": LONG_MS,
        "lease_timeout_ms": LONG_MS,
        "connect_timeout_ms": LONG_MS,
    }
    return StoreConfig(url=url, role="shard", **(timeouts | changes))


async def join(database: Database) -> Lease:
    return await PostgresStore(database).leases.join(uuid4(), TTL_US)


@pytest.mark.parametrize("broken", [silent_server, unreachable_server, reserved_port])
async def test_a_first_host_that_does_not_answer_delays_nothing(
    broken: Callable[[], AbstractContextManager[object]], proxy: Proxy
) -> None:
    with broken() as place:
        first = place if isinstance(place, str) else f"{HOST}:{place}"
        url = url_of(first, address(proxy))
        async with asyncio.timeout(AT_ONCE_S):
            async with await Database.open(config(url)) as database:
                await join(database)
            async with await PostgresHints.open(config(url), lambda _: None) as hints:
                await hints.confirm()
            assert (await read_schema(url)).pending == []


async def test_two_hosts_that_lead_to_one_server_do_not_take_turns(
    primary: EmbeddedPostgres, proxy: Proxy
) -> None:
    """E.g. a pair of poolers. The slower one of them stays in use if it came first."""
    async with Proxy(socket_of(primary.url)) as other:
        url = url_of(address(proxy), address(other))
        other.delay_s = 1
        with capture_logs() as logs:
            async with await Database.open(config(url)) as database:
                other.delay_s, proxy.delay_s = 0, 0.005
                await asyncio.gather(*(database.fetchval("SELECT pg_sleep(0.1)") for _ in range(6)))
                await join(database)
        assert "database.moved" not in {line["event"] for line in logs}


async def test_several_hosts_that_all_fail_are_named(proxy: Proxy) -> None:
    proxy.is_refusing = True
    with reserved_port() as port:
        with pytest.raises(NoPrimary) as raised:
            await Database.open(config(url_of(f"{HOST}:{port}", address(proxy))))
        assert f"{HOST}:{port}: " in str(raised.value)
        assert f"{HOST}:{proxy.port}: " in str(raised.value)


async def test_a_standby_is_not_used(primary: EmbeddedPostgres, proxy: Proxy) -> None:
    async with running_standby(primary) as standby, Proxy(socket_of(standby.url)) as to_standby:
        url = url_of(address(to_standby), address(proxy))
        async with await Database.open(config(url)) as database:
            await join(database)
        with pytest.raises(NoPrimary, match="read-only"):
            await Database.open(config(url_of(address(to_standby))))


async def test_a_standby_that_is_promoted_while_the_old_primary_hangs(
    primary: EmbeddedPostgres, proxy: Proxy
) -> None:
    """The search goes on at the standby while the first host has not answered."""
    async with running_standby(primary) as standby, Proxy(socket_of(standby.url)) as to_standby:
        proxy.hold()
        opening = asyncio.create_task(
            Database.open(config(url_of(address(proxy), address(to_standby))))
        )
        await asyncio.sleep(0.5)  # the standby has said that it is one
        assert not opening.done()
        await standby.promote()
        async with asyncio.timeout(AT_ONCE_S), await opening as database:
            await join(database)


class Moved:
    """Two proxies to a primary and its standby, and a database that is open on both."""

    def __init__(self, primary: Proxy, standby: Proxy, server: Standby, database: Database) -> None:
        self.primary = primary
        self.standby = standby
        self.server = server
        self.database = database

    async def sessions(self, url: str) -> int:
        """How many connections of ours a server has."""
        connection = await asyncpg.connect(with_database(url, NAME))
        count: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'wheelsched-%'"
        )
        await connection.close()
        return count


@asynccontextmanager
async def two_servers(primary: EmbeddedPostgres, **changes: int) -> AsyncIterator[Moved]:
    async with AsyncExitStack() as stack:
        to_primary = await stack.enter_async_context(Proxy(socket_of(primary.url)))
        standby = await stack.enter_async_context(running_standby(primary))
        to_standby = await stack.enter_async_context(Proxy(socket_of(standby.url)))
        url = url_of(address(to_primary), address(to_standby))
        database = await stack.enter_async_context(await Database.open(config(url, **changes)))
        yield Moved(to_primary, to_standby, standby, database)


async def test_statements_in_flight_do_not_wait_for_a_primary_that_hangs(
    primary: EmbeddedPostgres,
) -> None:
    """One short timeout, of the lease, finds the new primary for everybody."""
    async with two_servers(primary, lease_timeout_ms=500) as moved:
        moved.primary.hold()
        waiting = asyncio.create_task(moved.database.fetchval("SELECT 1"))
        await moved.server.promote()
        with capture_logs() as logs:
            async with asyncio.timeout(AT_ONCE_S):
                await until(lambda: _joins(moved.database))
                with pytest.raises(StoreUnavailable):
                    await waiting
                assert await moved.database.fetchval("SELECT 3") == 3
        assert "database.moved" in {line["event"] for line in logs}


async def test_connections_to_a_server_that_became_read_only_are_replaced(
    primary: EmbeddedPostgres,
) -> None:
    """All of them, as soon as one write fails; the listener notices by itself."""
    settings = {"default_transaction_read_only": "off"}
    administration = await asyncpg.connect(primary.url, server_settings=settings)
    async with two_servers(primary) as moved:
        heard: list[Hint] = []
        hints = await PostgresHints.open(
            config(url_of(address(moved.primary), address(moved.standby))), heard.append
        )
        async with AsyncExitStack() as used:
            for _ in range(3):
                await used.enter_async_context(moved.database.connection())
        assert await moved.sessions(primary.url) >= 5
        await moved.server.promote()
        try:
            await administration.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            await administration.execute("SELECT pg_reload_conf()")
            await until(lambda: _fails(hints.confirm()))
            await until(lambda: _fails(moved.database.fetch("UPDATE shards SET address = null")))
            await until(lambda: _none(moved, primary))
            async with asyncio.timeout(AT_ONCE_S):
                await join(moved.database)
            assert await moved.sessions(moved.server.url) >= 1
        finally:
            await administration.execute("ALTER SYSTEM RESET default_transaction_read_only")
            await administration.execute("SELECT pg_reload_conf()")
            await administration.close()


async def _fails(call: Awaitable[object]) -> bool:
    try:
        await call
    except StoreUnavailable:
        return True
    return False


async def _none(moved: Moved, primary: EmbeddedPostgres) -> bool:
    return await moved.sessions(primary.url) == 0


async def test_hints_follow_the_database(primary: EmbeddedPostgres) -> None:
    """With the connector of the database, the listener leaves the server that the others leave."""
    async with two_servers(primary, lease_timeout_ms=500) as moved:
        heard: list[Hint] = []
        settings = config(url_of(address(moved.primary), address(moved.standby)))
        hints = await PostgresHints.open(settings, heard.append, moved.database.connector)
        await hints.confirm()
        await moved.server.promote()
        moved.primary.is_refusing = True
        moved.primary.cut()
        await until(lambda: _joins(moved.database))
        with pytest.raises(StoreUnavailable):
            await hints.confirm()
        async with await PostgresHints.open(
            settings, heard.append, moved.database.connector
        ) as again:
            async with moved.database.connection() as connection:
                await hint(connection, uuid4())
            await again.confirm()
        assert len(heard) == 1


async def _joins(database: Database) -> bool:
    return not await _fails(join(database))


async def test_a_server_that_hangs_neither_holds_connections_nor_blocks_closing(
    proxy: Proxy,
) -> None:
    database = await Database.open(config(url_of(address(proxy)), connections=1))
    await database.fetchval("SELECT 1")
    proxy.hold()
    waiting = asyncio.create_task(database.fetchval("SELECT 1"))
    await asyncio.sleep(0.2)
    async with asyncio.timeout(AT_ONCE_S):
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        hanging = asyncio.create_task(database.fetchval("SELECT 2"))
        await asyncio.sleep(0.2)
        await database.close()
        with pytest.raises(StoreUnavailable):
            await hanging


async def test_a_shard_goes_on_at_the_new_primary_when_the_old_one_is_frozen(
    primary: EmbeddedPostgres,
) -> None:
    """Every process of the old one, which stands first in the URL and keeps its sockets open."""
    async with running_standby(primary) as standby:
        places = [socket_of(server.url).rpartition("/")[0] for server in (primary, standby)]
        url = f"postgresql://wheelsched@/{NAME}?host={','.join(places)}"
        async with fleet_on(url) as fleet:
            await fleet.start("a")
            await fleet.register(["* * * * * *"] * 5, overlap=BESIDE)
            await fleet.until_arrived(15)
            with frozen(primary):
                await until(lambda: _is_silent(fleet))
                await standby.promote()
                promoted_at = time.monotonic()
                await fleet.until_arrived(len(fleet.arrivals) + 5)
                assert time.monotonic() - promoted_at < AT_ONCE_S
                await fleet.kill("a")


async def _is_silent(fleet: Fleet) -> bool:
    """Whether nothing has arrived for longer than jobs of every second have runs armed ahead."""
    before = len(fleet.arrivals)
    await asyncio.sleep(3)
    return len(fleet.arrivals) == before


@contextmanager
def frozen(server: EmbeddedPostgres) -> Iterator[None]:
    """Stops every process of a server."""
    postmaster = int((server.data_directory / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)  # first: it starts no child then, and buries none
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for pid in map(int, children):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in (*map(int, children), postmaster):
            os.kill(pid, signal.SIGCONT)
