"""The fence under concurrency: shards that die, freeze and hand over while they arm.

Every due time must be armed exactly once, each partition by one owner per epoch, and nothing by
a shard whose lease row is gone. The seed is printed when it fails.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest
from tests.postgres import Connect

from wheelsched.config import StoreConfig
from wheelsched.core.model import RunKey
from wheelsched.core.partition import PARTITIONS
from wheelsched.core.token import first_token, split_token
from wheelsched.errors import FenceRaised, LeaseLost, StoreUnavailable
from wheelsched.ports import Claim, ClaimedRun, Lease
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.postgres import PostgresStore

DUE_US = 1_800_000_000_000_000
TENANT = uuid4()
BATCH = 500
BATCHES_PER_LOAD = 10
LONG_MS = 60_000  # no statement times out, however busy the machine is
SEED_TIMERS = """
    INSERT INTO timers
    SELECT job_id, get_byte(sha256(uuid_send(job_id)), 0), 1, $2
    FROM (SELECT gen_random_uuid() AS job_id FROM generate_series(1, $1)) AS jobs
"""


class Arming:
    """One shard after another in one place: each arms until it is robbed, then comes back new."""

    def __init__(self, store: PostgresStore, chance: random.Random) -> None:
        self.store = store
        self.chance = chance
        self.lease = Lease(uuid4(), 0)
        self.armed: dict[UUID, list[int]] = {}
        self.deaths = 0

    async def run(self) -> None:
        while await self.live_once():
            self.deaths += 1

    async def live_once(self) -> bool:
        """Whether there may be work left when this life ends."""
        self.lease = await self.store.leases.join(uuid4(), 60_000_000)
        try:
            while True:
                owned = await self.store.leases.acquire(self.lease, range(PARTITIONS))
                epochs = {row.partition: row.epoch for row in owned}
                horizon = list(await self.store.timers.load(epochs, DUE_US))
                if not horizon and not await self.is_anything_left():
                    return False
                await asyncio.sleep(0 if horizon else 0.05)
                self.chance.shuffle(horizon)
                for start in range(0, min(len(horizon), BATCHES_PER_LOAD * BATCH), BATCH):
                    await self.arm(horizon[start : start + BATCH], epochs)
                if self.chance.random() < 0.2:
                    part = self.chance.sample(sorted(epochs), len(epochs) // 2)
                    self.lease = await self.store.leases.release(self.lease, part)
        except LeaseLost:
            return True
        except FenceRaised:
            await self.store.leases.leave(self.lease)
            return True

    async def arm(self, timers: list[tuple[UUID, int, int]], epochs: dict[int, int]) -> None:
        """Arms a batch; now and then the shard hands all over while that is in flight."""
        epoch = max(epochs.values())
        claims = [
            Claim(
                job_id=job_id,
                tenant_id=TENANT,
                version=version,
                due_us=due_us,
                next_due_us=DUE_US + 60_000_000,
                runs=(ClaimedRun(due_us, first_token(epoch)),),
            )
            for job_id, due_us, version in sorted(timers)
        ]
        statements = [self.store.timers.arm(self.lease, claims)]
        if self.chance.random() < 0.1:
            statements.append(self.release(sorted(epochs)))
        lost, *others = await asyncio.gather(*statements, return_exceptions=True)
        for error in others:
            if isinstance(error, BaseException):
                raise error
        if isinstance(lost, BaseException):
            raise lost
        for claim in claims:
            if (claim.job_id, claim.due_us) not in lost:
                self.armed.setdefault(claim.job_id, []).append(claim.runs[0].token)

    async def release(self, partitions: list[int]) -> set[RunKey]:
        self.lease = await self.store.leases.release(self.lease, partitions)
        return set()

    async def is_anything_left(self) -> bool:
        return len(await self.store.timers.load(range(PARTITIONS), DUE_US)) > 0


@asynccontextmanager
async def places(url: str, seed: int, count: int) -> AsyncIterator[list[Arming]]:
    config = StoreConfig(
        url=url,
        role="shard",
        lease_connections=2,
        command_timeout_ms=LONG_MS,
        lease_timeout_ms=LONG_MS,
        connect_timeout_ms=LONG_MS,
    )
    databases = [await Database.open(config) for _ in range(count)]
    try:
        yield [
            Arming(PostgresStore(database), random.Random(seed + number))
            for number, database in enumerate(databases)
        ]
    finally:
        for database in databases:
            await database.close()


async def rob(owner: Connection, shards: list[Arming], chance: random.Random, every: int) -> None:
    """Deletes leases at random, as takeovers do, and notes when each deletion has committed.

    It goes by the runs that were armed, so a fast machine does not get away.
    """
    armed = 0
    while True:
        wanted = armed + chance.randrange(1, every)
        while (armed := sum(len(shard.armed) for shard in shards)) < wanted:
            await asyncio.sleep(0.001)
        victim = chance.choice(shards).lease.shard_id
        await owner.execute("DELETE FROM shards WHERE shard_id = $1", victim)
        await owner.execute("INSERT INTO robbed VALUES ($1, clock_timestamp())", victim)


async def storm(url: str, connect: Connect, timers: int, seed: int) -> list[Arming]:
    owner = await connect(url)
    await owner.execute("CREATE TABLE robbed (shard_id uuid, at timestamptz)")
    await owner.execute(SEED_TIMERS, timers, DUE_US)
    await owner.execute("SELECT make_days(ARRAY['2027-01-15']::date[])")
    async with places(url, seed, 2) as shards:
        robbing = asyncio.create_task(rob(owner, shards, random.Random(seed), timers // 5))
        await asyncio.gather(*(shard.run() for shard in shards))
        robbing.cancel()
        await asyncio.gather(robbing, return_exceptions=True)
    return shards


@pytest.mark.parametrize("timers", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
async def test_every_due_time_is_armed_exactly_once(
    database: str, connect: Connect, timers: int
) -> None:
    seed = random.randrange(1 << 32)
    shards = await storm(database, connect, timers, seed)
    check = await connect(database)
    assert sum(shard.deaths for shard in shards) > 0, seed
    assert await check.fetchval("SELECT count(*) FROM runs") == timers, seed
    assert await check.fetchval("SELECT count(*) FROM timers WHERE due_at = $1", DUE_US) == 0, seed

    told = [job_id for shard in shards for job_id, tokens in shard.armed.items() for _ in tokens]
    assert len(told) == len(set(told)), f"armed twice: seed {seed}"

    behind = await check.fetchval(
        "SELECT count(*) FROM runs JOIN robbed ON shard = shard_id WHERE armed_at > robbed.at"
    )
    assert behind == 0, f"armed after the lease was gone: seed {seed}"
    epochs = {
        split_token(token).epoch for shard in shards for t in shard.armed.values() for token in t
    }
    assert max(epochs) > 1, seed


async def test_an_arm_that_was_cut_off_is_armed_once_in_the_end(
    database: str, connect: Connect
) -> None:
    """The answer is lost and nobody knows whether it committed: sending it again is harmless."""
    owner = await connect(database)
    await owner.execute(SEED_TIMERS, 1_000, DUE_US)
    async with places(database, 1, 1) as (shard,):
        shard.lease = await shard.store.leases.join(uuid4(), 60_000_000)
        await shard.store.leases.acquire(shard.lease, range(PARTITIONS))
        timers = list(await shard.store.timers.load(range(PARTITIONS), DUE_US))
        epochs = dict.fromkeys(range(PARTITIONS), 1)
        cut = asyncio.create_task(shard.arm(timers, epochs))
        while not cut.done():
            await owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE query LIKE '%WITH fence%' AND state = 'active' AND pid != pg_backend_pid()"
            )
        if cut.exception():
            assert isinstance(cut.exception(), StoreUnavailable)
        await shard.arm(timers, epochs)
    assert await owner.fetchval("SELECT count(*) FROM runs") == 1_000
