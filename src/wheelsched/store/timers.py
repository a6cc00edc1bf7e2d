"""Stages *load* and *arm*, on Postgres.

Invariant: a due time is claimed by moving its timer from it, and only while the lease row is
held under the statement's fence.
"""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import asyncpg

from wheelsched.core.model import Job, RunKey
from wheelsched.errors import DayMissing
from wheelsched.ports import Claim, ClaimedRetry, Horizon, Lease, Retry
from wheelsched.store.database import Database
from wheelsched.store.definition import decode_job
from wheelsched.store.horizon import HorizonDecoder
from wheelsched.store.leases import refuse_old
from wheelsched.store.queries import load_queries

QUERIES = load_queries("timers.sql")
MISSED_BATCH = 50  # claims, with up to a thousand runs each, joined by nested loops


class PostgresTimers:
    """`TimerStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, partitions: Collection[int], until_us: int) -> Horizon:
        wanted = sorted(partitions)
        decoder = HorizonDecoder()
        async with self._database.connection() as connection:
            await connection.copy_from_query(
                QUERIES["load_timers"], wanted, until_us, output=decoder.feed, format="binary"
            )
            waiting = await connection.fetch(QUERIES["load_retries"], wanted, until_us)
        retries = [Retry(RunKey(row["job_id"], row["due_at"]), row["retry_at"]) for row in waiting]
        return decoder.finish(retries)

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        return [
            decode_job(row)
            for row in await self._database.fetch(QUERIES["read_jobs"], list(job_ids))
        ]

    async def arm(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        assert len({claim.job_id for claim in claims}) == len(claims), "a job is claimed twice"
        simple = [claim for claim in claims if is_simple(claim)]
        missed = [claim for claim in claims if not is_simple(claim)]
        lost = await self._arm_simple(lease, simple) if simple else set()
        for start in range(0, len(missed), MISSED_BATCH):
            lost |= await self._arm_missed(lease, missed[start : start + MISSED_BATCH])
        return lost

    async def arm_retries(self, lease: Lease, retries: Sequence[ClaimedRetry]) -> set[RunKey]:
        if not retries:
            return set()
        row = await self._database.fetchrow(
            QUERIES["arm_retries"],
            lease.shard_id,
            lease.fence,
            [retry.key.job_id for retry in retries],
            [retry.key.due_us for retry in retries],
            [retry.retry_at_us for retry in retries],
            [retry.token for retry in retries],
        )
        return {retry.key for retry in retries} - await won_keys(self._database, lease, row)

    async def advance(self, lease: Lease, live_since_us: Mapping[int, int]) -> None:
        await self._database.fetch(
            QUERIES["advance_live_since"],
            lease.shard_id,
            lease.fence,
            list(live_since_us.keys()),
            list(live_since_us.values()),
        )

    async def finish(self, lease: Lease, job_ids: Collection[UUID]) -> None:
        await self._database.fetch(
            QUERIES["finish_jobs"], lease.shard_id, lease.fence, list(job_ids)
        )

    async def pause_gone(self, lease: Lease, job_ids: Collection[UUID]) -> None:
        await self._database.fetch(
            QUERIES["pause_gone_jobs"], lease.shard_id, lease.fence, list(job_ids)
        )

    async def _arm_simple(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        due_us = [claim.due_us for claim in claims]
        row = await self._write_runs(
            due_us,
            QUERIES["arm"],
            lease.shard_id,
            lease.fence,
            [claim.job_id for claim in claims],
            due_us,
            [claim.version for claim in claims],
            [claim.next_due_us for claim in claims],
            [claim.tenant_id for claim in claims],
            [claim.runs[0].token for claim in claims],
        )
        if not row["is_held"]:
            await refuse_old(self._database, lease)
        if row["won"] == len(claims):
            return set()
        won = set(row["job_ids"] or ())
        return {RunKey(claim.job_id, claim.due_us) for claim in claims if claim.job_id not in won}

    async def _arm_missed(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        runs = [(claim, run.due_us, run.token, None) for claim in claims for run in claim.runs]
        skips = [(claim, claim.skip.last_us, None, claim.skip) for claim in claims if claim.skip]
        decided = [*runs, *skips]
        due_us = [due_us for _, due_us, _, _ in decided]
        row = await self._write_runs(
            due_us,
            QUERIES["arm_missed"],
            lease.shard_id,
            lease.fence,
            [claim.job_id for claim in claims],
            [claim.due_us for claim in claims],
            [claim.version for claim in claims],
            [claim.next_due_us for claim in claims],
            [claim.job_id for claim, _, _, _ in decided],
            due_us,
            [claim.tenant_id for claim, _, _, _ in decided],
            [token for _, _, token, _ in decided],
            [skip and skip.reason for _, _, _, skip in decided],
            [skip and skip.count for _, _, _, skip in decided],
            [skip and skip.first_us for _, _, _, skip in decided],
        )
        won = await won_keys(self._database, lease, row)
        return {RunKey(claim.job_id, due_us) for claim, due_us, _, _ in runs} - won

    async def _write_runs(self, due_us: list[int], sql: str, *arguments: object) -> asyncpg.Record:
        """Runs a statement that writes runs, and makes the tables of days that nobody made ahead:
        long past, or forgotten. The statement that found one missing has written nothing."""
        try:
            row = await self._database.fetchrow(sql, *arguments)
        except DayMissing:
            await self._database.fetchval(QUERIES["make_days"], due_us)
            row = await self._database.fetchrow(sql, *arguments)
        assert row
        return row


def is_simple(claim: Claim) -> bool:
    """Whether the claim is for the run of its own due time and nothing else."""
    return claim.skip is None and len(claim.runs) == 1 and claim.runs[0].due_us == claim.due_us


async def won_keys(database: Database, lease: Lease, row: asyncpg.Record | None) -> set[RunKey]:
    """The runs that a fenced statement won, unless it found its lease gone or its fence raised."""
    assert row
    if not row["is_held"]:
        await refuse_old(database, lease)
    return set(map(RunKey, row["job_ids"] or (), row["due_ats"] or ()))
