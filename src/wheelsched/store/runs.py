"""Stages *settle* and *sweep*, on Postgres.

Invariant: an outcome changes its run only while the run is live and has the outcome's token.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from wheelsched.core.model import Run, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.ports import Adoption, Checked, Lease, Settled
from wheelsched.store.database import Database
from wheelsched.store.definition import decode_run
from wheelsched.store.queries import load_queries
from wheelsched.store.timers import won_keys

QUERIES = load_queries("runs.sql")
BEFORE_ALL = (-1, 0, UUID(int=0))


class PostgresRuns:
    """`RunStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def settle(self, settled: Sequence[Settled]) -> set[RunKey]:
        if not settled:
            return set()
        row = await self._database.fetchrow(
            QUERIES["settle"],
            [outcome.key.job_id for outcome in settled],
            [outcome.key.due_us for outcome in settled],
            [outcome.token for outcome in settled],
            [outcome.state for outcome in settled],
            [outcome.started_at_us for outcome in settled],
            [outcome.finished_at_us for outcome in settled],
            [outcome.lateness_us for outcome in settled],
            [outcome.http_status for outcome in settled],
            [outcome.error for outcome in settled],
            [outcome.retry_at_us for outcome in settled],
            [outcome.skip_reason for outcome in settled],
        )
        assert row
        if row["changed"] == len(settled):
            return set()
        changed = set(row["positions"] or ())
        return await self._note_stale(
            [outcome for position, outcome in enumerate(settled, 1) if position not in changed]
        )

    async def list_unfinished(
        self, lease: Lease, partitions: Collection[int], limit: int, after: Run | None = None
    ) -> list[Run]:
        position = BEFORE_ALL
        if after is not None:
            position = (partition_of(after.job_id), after.due_us, after.job_id)
        rows = await self._database.fetch(
            QUERIES["list_unfinished"], lease.shard_id, sorted(partitions), *position, limit
        )
        return [decode_run(row) for row in rows]

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
                key=RunKey(row["job_id"], row["due_at"]),
                state=RunState(row["state"]),
                token=row["token"],
                version=row["version"],
                heartbeat_at_us=row["heartbeat_at"],
            )
            for row in rows
        ]

    async def _note_stale(self, outcomes: list[Settled]) -> set[RunKey]:
        rows = await self._database.fetch(
            QUERIES["note_stale"],
            [outcome.key.job_id for outcome in outcomes],
            [outcome.key.due_us for outcome in outcomes],
            [outcome.token for outcome in outcomes],
            [outcome.started_at_us for outcome in outcomes],
            [outcome.finished_at_us for outcome in outcomes],
            [outcome.http_status for outcome in outcomes],
            [outcome.error for outcome in outcomes],
        )
        return {RunKey(row["job_id"], row["due_at"]) for row in rows}
