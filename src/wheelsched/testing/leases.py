"""Stage *acquire*, in memory. Invariant: as on Postgres, a takeover needs both conditions."""

from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from wheelsched.core.offset import ClockSample
from wheelsched.errors import FenceRaised, LeaseLost
from wheelsched.ports import Lease, OpenBreaker, Ownership, ShardView, Survey
from wheelsched.testing.tables import MemoryTables, ShardRow


class MemoryLeases:
    """`LeaseStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def join(self, shard_id: UUID, ttl_us: int, address: str | None = None) -> Lease:
        now_us = self._tables.now_us()
        row = self._tables.shards.setdefault(
            shard_id, ShardRow(1, 0, now_us + ttl_us, now_us, address)
        )
        row.address = address
        return Lease(shard_id, row.fence)

    async def renew(self, lease: Lease, ttl_us: int) -> None:
        row = self._tables.shards.get(lease.shard_id)
        if row is None:
            raise LeaseLost
        row.renewals += 1
        row.expires_at_us = self._tables.now_us() + ttl_us

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
                )
                for shard_id, row in self._tables.shards.items()
            ),
            tuple(
                Ownership(partition, row.owner, row.epoch)
                for partition, row in enumerate(self._tables.partitions)
            ),
        )

    async def acquire(self, lease: Lease, partitions: Collection[int]) -> list[Ownership]:
        if not partitions:
            return []
        self._tables.check_lease(lease)
        owned = []
        for partition in sorted(partitions):
            row = self._tables.partitions[partition]
            if row.owner is None:
                row.owner = lease.shard_id
                row.epoch += 1
            if row.owner == lease.shard_id:
                owned.append(Ownership(partition, lease.shard_id, row.epoch, row.released_epoch))
        return owned

    async def release(
        self, lease: Lease, partitions: Collection[int], *, is_leaving: bool = False
    ) -> Lease:
        shard = self._tables.shards.get(lease.shard_id)
        if shard is None:
            raise LeaseLost
        if shard.fence not in (lease.fence, lease.fence + 1):
            raise FenceRaised
        if shard.fence == lease.fence + 1:
            return Lease(lease.shard_id, shard.fence)  # sent again
        shard.fence = lease.fence + 1
        shard.is_leaving |= is_leaving
        for partition in partitions:
            row = self._tables.partitions[partition]
            if row.owner == lease.shard_id:
                row.released_epoch = row.epoch
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
