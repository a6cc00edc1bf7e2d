"""Stage *acquire*, on Postgres.

Invariant: a row of `shards` is the lease. Deleting it, and raising its fence, wait for every
statement that holds it, and every later statement finds it changed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

import msgspec

from wheelsched.core.offset import ClockSample
from wheelsched.errors import FenceRaised, LeaseLost
from wheelsched.ports import Lease, OpenBreaker, Ownership, ShardView, Survey
from wheelsched.store.database import Database
from wheelsched.store.queries import load_queries

QUERIES = load_queries("leases.sql")
BREAKERS = msgspec.json.Decoder(list[OpenBreaker])


class PostgresLeases:
    """`LeaseStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def join(self, shard_id: UUID, ttl_us: int, address: str | None = None) -> Lease:
        async with self._database.lease_connection() as connection:
            fence = await connection.fetchval(QUERIES["join_shards"], shard_id, address, ttl_us)
        return Lease(shard_id, fence)

    async def renew(self, lease: Lease, ttl_us: int) -> None:
        async with self._database.lease_connection() as connection:
            renewals = await connection.fetchval(QUERIES["renew"], lease.shard_id, ttl_us)
        if renewals is None:
            raise LeaseLost

    async def survey(self) -> Survey:
        async with self._database.lease_connection() as connection:
            shards = await connection.fetch(QUERIES["look_at_shards"])
            partitions = await connection.fetch(QUERIES["look_at_partitions"])
        return Survey(
            tuple(
                ShardView(
                    shard_id=row["shard_id"],
                    renewals=row["renewals"],
                    is_expired=row["is_expired"],
                    is_leaving=row["is_leaving"],
                    started_at_us=row["started_at"],
                    address=row["address"],
                )
                for row in shards
            ),
            tuple(Ownership(*row) for row in partitions),
        )

    async def acquire(self, lease: Lease, partitions: Collection[int]) -> list[Ownership]:
        async with self._database.lease_connection() as connection:
            rows = await connection.fetch(
                QUERIES["acquire"], lease.shard_id, lease.fence, sorted(partitions)
            )
        if partitions and not rows:
            await refuse_old(self._database, lease)
        return [
            Ownership(row["partition"], lease.shard_id, row["epoch"], row["released_epoch"])
            for row in rows
        ]

    async def release(
        self, lease: Lease, partitions: Collection[int], *, is_leaving: bool = False
    ) -> Lease:
        async with self._database.lease_connection() as connection:
            fence = await connection.fetchval(
                QUERIES["release"], lease.shard_id, lease.fence, sorted(partitions), is_leaving
            )
        if fence is None:
            await refuse_old(self._database, lease)
        return Lease(lease.shard_id, fence)

    async def take_over(self, lease: Lease, shard_id: UUID, renewals: int) -> bool:
        async with self._database.lease_connection() as connection:
            taken = await connection.fetchval(
                QUERIES["take_over"], lease.shard_id, lease.fence, shard_id, renewals
            )
        return taken is not None

    async def leave(self, lease: Lease) -> None:
        async with self._database.lease_connection() as connection:
            await connection.execute(QUERIES["leave_shards"], lease.shard_id)

    async def tell(self, lease: Lease, breakers: Sequence[OpenBreaker]) -> None:
        shown = msgspec.json.encode(breakers).decode()
        await self._database.fetch(QUERIES["tell_breakers"], lease.shard_id, shown)

    async def read_breakers(
        self, shard_id: UUID | None = None
    ) -> Mapping[UUID, Sequence[OpenBreaker]]:
        rows = await self._database.fetch(QUERIES["read_breakers"], shard_id)
        return {row["shard_id"]: BREAKERS.decode(row["breakers"]) for row in rows}

    async def read_clock(self, now_ns: Callable[[], int]) -> ClockSample:
        async with self._database.lease_connection() as connection:
            sent_ns = now_ns()
            database_us: int = await connection.fetchval(QUERIES["read_clock"])
            return ClockSample(sent_ns, database_us, now_ns())


async def refuse_old(database: Database, lease: Lease) -> None:
    """Raises what is wrong with a lease that a statement did not find."""
    async with database.lease_connection() as connection:
        fence = await connection.fetchval(QUERIES["read_fence"], lease.shard_id)
    if fence is None:
        raise LeaseLost
    if fence != lease.fence:
        raise FenceRaised
