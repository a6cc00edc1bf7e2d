"""`LeaseStore` in memory. Invariant: like on Postgres, a takeover needs both conditions.

One object is one process: it has its own lease connection.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from uuid import UUID

from wheelsched.core.offset import ClockSample
from wheelsched.core.token import next_epoch
from wheelsched.errors import DatabaseWentBack, FenceRaised, LeaseLost
from wheelsched.ports import (
    NO_EPOCHS,
    BackendView,
    Lease,
    OpenBreaker,
    PartitionOwner,
    Renewal,
    ShardLink,
    ShardView,
    Survey,
)
from wheelsched.testing.server import MemoryConnection
from wheelsched.testing.tables import MemoryTables, ShardRow


class MemoryLeases:
    """`LeaseStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self._server = tables.server
        self._numbers = count(1)
        self._number = 0
        self.connection: MemoryConnection | None = None  # of the last confirmed renewal

    async def join(
        self,
        shard_id: UUID,
        ttl_us: int,
        address: str | None = None,
        went_back_at_us: int | None = None,
        link: ShardLink | None = None,
    ) -> Lease:
        now_us = self._tables.now_us()
        row = self._tables.shards.setdefault(
            shard_id, ShardRow(1, 0, now_us + ttl_us, now_us, address)
        )
        row.address = address
        row.went_back_at_us = went_back_at_us
        row.link = link
        self._publish(row)
        return Lease(shard_id, row.fence)

    async def renew(self, lease: Lease, ttl_us: int, known_renewals: int = 0) -> Renewal:
        row = self._tables.shards.get(lease.shard_id)
        if row is None:
            raise LeaseLost
        if row.renewals >= known_renewals:
            row.renewals += 1
            row.expires_at_us = self._tables.now_us() + ttl_us
            self._publish(row)
        return Renewal(row.renewals, row.fence, self._server.started_us)

    def _publish(self, row: ShardRow) -> None:
        """Writes the backend of the lease connection, unless a later connection has renewed."""
        if self.connection is None or not self.connection.is_open:
            self.connection = self._server.connect()
            self._number = next(self._numbers)
        if row.connection <= self._number:
            row.connection = self._number
            row.backend = self.connection.backend if self._server.is_watchable else None

    def is_connected(self) -> bool:
        return self.connection is not None and self.connection.is_open

    async def wait_disconnected(self) -> None:
        if self.connection is not None:
            await self.connection.wait_ended()

    async def watch_backends(self) -> Sequence[BackendView]:
        return [
            BackendView(shard_id, row.renewals, row.backend, self._server.is_alive(row.backend))
            for shard_id, row in self._tables.shards.items()
            if row.backend is not None and self._server.is_watchable
        ]

    async def survey(self) -> Survey:
        now_us = self._tables.now_us()
        return Survey(
            tuple(
                ShardView(
                    shard_id=shard_id,
                    renewals=row.renewals,
                    is_expired=row.expires_at_us < now_us,
                    is_leaving=row.is_leaving,
                    started_at_us=row.started_at_us,
                    address=row.address,
                    link_address=None if row.link is None else row.link.address,
                    went_back_at_us=row.went_back_at_us,
                )
                for shard_id, row in self._tables.shards.items()
            ),
            tuple(
                PartitionOwner(partition, row.owner, row.epoch)
                for partition, row in enumerate(self._tables.partitions)
            ),
        )

    async def acquire(
        self,
        lease: Lease,
        partitions: Collection[int],
        known_epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> list[PartitionOwner]:
        if not partitions:
            return []
        self._tables.check_lease(lease)
        owned = []
        for partition in sorted(partitions):
            row = self._tables.partitions[partition]
            known = known_epochs.get(partition, 0)
            is_old = row.owner == lease.shard_id and row.epoch <= known
            if row.owner is None or is_old:
                row.owner = lease.shard_id
                row.epoch = next_epoch(row.epoch, known, self._tables.now_us())
            if row.owner == lease.shard_id:
                owned.append(
                    PartitionOwner(
                        partition,
                        lease.shard_id,
                        row.epoch,
                        row.released_epoch,
                        row.released_at_us,
                    )
                )
        return owned

    async def release(
        self, lease: Lease, partitions: Collection[int], *, is_leaving: bool = False
    ) -> Lease:
        shard = self._tables.shards.get(lease.shard_id)
        if shard is None:
            raise LeaseLost
        if shard.fence < lease.fence:
            raise DatabaseWentBack
        if shard.fence > lease.fence + 1:
            raise FenceRaised
        if shard.fence == lease.fence + 1:
            return Lease(lease.shard_id, shard.fence)  # a repeated call
        shard.fence = lease.fence + 1
        shard.is_leaving |= is_leaving
        for partition in partitions:
            row = self._tables.partitions[partition]
            if row.owner == lease.shard_id:
                row.released_epoch = row.epoch
                row.released_at_us = self._tables.now_us()
                self._tables.free(partition)
        return Lease(lease.shard_id, shard.fence)

    async def take_over(self, lease: Lease, shard_id: UUID, renewals: int) -> bool:
        other = self._tables.shards.get(shard_id)
        if not self._tables.holds(lease) or other is None or shard_id == lease.shard_id:
            return False
        if other.renewals != renewals or other.expires_at_us >= self._tables.now_us():
            return False
        self._tables.end_shard(shard_id)
        return True

    async def take_over_gone(self, lease: Lease, gone: BackendView) -> bool:
        other = self._tables.shards.get(gone.shard_id)
        if not self._tables.holds(lease) or other is None or gone.shard_id == lease.shard_id:
            return False
        if (other.renewals, other.backend) != (gone.renewals, gone.backend):
            return False
        is_current = gone.backend.server_started_us == self._server.started_us
        if not is_current or self._server.is_alive(gone.backend):
            return False
        self._tables.end_shard(gone.shard_id)
        return True

    async def certify_death(self, shard_id: UUID) -> bool:
        is_there = shard_id in self._tables.shards
        self._tables.end_shard(shard_id)
        return is_there

    async def leave(self, lease: Lease) -> None:
        self._tables.end_shard(lease.shard_id)

    async def tell(self, lease: Lease, breakers: Sequence[OpenBreaker]) -> None:
        row = self._tables.shards.get(lease.shard_id)
        if row is not None:
            row.breakers = list(breakers)

    async def read_breakers(
        self, shard_id: UUID | None = None
    ) -> Mapping[UUID, Sequence[OpenBreaker]]:
        return {
            each: row.breakers
            for each, row in self._tables.shards.items()
            if row.breakers and shard_id in (None, each)
        }

    async def read_clock(self, now_ns: Callable[[], int]) -> ClockSample:
        sent_ns = now_ns()
        return ClockSample(sent_ns, self._tables.now_us(), now_ns())
