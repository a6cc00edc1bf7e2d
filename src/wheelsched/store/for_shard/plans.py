"""Plans drafts, on Postgres: jobs that applications scheduled in SQL.

Invariant: the shard that owns a draft turns it into a job with a timer, or refuses it, exactly
once. No statement here waits for a transaction of an application.
"""

from collections.abc import Collection, Sequence

import asyncpg

from wheelsched.core.model import JobState
from wheelsched.errors import DayMissing
from wheelsched.ports import Lease, Plan, Planned, Unplanned
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.definition import decode_draft, encode_definition, encode_tags
from wheelsched.store.for_shard.leases import check_lease

QUERIES = load_queries("plans.sql")


class PostgresPlans:
    """`PlanStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_unplanned(self, partitions: Collection[int], limit: int) -> list[Unplanned]:
        rows = await self._database.fetch(QUERIES["list_unplanned"], sorted(partitions), limit)
        return [_decode(row) for row in rows]

    async def plan(self, lease: Lease, plans: Sequence[Plan]) -> Planned:
        jobs = [plan.registration.job if plan.registration else None for plan in plans]
        row = await self._database.fetchrow(
            QUERIES["plan"],
            lease.shard_id,
            lease.fence,
            [plan.number for plan in plans],
            [plan.draft.job_id for plan in plans],
            [plan.draft.version for plan in plans],
            [encode_definition(job) if job else None for job in jobs],
            [encode_tags(job) if job else None for job in jobs],
            [plan.registration.due_us if plan.registration else None for plan in plans],
            [plan.error for plan in plans],
        )
        assert row
        if not row["is_held"]:
            await check_lease(self._database, lease)
        return Planned(frozenset(row["accepted"] or ()), frozenset(row["refused"] or ()))

    async def clear(self, lease: Lease, numbers: Collection[int]) -> None:
        arguments = (lease.shard_id, lease.fence, list(numbers))
        try:
            is_held = await self._database.fetchval(QUERIES["clear"], *arguments)
        except DayMissing:
            await self._database.fetchval(QUERIES["make_days_of_cancelled"], list(numbers))
            is_held = await self._database.fetchval(QUERIES["clear"], *arguments)
        if not is_held:
            await check_lease(self._database, lease)


def _decode(row: asyncpg.Record) -> Unplanned:
    is_draft = not row["is_gone"] and row["state"] == JobState.UNPLANNED
    return Unplanned(row["unplanned_id"], row["job_id"], decode_draft(row) if is_draft else None)
