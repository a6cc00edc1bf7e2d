"""Timers, on Postgres: loaded up to the horizon, claimed and moved.

Invariant: a due time is claimed by moving its timer past it, in a statement that holds the lease
row by its fence.
"""

from array import array
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID

import asyncpg
import msgspec
import structlog
from msgspec import Raw

from wheelsched.core.model import DRAFT_STATES, Job, Lane, Run, RunKey, SkipReason
from wheelsched.core.overdue import Unarmed
from wheelsched.core.policies.misfire import Skip
from wheelsched.errors import KeyTaken
from wheelsched.ports import Claim, ClaimedRetry, Horizon, Lease, Mark, Retry
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.definition import decode_in_slices, decode_job, decode_run
from wheelsched.store.for_api.skips import record_skipped, withdraw, write_skip
from wheelsched.store.for_shard.hints import hint_many
from wheelsched.store.for_shard.horizon import HorizonDecoder
from wheelsched.store.for_shard.leases import check_lease
from wheelsched.store.schema.days import Days, with_days

log = structlog.get_logger("wheelsched.store")

QUERIES = load_queries("timers.sql")
RETRIES_PAGE = 1_000  # retries that are decoded before other tasks run
MISSED_BATCH = 50  # claims of up to a thousand runs each, which are joined by nested loops


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
            retries: list[Retry] = []
            async with connection.transaction():
                waiting = await connection.cursor(QUERIES["load_retries"], wanted, until_us)
                while rows := await waiting.fetch(RETRIES_PAGE):
                    retries += decode_retries(rows)
        return decoder.finish(tuple(retries))

    async def reload(
        self,
        job_ids: Collection[UUID],
        until_us: int,
        retries_since_us: Mapping[UUID, int] | None = None,
    ) -> Horizon:
        wanted = list(set(job_ids))
        known_us = retries_since_us or {}
        since_us = [known_us.get(job_id, 0) for job_id in wanted]
        async with self._database.connection() as connection:
            timers = await connection.fetch(QUERIES["reload_timers"], wanted, until_us)
            waiting = await connection.fetch(QUERIES["reload_retries"], wanted, until_us, since_us)
        return Horizon(
            job_ids=b"".join(row["job_id"].bytes for row in timers),
            due_us=array("q", [row["due_at"] for row in timers]),
            versions=array("i", [row["version"] for row in timers]),
            retries=decode_retries(waiting),
        )

    async def oldest_unarmed(self, partitions: Collection[int]) -> list[Unarmed]:
        rows = await self._database.fetch(QUERIES["oldest_unarmed"], sorted(partitions))
        return [Unarmed(*row) for row in rows]

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        rows = await self._database.fetch(QUERIES["read_jobs"], list(job_ids))
        return [job for job in await decode_in_slices(_read_job, rows) if job is not None]

    async def read_payloads(self, keys: Collection[RunKey]) -> dict[RunKey, Raw]:
        rows = await self._database.fetch(
            QUERIES["read_payloads"],
            [key.job_id for key in keys],
            [key.due_us for key in keys],
        )
        return {RunKey(row["job_id"], row["due_at"]): Raw(row["payload"]) for row in rows}

    async def arm(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        assert len({claim.job_id for claim in claims}) == len(claims), "a job is claimed twice"
        simple = [claim for claim in claims if is_simple(claim)]
        missed = [claim for claim in claims if not is_simple(claim)]
        try:
            lost = await self._arm_simple(lease, simple) if simple else set()
        except KeyTaken:  # a job that resumed at an earlier time may have runs there already
            lost, missed = set(), [*missed, *simple]
        for start in range(0, len(missed), MISSED_BATCH):
            lost |= await self._arm_missed(lease, missed[start : start + MISSED_BATCH])
        return lost

    async def arm_retries(self, lease: Lease, retries: Sequence[ClaimedRetry]) -> list[Run]:
        if not retries:
            return []
        rows = await self._database.fetch(
            QUERIES["arm_retries"],
            lease.shard_id,
            lease.fence,
            [retry.key.job_id for retry in retries],
            [retry.key.due_us for retry in retries],
            [retry.retry_at_us for retry in retries],
            [retry.token for retry in retries],
        )
        if not rows[0]["is_held"]:
            await check_lease(self._database, lease)
        return [decode_run(row) for row in rows if row["job_id"] is not None]

    async def advance(self, lease: Lease, marks: Mapping[int, Mark]) -> None:
        await self._database.fetch(
            QUERIES["advance_live_since"],
            lease.shard_id,
            lease.fence,
            list(marks),
            [mark.live_since_us for mark in marks.values()],
            [mark.token for mark in marks.values()],
        )

    async def finish(self, lease: Lease, job_ids: Collection[UUID]) -> None:
        await self._database.fetch(
            QUERIES["finish_jobs"], lease.shard_id, lease.fence, list(job_ids)
        )

    async def pause_gone(self, lease: Lease, versions: Mapping[UUID, int]) -> None:
        await with_days(self._database, partial(self._pause_gone, lease, versions))

    async def _pause_gone(self, lease: Lease, versions: Mapping[UUID, int], days: Days) -> None:
        async with self._database.connection() as connection, connection.transaction():
            rows = await connection.fetch(
                QUERIES["pause_gone_jobs"],
                lease.shard_id,
                lease.fence,
                list(versions),
                list(versions.values()),
            )
            for row in rows:
                if row["due_at"] is None:
                    continue
                stretch_us = (row["due_at"], row["paused_at"])
                job = _read_job(row)
                if job is not None:
                    await record_skipped(connection, job, stretch_us, SkipReason.PAUSED, days)
                else:  # the schedule is unreadable: only the timer's own due time is known
                    skip = Skip(
                        reason=SkipReason.PAUSED,
                        count=1,
                        first_us=row["due_at"],
                        last_us=row["due_at"],
                    )
                    await write_skip(connection, row["job_id"], skip, days)
            if rows:
                job_ids = [row["job_id"] for row in rows]
                await withdraw(connection, job_ids, SkipReason.PAUSED)
                await hint_many(connection, job_ids)

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
            await check_lease(self._database, lease)
        if row["won"] == len(claims):
            return set()
        won = set(row["job_ids"] or ())
        return {RunKey(claim.job_id, claim.due_us) for claim in claims if claim.job_id not in won}

    async def _arm_missed(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        runs = [(claim, run) for claim in claims for run in claim.runs]
        skips = [(claim, claim.skip) for claim in claims if claim.skip]
        decided_claims = [claim for claim, _ in (*runs, *skips)]
        due_us = [run.due_us for _, run in runs] + [skip.last_us for _, skip in skips]
        of_no_skip, of_no_run = [None] * len(runs), [None] * len(skips)
        row = await self._write_runs(
            due_us,
            QUERIES["arm_missed"],
            lease.shard_id,
            lease.fence,
            [claim.job_id for claim in claims],
            [claim.due_us for claim in claims],
            [claim.version for claim in claims],
            [claim.next_due_us for claim in claims],
            [claim.job_id for claim in decided_claims],
            due_us,
            [claim.tenant_id for claim in decided_claims],
            [*(run.token for _, run in runs), *of_no_run],
            [*(run.lane for _, run in runs), *(Lane.ON_TIME for _ in skips)],
            [*of_no_skip, *(skip.reason for _, skip in skips)],
            [*of_no_skip, *(skip.count for _, skip in skips)],
            [*of_no_skip, *(skip.first_us for _, skip in skips)],
        )
        won = await won_keys(self._database, lease, row)
        moved = set(row["moved_ids"])
        lost = {claim.key for claim in claims if claim.job_id not in moved}
        return lost | {RunKey(claim.job_id, run.due_us) for claim, run in runs} - won

    async def _write_runs(self, due_us: list[int], sql: str, *arguments: object) -> asyncpg.Record:
        """Executes a statement that writes runs at these due times."""

        def write(days: Days) -> Awaitable[asyncpg.Record | None]:
            days += due_us
            return self._database.fetchrow(sql, *arguments)

        row = await with_days(self._database, write)
        assert row
        return row


def _read_job(row: asyncpg.Record) -> Job | None:
    """A job, or None for a draft and for a job that this version of the program cannot read."""
    if row["state"] in DRAFT_STATES:
        return None
    try:
        return decode_job(row)
    except msgspec.DecodeError as error:
        log.error("job.unreadable", job_id=str(row["job_id"]), error=str(error))  # noqa: TRY400
        return None


def is_simple(claim: Claim) -> bool:
    """Whether the claim has one run, at its own due time, and no skip."""
    if claim.skip is not None or len(claim.runs) != 1:
        return False
    run = claim.runs[0]
    return run.due_us == claim.due_us and run.lane is Lane.ON_TIME


def decode_retries(rows: Iterable[asyncpg.Record]) -> tuple[Retry, ...]:
    """Retries from their rows."""
    return tuple(Retry(RunKey(row["job_id"], row["due_at"]), row["retry_at"]) for row in rows)


async def won_keys(database: Database, lease: Lease, row: asyncpg.Record | None) -> set[RunKey]:
    """The runs that a fenced statement won, or `LeaseLost` or `FenceRaised`."""
    assert row
    if not row["is_held"]:
        await check_lease(database, lease)
    return set(map(RunKey, row["job_ids"] or (), row["due_ats"] or ()))
