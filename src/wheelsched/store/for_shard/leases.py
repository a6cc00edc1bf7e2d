"""Leases of shards and ownership of partitions, on Postgres.

Invariant: a row of `shards` is a lease. Deleting it or raising its fence waits for every statement
that holds it, and every later statement sees the change.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

import asyncpg
import msgspec

from wheelsched.core.offset import ClockSample
from wheelsched.errors import DatabaseWentBack, FenceRaised, LeaseLost
from wheelsched.ports import (
    NO_EPOCHS,
    Backend,
    BackendView,
    Lease,
    OpenBreaker,
    PartitionOwner,
    Renewal,
    ShardLink,
    ShardView,
    Survey,
)
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.lease_connection import LeaseConnection
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("leases.sql")
BREAKERS = msgspec.json.Decoder(list[OpenBreaker])


class PostgresLeases:
    """`LeaseStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def join(
        self,
        shard_id: UUID,
        ttl_us: int,
        address: str | None = None,
        went_back_at_us: int | None = None,
        link: ShardLink | None = None,
    ) -> Lease:
        async def insert(lease_connection: LeaseConnection) -> asyncpg.Record | None:
            return await lease_connection.connection.fetchrow(
                QUERIES["join_shards"],
                shard_id,
                address,
                ttl_us,
                went_back_at_us,
                *_published(lease_connection, ttl_us),
                *(link or (None, None)),
            )

        row = await self._database.lease_connections.renew(insert)
        assert row is not None
        return Lease(shard_id, row["fence"])

    async def renew(self, lease: Lease, ttl_us: int, known_renewals: int = 0) -> Renewal:
        async def update(lease_connection: LeaseConnection) -> asyncpg.Record | None:
            connection = lease_connection.connection
            row = await connection.fetchrow(
                QUERIES["renew"],
                lease.shard_id,
                ttl_us,
                known_renewals,
                *_published(lease_connection, ttl_us),
            )
            return row or await connection.fetchrow(QUERIES["read_lease"], lease.shard_id)

        connections = self._database.lease_connections
        row = await connections.renew(update)
        if row is None:
            raise LeaseLost
        return Renewal(row["renewals"], row["fence"], connections.server_started_us)

    def is_connected(self) -> bool:
        return self._database.lease_connections.is_connected()

    async def wait_disconnected(self) -> None:
        await self._database.lease_connections.wait_disconnected()

    async def watch_backends(self) -> Sequence[BackendView]:
        if self._database.lease_connections.server_started_us is None:
            return []  # an engine without backends
        async with self._database.lease_connection() as connection:
            rows = await connection.fetch(QUERIES["watch_backends"])
        return [
            BackendView(row[0], row[1], Backend(row[2], row[3], row[4]), row["is_alive"])
            for row in rows
        ]

    async def survey(self) -> Survey:
        async with self._database.lease_connection() as connection:
            partitions = await connection.fetch(QUERIES["list_partitions"])
            shards = await connection.fetch(QUERIES["list_shards"])
        return Survey(
            tuple(
                ShardView(
                    shard_id=row["shard_id"],
                    renewals=row["renewals"],
                    is_expired=row["is_expired"],
                    is_leaving=row["is_leaving"],
                    started_at_us=row["started_at"],
                    address=row["address"],
                    link_address=row["link_address"],
                    went_back_at_us=row["went_back_at"],
                )
                for row in shards
            ),
            tuple(PartitionOwner(*row) for row in partitions),
        )

    async def acquire(
        self,
        lease: Lease,
        partitions: Collection[int],
        known_epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> list[PartitionOwner]:
        wanted = sorted(partitions)
        known = [known_epochs.get(partition, 0) for partition in wanted]
        async with self._database.lease_connection() as connection:
            rows = await connection.fetch(
                QUERIES["acquire"], lease.shard_id, lease.fence, wanted, known
            )
        if partitions and not rows:
            await check_lease(self._database, lease)
        return [
            PartitionOwner(
                row["partition"],
                lease.shard_id,
                row["epoch"],
                row["released_epoch"],
                row["released_at"],
            )
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
            await check_lease(self._database, lease)
        return Lease(lease.shard_id, fence)

    async def take_over(self, lease: Lease, shard_id: UUID, renewals: int) -> bool:
        async with self._database.lease_connection() as connection:
            taken = await connection.fetchval(
                QUERIES["take_over"], lease.shard_id, lease.fence, shard_id, renewals
            )
        return taken is not None

    async def take_over_gone(self, lease: Lease, gone: BackendView) -> bool:
        backend = gone.backend
        async with self._database.lease_connection() as connection:
            taken = await connection.fetchval(
                QUERIES["take_over_gone"],
                lease.shard_id,
                lease.fence,
                gone.shard_id,
                gone.renewals,
                backend.pid,
                backend.started_us,
                backend.server_started_us,
            )
        return taken is not None

    async def certify_death(self, shard_id: UUID) -> bool:
        async with self._database.lease_connection() as connection:
            ended = await connection.fetchval(QUERIES["leave_shards"], shard_id)
        return ended is not None

    async def leave(self, lease: Lease) -> None:
        await self.certify_death(lease.shard_id)

    async def tell(self, lease: Lease, breakers: Sequence[OpenBreaker]) -> None:
        encoded = msgspec.json.encode(breakers).decode()
        await self._database.fetch(QUERIES["write_breakers"], lease.shard_id, encoded)

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


def _published(
    connection: LeaseConnection, ttl_us: int
) -> tuple[int, int | None, int | None, int | None]:
    """The number of a lease connection, and the backend to publish for it."""
    backend = connection.described.published(ttl_us)
    if backend is None:
        return connection.number, None, None, None
    return connection.number, backend.pid, backend.started_us, backend.server_started_us


async def check_lease(database: Database, lease: Lease) -> None:
    """Raises `LeaseLost`, `DatabaseWentBack` or `FenceRaised` if a lease is no longer valid."""
    async with database.lease_connection() as connection:
        fence = await connection.fetchval(QUERIES["read_fence"], lease.shard_id)
    if fence is None:
        raise LeaseLost
    if fence < lease.fence:
        raise DatabaseWentBack
    if fence > lease.fence:
        raise FenceRaised
