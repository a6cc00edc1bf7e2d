"""Stages *settle* and *sweep*, on Postgres.

Invariant: what a sweep gives is of partitions that the shard owns, and it goes on only under a
token that is newer than all before.
"""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from wheelsched.core.model import RunKey
from wheelsched.ports import Adoption, Checked, Lease, Settled
from wheelsched.store.database import Database
from wheelsched.store.definition import decode_run
from wheelsched.store.outcomes import in_turns, note_stale, settle
from wheelsched.store.queries import load_queries
from wheelsched.store.timers import won_keys

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
            for turn in in_turns(settled):
                if unchanged := await settle(connection, turn):
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

    async def recheck(self, keys: Collection[RunKey]) -> list[Checked]:
        if not keys:
            return []
        rows = await self._database.fetch(
            QUERIES["recheck"], [key.job_id for key in keys], [key.due_us for key in keys]
        )
        return [
            Checked(
                run=decode_run(row),
                version=row["version"],
                heartbeat_at_us=row["heartbeat_at"],
            )
            for row in rows
        ]
