"""The fence, on a real Postgres: the properties that everything else is built on.

Statements are held open in transactions of their own, so that each test decides what commits
first. A statement that must wait is seen waiting in the server's own view.
"""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.postgres import Connect
from tests.waiting import until

from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.queries import load_queries

FILES = ("leases.sql", "timers.sql", "runs.sql", "days.sql")
QUERIES = {name: sql for file_name in FILES for name, sql in load_queries(file_name).items()}
TTL_US = 3_600_000_000  # no lease expires by itself
DUE_US = 1_800_000_000_000_000
NEXT_US = DUE_US + 60_000_000
TENANT = uuid4()

CLAIM_WITH_PLAIN_EXISTS = """
    UPDATE timers SET due_at = $3
    WHERE job_id = $2 AND EXISTS (SELECT FROM shards WHERE shard_id = $1)
    RETURNING job_id
"""


class Bench:
    """Three connections: the holder's, its renewal's, and the candidate's."""

    def __init__(self, claims: Connection, lease: Connection, other: Connection) -> None:
        self.claims, self.lease, self.other = claims, lease, other
        self.holder, self.candidate, self.job_id = uuid4(), uuid4(), uuid4()

    async def prepare(self) -> None:
        for shard_id in (self.holder, self.candidate):
            arguments = [shard_id, None, TTL_US, None, 1, *[None] * 5]
            await self.lease.fetchval(QUERIES["join_shards"], *arguments)
        await self.lease.execute("INSERT INTO timers VALUES ($1, 7, 1, $2)", self.job_id, DUE_US)
        await self.lease.execute(QUERIES["make_days"], [DUE_US])
        await self.acquire(self.holder)

    async def acquire(self, shard_id: UUID, fence: int = 1) -> list[asyncpg.Record]:
        return await self.lease.fetch(QUERIES["acquire"], shard_id, fence, [7], [0])

    async def renew(self, connection: int = 1, pid: int | None = None) -> int | None:
        """Renews the lease of the holder over its first or a later connection."""
        arguments = [self.holder, TTL_US, 0, connection, pid, None, None]
        renewals: int | None = await self.lease.fetchval(QUERIES["renew"], *arguments)
        return renewals

    async def arm(self, connection: Connection, fence: int = 1) -> asyncpg.Record:
        arguments = [[self.job_id], [DUE_US], [1], [NEXT_US], [TENANT], [1 << 32]]
        row = await connection.fetchrow(QUERIES["arm"], self.holder, fence, *arguments)
        assert row
        return row

    async def expire_holder(self) -> None:
        await self.other.execute(
            "UPDATE shards SET expires_at = '-infinity' WHERE shard_id = $1", self.holder
        )

    async def take_over(self, connection: Connection) -> UUID | None:
        taken: UUID | None = await connection.fetchval(
            QUERIES["take_over"], self.candidate, 1, self.holder, 0
        )
        return taken

    async def is_waiting(self, connection: Connection) -> bool:
        """Whether the connection waits for a lock, by the word of the server."""
        found = await self.other.fetchval(
            "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1",
            connection.get_server_pid(),
        )
        return bool(found)

    async def wait_until_waiting(self, connection: Connection, waiter: "asyncio.Task[Any]") -> None:
        """Waits until the task waits on that connection; one that has failed says so itself."""

        async def is_waiting() -> bool:
            if waiter.done():
                pytest.fail(f"it did not wait: {waiter.result()}")
            return await self.is_waiting(connection)

        await until(is_waiting)

    async def runs(self) -> list[asyncpg.Record]:
        return await self.other.fetch("SELECT * FROM runs")


@pytest.fixture
async def bench(database: str, connect: Connect) -> Bench:
    bench = Bench(await connect(database), await connect(database), await connect(database))
    await bench.prepare()
    return bench


async def test_a_claim_is_won_once_and_its_replay_wins_nothing(bench: Bench) -> None:
    first = await bench.arm(bench.claims)
    replay = await bench.arm(bench.claims)
    assert (first["is_held"], first["won"]) == (True, 1)
    assert (replay["is_held"], replay["won"]) == (True, 0)
    assert len(await bench.runs()) == 1


async def test_a_renewal_does_not_wait_for_an_open_claim(bench: Bench) -> None:
    async with bench.claims.transaction():
        await bench.arm(bench.claims)
        await bench.lease.execute("SET lock_timeout = '1ms'")
        assert await bench.renew() == 1


async def test_a_claim_does_not_wait_for_an_open_renewal(bench: Bench) -> None:
    async with bench.lease.transaction():
        await bench.renew()
        await bench.claims.execute("SET lock_timeout = '1ms'")
        assert (await bench.arm(bench.claims))["won"] == 1


async def test_two_claims_of_one_shard_do_not_wait_for_each_other(bench: Bench) -> None:
    async with bench.claims.transaction():
        await bench.arm(bench.claims)
        await bench.other.execute("SET lock_timeout = '1ms'")
        held = await bench.other.fetchval(
            "SELECT true FROM shards WHERE shard_id = $1 FOR KEY SHARE", bench.holder
        )
        assert held


async def test_a_takeover_waits_for_the_claim_in_flight(bench: Bench) -> None:
    await bench.expire_holder()
    async with bench.claims.transaction():
        assert (await bench.arm(bench.claims))["won"] == 1
        taking = asyncio.create_task(bench.take_over(bench.lease))
        await bench.wait_until_waiting(bench.lease, taking)
    assert await taking == bench.holder
    assert [run["shard"] for run in await bench.runs()] == [bench.holder]


async def test_a_claim_that_waited_for_a_takeover_wins_nothing(bench: Bench) -> None:
    await bench.expire_holder()
    async with bench.lease.transaction():
        assert await bench.take_over(bench.lease) == bench.holder
        arming = asyncio.create_task(bench.arm(bench.claims))
        await bench.wait_until_waiting(bench.claims, arming)
    assert (await arming)["is_held"] is False
    assert await bench.runs() == []
    assert await bench.other.fetchval("SELECT due_at FROM timers") == DUE_US


async def test_a_claim_after_a_takeover_wins_nothing(bench: Bench) -> None:
    await bench.expire_holder()
    await bench.take_over(bench.lease)
    assert (await bench.arm(bench.claims))["is_held"] is False
    assert await bench.runs() == []


@pytest.mark.parametrize("name", ["adopt", "arm_retries"])
async def test_a_takeover_waits_for_whatever_makes_a_run_the_shards(
    bench: Bench, name: str
) -> None:
    await bench.arm(bench.claims)
    await bench.other.execute(
        "UPDATE runs SET state = $1, retry_at = due_at",
        "armed" if name == "adopt" else "retrying",
    )
    times = {"adopt": [1 << 32], "arm_retries": [DUE_US]}[name]
    arguments = [[bench.job_id], [DUE_US], times, [(1 << 32) + 1]]
    await bench.expire_holder()
    async with bench.claims.transaction():
        await bench.claims.fetch(QUERIES[name], bench.holder, 1, *arguments)
        taking = asyncio.create_task(bench.take_over(bench.lease))
        await bench.wait_until_waiting(bench.lease, taking)
    assert await taking == bench.holder
    assert [run["token"] for run in await bench.runs()] == [(1 << 32) + 1]


async def test_a_plain_exists_does_not_fence(bench: Bench) -> None:
    """Why the fence is a lock: with EXISTS a claim commits after the takeover has committed."""
    await bench.expire_holder()
    async with bench.claims.transaction():
        claimed = await bench.claims.fetchval(
            CLAIM_WITH_PLAIN_EXISTS, bench.holder, bench.job_id, NEXT_US
        )
        assert claimed == bench.job_id
        assert await bench.take_over(bench.lease) == bench.holder
        assert await bench.other.fetchval("SELECT due_at FROM timers") == DUE_US
    assert await bench.other.fetchval("SELECT due_at FROM timers") == NEXT_US


async def test_handing_over_waits_for_the_claim_in_flight(bench: Bench) -> None:
    async with bench.claims.transaction():
        assert (await bench.arm(bench.claims))["won"] == 1
        releasing = asyncio.create_task(
            bench.lease.fetchval(QUERIES["release"], bench.holder, 1, [7], False)
        )
        await bench.wait_until_waiting(bench.lease, releasing)
    assert await releasing == 2


async def test_a_claim_that_waited_for_a_hand_over_wins_nothing(bench: Bench) -> None:
    async with bench.lease.transaction():
        await bench.lease.fetchval(QUERIES["release"], bench.holder, 1, [7], False)
        arming = asyncio.create_task(bench.arm(bench.claims))
        await bench.wait_until_waiting(bench.claims, arming)
    assert (await arming)["is_held"] is False
    assert await bench.runs() == []


async def test_a_claim_sent_before_a_hand_over_and_arriving_after_wins_nothing(
    bench: Bench,
) -> None:
    await bench.lease.fetchval(QUERIES["release"], bench.holder, 1, [7], False)
    assert (await bench.arm(bench.claims, fence=1))["is_held"] is False
    assert (await bench.arm(bench.claims, fence=2))["won"] == 0
    await bench.acquire(bench.holder, 2)
    assert (await bench.arm(bench.claims, fence=2))["won"] == 1


async def test_a_takeover_needs_the_lease_to_have_expired(bench: Bench) -> None:
    assert await bench.take_over(bench.lease) is None


async def test_a_takeover_needs_the_lease_to_have_stood_still(bench: Bench) -> None:
    """The database's clock jumped: every lease looks expired, and this one was renewed since."""
    await bench.renew()
    await bench.expire_holder()
    assert await bench.take_over(bench.lease) is None


async def test_a_takeover_frees_the_partitions_and_the_epoch_grows(bench: Bench) -> None:
    await bench.expire_holder()
    await bench.take_over(bench.lease)
    before = await bench.lease.fetchval("SELECT epoch FROM partitions WHERE partition = 7")
    (row,) = await bench.acquire(bench.candidate)
    assert row["epoch"] > before
    (replay,) = await bench.acquire(bench.candidate)
    assert replay["epoch"] == row["epoch"]


async def test_a_delayed_renewal_does_not_publish_an_earlier_connection_again(bench: Bench) -> None:
    await bench.renew(connection=1, pid=101)
    await bench.renew(connection=2, pid=102)
    assert await bench.renew(connection=1, pid=101) == 3
    rows = await bench.lease.fetch("SELECT lease_connection, backend_pid FROM shards")
    assert (2, 102) in [tuple(row) for row in rows]


async def test_a_claim_cut_off_before_its_commit_leaves_the_timer(bench: Bench) -> None:
    transaction = bench.claims.transaction()
    await transaction.start()
    assert (await bench.arm(bench.claims))["won"] == 1
    bench.claims.terminate()
    await bench.expire_holder()
    assert await bench.take_over(bench.lease) == bench.holder
    assert await bench.runs() == []
    assert await bench.other.fetchval("SELECT due_at FROM timers") == DUE_US
