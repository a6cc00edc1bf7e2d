"""A database behind pgbouncer: session mode works, and transaction mode is refused at the start."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle
from uuid import uuid4

import asyncpg
import pytest
from tests.api import document, serve
from tests.fleet import fleet_on, iso
from tests.pgbouncer import Pgbouncer, running_pgbouncer
from tests.ports import HOST
from tests.proxy import Proxy
from tests.replication import socket_of
from tests.stack import run
from tests.waiting import until

from wheelsched.config import StoreConfig
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.daemon.checkup import Health, check_database
from wheelsched.daemon.database import migrate_database, read_schema
from wheelsched.errors import HintsLost, StoreUnavailable, TransactionPooling
from wheelsched.ports import Hint
from wheelsched.store.connections.database import Database
from wheelsched.store.for_shard.hints import PostgresHints, hint
from wheelsched.store.postgres import PostgresStore
from wheelsched.values.duration import SECOND

pytestmark = pytest.mark.proof  # each has a pooler of its own

BESIDE = OverlapPolicy(policy=OnOverlap.ALLOW)
EXPIRED = """
    SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '%idle_session_timeout%'
        AND pid != pg_backend_pid())
"""


def config(url: str, role: str = "shard") -> StoreConfig:
    return StoreConfig(url=url, role=role)  # type: ignore[arg-type]


@pytest.fixture
def pooler(database: str) -> Iterator[Pgbouncer]:
    with running_pgbouncer(database, "session") as pooler:
        yield pooler


async def test_a_shard_fires_in_session_mode(pooler: Pgbouncer) -> None:
    async with fleet_on(pooler.url) as fleet:
        await fleet.start("a")
        recurring = await fleet.register(["* * * * * *"] * 10, overlap=BESIDE)
        start_us = await fleet.now_us() + 2 * SECOND
        one_offs = await fleet.register([iso(start_us + n * 20_000) for n in range(50)])
        await fleet.until_settled(recurring, 10 * 3)
        await fleet.until_settled(one_offs, 50)
        assert set(fleet.arrivals.values()) == {1}


async def test_the_api_works_in_session_mode(pooler: Pgbouncer) -> None:
    async with (
        await Database.open(config(pooler.url, "api")) as as_api,
        await Database.open(config(pooler.url)) as as_shard,
        serve(PostgresStore(as_api), PostgresStore(as_shard)) as api,
    ):
        created = await api.call("POST", "/jobs", document())
        assert created.status == 201
        answers = await asyncio.gather(
            *(api.call("GET", f"/jobs/{created.body['job_id']}") for _ in range(40))
        )
        assert {answer.status for answer in answers} == {200}


async def test_hints_arrive_in_session_mode(pooler: Pgbouncer, database: str) -> None:
    heard: list[Hint] = []
    async with (
        await PostgresHints.open(config(pooler.url), heard.append) as hints,
        await Database.open(config(database)) as direct,
    ):
        async with direct.connection() as connection:
            await hint(connection, uuid4())
        await hints.confirm()
        assert len(heard) == 1


async def test_operators_work_in_session_mode(pooler: Pgbouncer) -> None:
    await migrate_database(pooler.url)
    async with fleet_on(pooler.url) as fleet:
        await fleet.start("a")
        findings = await check_database(pooler.url)
    assert {finding.subject for finding in findings if finding.verdict is Health.OK} >= {
        "schema",
        "hints",
    }


@asynccontextmanager
async def busy_clients(url: str, count: int) -> AsyncIterator[None]:
    """Other clients of the pooler, so that it has as many server connections and more to do."""

    async def work() -> None:
        connection = await asyncpg.connect(url, statement_cache_size=0)
        try:
            while True:
                async with connection.transaction():
                    await connection.fetchval("SELECT pg_sleep(0.02)")
        finally:
            connection.terminate()

    clients = [asyncio.create_task(work()) for _ in range(count)]
    try:
        await asyncio.sleep(0.5)
        yield
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def make_idle_servers(url: str, count: int) -> None:
    """Leaves the pooler with as many server connections that nobody uses."""
    clients = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(count)]
    await asyncio.gather(*(client.fetchval("SELECT pg_sleep(0.3)") for client in clients))
    for client in clients:
        await client.close()


@pytest.mark.parametrize("round_robin", [0, 1])
@pytest.mark.parametrize(
    ("size", "idle", "busy"), [(1, 0, 0), (20, 0, 0), (20, 8, 0), (20, 2, 4), (1, 0, 2)]
)
async def test_transaction_mode_is_refused(
    size: int, idle: int, busy: int, round_robin: int, database: str
) -> None:
    settings = {"default_pool_size": size, "server_round_robin": round_robin}
    with running_pgbouncer(database, "transaction", **settings) as pooler:
        await make_idle_servers(pooler.url, min(idle, size))
        async with busy_clients(pooler.url, busy):
            with pytest.raises(TransactionPooling, match="session mode"):
                await Database.open(config(pooler.url))
            with pytest.raises(TransactionPooling):
                await PostgresHints.open(config(pooler.url), lambda _: None)
            with pytest.raises(TransactionPooling):
                await read_schema(pooler.url)


@asynccontextmanager
async def balanced(ports: list[int]) -> AsyncIterator[int]:
    """The port of a load balancer that gives each connection to the next of several ports."""
    turns = cycle(ports)
    carrying: set[asyncio.Task[None]] = set()

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                target.write(data)
        except OSError:
            pass
        finally:
            target.transport.abort()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection(HOST, next(turns))
        for source, target in ((reader, server), (answers, writer)):
            task = asyncio.create_task(carry(source, target))
            carrying.add(task)
            task.add_done_callback(carrying.discard)

    listening = await asyncio.start_server(accept, HOST, 0)
    try:
        yield int(listening.sockets[0].getsockname()[1])
    finally:
        listening.close()
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)


@pytest.mark.parametrize(("mode", "is_refused"), [("transaction", True), ("session", False)])
async def test_poolers_behind_a_load_balancer(mode: str, is_refused: bool, database: str) -> None:
    """Each has a single client, which it gives the same server process every time."""
    with running_pgbouncer(database, mode) as first, running_pgbouncer(database, mode) as second:
        async with balanced([first.port, second.port]) as port:
            url = first.url.replace(f":{first.port}/", f":{port}/")
            if is_refused:
                with pytest.raises(TransactionPooling):
                    await Database.open(config(url))
            else:
                async with await Database.open(config(url)) as opened:
                    await PostgresStore(opened).leases.survey()


async def test_a_busy_pooler_in_transaction_mode_is_not_taken_for_one_in_session_mode(
    database: str,
) -> None:
    """It reads the answer of a server process and the end of that process at the same time."""
    observer = await asyncpg.connect(database)
    async with Proxy(socket_of(database)) as proxy:
        with (
            running_pgbouncer(database, "transaction") as first,
            running_pgbouncer(database, "transaction", proxy.port) as second,
        ):
            trap = proxy.trap("expire", "answered")
            async with balanced([first.port, second.port]) as port:
                url = first.url.replace(f":{first.port}/", f":{port}/")
                opening = asyncio.create_task(Database.open(config(url)))
                await trap.spring()
                with second.frozen():
                    trap.freed.set()
                    await until(lambda: observer.fetchval(EXPIRED))
                with pytest.raises(TransactionPooling):
                    await opening
    await observer.close()


@pytest.mark.parametrize("role", ["shard", "api"])
def test_a_process_says_what_to_do_about_transaction_mode(role: str, database: str) -> None:
    with running_pgbouncer(database, "transaction") as pooler:
        said = run(role, "--database-url", pooler.url, code=6)
    assert "transaction pooling is not supported; use session mode" in said


async def test_the_doctor_finds_transaction_mode(database: str) -> None:
    with running_pgbouncer(database, "transaction") as pooler:
        findings = await check_database(pooler.url)
    assert findings[-1].verdict is Health.FAILED
    assert "session mode" in findings[-1].detail


async def test_a_listener_behind_a_pooler_that_changes_its_mode_loses_its_hints(
    pooler: Pgbouncer,
) -> None:
    async with await PostgresHints.open(config(pooler.url), lambda _: None) as hints:
        await hints.confirm()
        await pooler.reload("transaction")
        async with busy_clients(pooler.url, 4):

            async def is_lost() -> bool:
                try:
                    await hints.confirm()
                except StoreUnavailable:  # it depends on the version what fails first
                    return True
                return False

            await until(is_lost)


async def test_a_listener_whose_process_does_not_listen_has_lost_its_hints(database: str) -> None:
    """E.g. because a pooler has reset the session between two statements."""
    connection = await asyncpg.connect(database)
    async with PostgresHints(connection, connection.get_server_pid()) as hints:
        with pytest.raises(HintsLost, match="no longer listens"):
            await hints.confirm()


async def test_a_listener_that_another_process_answers_is_told_so(database: str) -> None:
    connection = await asyncpg.connect(database)
    pid = connection.get_server_pid()
    async with PostgresHints(connection, pid + 1) as hints:
        with pytest.raises(HintsLost, match=f"process {pid + 1} listens, but {pid} has answered"):
            await hints.confirm()
