"""Unfinished runs, on Postgres: settled, listed after a takeover, adopted.

Invariant: a shard lists unfinished runs of its own partitions only, and adopts each under a token
that is newer than all earlier ones.
"""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from wheelsched.core.model import RunKey
from wheelsched.ports import Adoption, Checked, Lease, Settled
from wheelsched.ports.work import Attempted
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.definition import Row, decode_in_slices, decode_run
from wheelsched.store.for_shard.outcomes import in_distinct_batches, note_stale, settle
from wheelsched.store.for_shard.timers import won_keys

QUERIES = load_queries("runs.sql")
BEFORE_ALL = RunKey(UUID(int=0), 0)


class PostgresRuns:
    """`RunStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def settle(self, settled: Sequence[Settled]) -> set[RunKey]:
        if not settled:
            return set()
        stale: set[RunKey] = set()
        async with self._database.connection() as connection:
            for batch in in_distinct_batches(settled):
                if unchanged := await settle(connection, batch):
                    stale |= await note_stale(connection, unchanged)
        return stale

    async def list_unfinished(
        self,
        lease: Lease,
        partitions: Collection[int],
        limit: int,
        after: Mapping[int, RunKey] | None = None,
        *,
        is_first: bool = False,
    ) -> list[RunKey]:
        wanted = sorted(partitions)
        positions = [(after or {}).get(partition, BEFORE_ALL) for partition in wanted]
        rows = await self._database.fetch(
            QUERIES["list_unfinished"],
            lease.shard_id,
            wanted,
            [position.due_us for position in positions],
            [position.job_id for position in positions],
            limit,
            0 if is_first else limit,
        )
        return [RunKey(job_id, due_us) for job_id, due_us in rows]

    async def adopt(self, lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        if not adoptions:
            return set()
        row = await self._database.fetchrow(
            QUERIES["adopt"],
            lease.shard_id,
            lease.fence,
            [adoption.key.job_id for adoption in adoptions],
            [adoption.key.due_us for adoption in adoptions],
            [adoption.old_token for adoption in adoptions],
            [adoption.token for adoption in adoptions],
        )
        return {adoption.key for adoption in adoptions} - await won_keys(self._database, lease, row)

    async def forget_heartbeats(self, returned: Mapping[Attempted, int]) -> None:
        attempts = sorted(returned)  # one order for all, against deadlocks
        if attempts:
            await self._database.fetch(
                QUERIES["forget_heartbeats"],
                [attempt.key.job_id for attempt in attempts],
                [attempt.key.due_us for attempt in attempts],
                [attempt.token for attempt in attempts],
                [returned[attempt] for attempt in attempts],
            )

    async def revalidate(self, keys: Collection[RunKey]) -> list[Checked]:
        if not keys:
            return []
        rows = await self._database.fetch(
            QUERIES["revalidate"], [key.job_id for key in keys], [key.due_us for key in keys]
        )
        return await decode_in_slices(_decode_checked, rows)


def _decode_checked(row: Row) -> Checked:
    return Checked(
        run=decode_run(row),
        version=row["version"],
        heartbeat_at_us=row["heartbeat_at"],
        lease_us=row["lease_us"],
        is_paused=bool(row["is_paused"]),
    )
