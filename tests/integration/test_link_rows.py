"""A link on the rows of Postgres: who is not in the database is not served."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

from structlog.testing import capture_logs
from tests.desks import TENANT, MemoryShard, queue_run
from tests.waiting import until

from wheelsched.clock import SystemClock
from wheelsched.config import LinkConfig, StoreConfig
from wheelsched.core.model import RunKey
from wheelsched.daemon.bootstrap import open_clock
from wheelsched.daemon.links import LinkListener, open_distributor, open_listener
from wheelsched.delivery.queue.distributor import Distributor
from wheelsched.ports import Lease, ShardLink
from wheelsched.ports.work import QueueRun
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore

CONFIG = LinkConfig(tick_ns=100_000_000, silent_ticks=50, backoff_ns=10_000_000)
TTL_US = 600_000_000


class Member:
    """A shard with a row, a listener and desks in memory."""

    def __init__(self, store: PostgresStore, listener: LinkListener, desks: MemoryShard) -> None:
        self._store = store
        self._listener = listener
        self.desks = desks
        self.lease: Lease

    async def join(self, link: ShardLink | None = None) -> UUID:
        """Joins under a new id, and publishes its link."""
        shard_id = uuid4()
        self._listener.join(shard_id)
        published = self._listener.link if link is None else link
        self.lease = await self._store.leases.join(shard_id, TTL_US, link=published)
        return shard_id

    async def leave(self) -> None:
        await self._store.leases.leave(self.lease)

    @property
    def link(self) -> ShardLink:
        return self._listener.link


@asynccontextmanager
async def a_shard(url: str) -> AsyncIterator[Member]:
    config, desks = StoreConfig(url=url, role="shard", connections=2), MemoryShard()
    async with await Database.open(config) as database:
        store = PostgresStore(database)
        async with open_listener(CONFIG, desks, store.links, SystemClock()) as listener:
            yield Member(store, listener, desks)


@asynccontextmanager
async def a_process(url: str) -> AsyncIterator[Distributor]:
    config, machine = StoreConfig(url=url, role="api", connections=2), SystemClock()
    async with await Database.open(config) as database:
        store = PostgresStore(database)
        clock = await open_clock(machine, store.leases)
        async with open_distributor(CONFIG, store, machine, clock) as distributor:
            yield distributor


async def so(condition: Callable[[], object]) -> None:
    async def ask() -> object:
        return condition()

    await until(ask)


async def test_a_run_goes_from_a_shard_to_a_process_that_are_in_the_database(database: str) -> None:
    got: list[QueueRun] = []
    async with a_shard(database) as shard, a_process(database) as process:
        await shard.join()
        subscription = process.subscribe(
            TENANT, ["billing"], lambda runs, _: got.extend(runs), lambda _: None
        )
        subscription.add_credits(1)
        await so(lambda: process.shards == 1)
        run = queue_run()
        shard.desks.add(run)
        await so(lambda: got)
        assert got == [run]
        assert isinstance(got[0].attempt.key, RunKey)


async def test_a_link_follows_the_row_of_its_shard(database: str) -> None:
    async with a_shard(database) as shard, a_process(database) as process:
        await shard.join()
        await so(lambda: process.shards == 1)
        await shard.leave()
        await so(lambda: process.shards == 0)
        await shard.join()  # under a new id
        await so(lambda: process.shards == 1 and len(shard.desks.desks) == 1)


async def test_a_listener_that_does_not_know_the_key_of_the_row_gets_no_credit(
    database: str,
) -> None:
    """Somebody else listens at the address of the shard."""
    async with a_shard(database) as shard, a_process(database) as process:
        with capture_logs() as logs:
            await shard.join(ShardLink(shard.link.address, b"x" * 32))
            await so(lambda: [log for log in logs if log["event"] == "link.refused"])
        assert process.shards == 0
        assert not shard.desks.desks


async def test_a_process_without_a_row_gets_no_runs(database: str) -> None:
    async with a_shard(database) as shard:
        owner = StoreConfig(url=database, role="owner", connections=1)
        async with await Database.open(owner) as administrator, a_process(database) as process:
            await shard.join()
            await so(lambda: process.shards == 1)
            (row,) = await _processes(administrator)
            await PostgresStore(administrator).links.withdraw(row)
            with capture_logs() as logs:
                await shard.leave()
                await shard.join()
                await so(lambda: [log for log in logs if "is not in the database" in str(log)])


async def test_a_process_removes_its_row(database: str) -> None:
    owner = StoreConfig(url=database, role="owner", connections=1)
    async with await Database.open(owner) as administrator:
        async with a_process(database):

            async def is_there() -> bool:
                return len(await _processes(administrator)) == 1

            await until(is_there)
        assert await _processes(administrator) == []


async def test_no_key_is_logged(database: str) -> None:
    with capture_logs() as logs:
        async with a_shard(database) as shard, a_process(database) as process:
            await shard.join()
            await so(lambda: process.shards == 1)
            key = shard.link.key
    assert [log for log in logs if log["event"] == "link.opened"]
    assert key.hex() not in str(logs)
    assert repr(key) not in repr(logs)


async def _processes(database: Database) -> list[UUID]:
    rows = await database.fetch("SELECT process_id FROM wheelsched.api_processes")
    return [row["process_id"] for row in rows]
