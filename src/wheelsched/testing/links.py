"""`LinkStore` in memory. Invariant: like on Postgres, a key is forgotten after a while."""

from uuid import UUID

from wheelsched.ports import PUBLISHED_US, LinkedShard
from wheelsched.testing.tables import MemoryTables, ProcessRow


class MemoryLinks:
    """`LinkStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def publish(self, process_id: UUID, key: bytes) -> None:
        now_us = self._tables.now_us()
        processes = self._tables.processes
        for each, row in list(processes.items()):
            if row.seen_at_us < now_us - PUBLISHED_US:
                del processes[each]
        processes[process_id] = ProcessRow(key, now_us)

    async def withdraw(self, process_id: UUID) -> None:
        self._tables.processes.pop(process_id, None)

    async def key_of(self, process_id: UUID) -> bytes | None:
        row = self._tables.processes.get(process_id)
        if row is None or row.seen_at_us < self._tables.now_us() - PUBLISHED_US:
            return None
        return row.key

    async def shards(self) -> list[LinkedShard]:
        return [
            LinkedShard(shard_id, *row.link)
            for shard_id, row in self._tables.shards.items()
            if row.link is not None
        ]
