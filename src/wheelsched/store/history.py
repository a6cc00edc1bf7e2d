"""Runs of one tenant, on Postgres: what the API reads, and what people ask for.

Invariant: nothing here arms a run. What a person asks for waits for the shard that owns it.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

import asyncpg

from wheelsched.core.model import Attempt, Run, RunKey
from wheelsched.core.outcome import Failed
from wheelsched.errors import DayMissing, RunNotFound, RunNotLive
from wheelsched.ports import RequestedRun
from wheelsched.store.database import Database
from wheelsched.store.definition import decode_run
from wheelsched.store.queries import load_queries

QUERIES = load_queries("history.sql")
DAYS = load_queries("timers.sql")["make_days"]
BEFORE_ALL = RunKey(UUID(int=0), 0)
STATES_THAT_WAIT = ("retrying",)


class PostgresHistory:
    """`HistoryStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_run(self, tenant_id: UUID, key: RunKey) -> tuple[Run, list[Attempt]]:
        async with self._database.tenant(tenant_id) as connection:
            row = await connection.fetchrow(QUERIES["get_run"], *key)
            if row is None:
                raise RunNotFound
            attempts = await connection.fetch(QUERIES["list_attempts"], *key)
        return decode_run(row), [decode_attempt(attempt) for attempt in attempts]

    async def list_runs(
        self, tenant_id: UUID, job_id: UUID, limit: int, before_us: int | None = None
    ) -> list[Run]:
        async with self._database.tenant(tenant_id) as connection:
            rows = await connection.fetch(QUERIES["list_runs"], job_id, before_us, limit)
        return [decode_run(row) for row in rows]

    async def list_dead(
        self, tenant_id: UUID, limit: int, after: RunKey | None = None
    ) -> list[RunKey]:
        position = after or BEFORE_ALL
        async with self._database.tenant(tenant_id) as connection:
            rows = await connection.fetch(
                QUERIES["list_dead"], position.due_us, position.job_id, limit
            )
        return [RunKey(*row) for row in rows]

    async def request(self, tenant_id: UUID, runs: Sequence[RequestedRun]) -> set[RunKey]:
        try:
            return await self._request(tenant_id, runs)
        except DayMissing:
            await self._database.fetchval(DAYS, [run.key.due_us for run in runs])
            return await self._request(tenant_id, runs)

    async def cancel(self, tenant_id: UUID, key: RunKey) -> bool:
        async with self._database.tenant(tenant_id) as connection:
            before = await connection.fetchrow(QUERIES["cancel_run"], *key)
        if before is None:
            raise RunNotFound
        if before["state"] not in ("armed", "running", "retrying", "cancelled"):
            raise RunNotLive
        return before["state"] != "running" and (
            before["state"] in STATES_THAT_WAIT or before["is_early"]
        )

    async def retry(self, tenant_id: UUID, keys: Collection[RunKey]) -> set[RunKey]:
        async with self._database.tenant(tenant_id) as connection:
            rows = await connection.fetch(
                QUERIES["retry_runs"], [key.job_id for key in keys], [key.due_us for key in keys]
            )
        return set(keys) - {RunKey(row["job_id"], row["due_at"]) for row in rows}

    async def heartbeat(self, tenant_id: UUID, key: RunKey, token: int) -> bool:
        async with self._database.tenant(tenant_id) as connection:
            return bool(await connection.fetchval(QUERIES["heartbeat"], *key, token))

    async def _request(self, tenant_id: UUID, runs: Sequence[RequestedRun]) -> set[RunKey]:
        async with self._database.tenant(tenant_id) as connection:
            rows = await connection.fetch(
                QUERIES["request_runs"],
                [run.key.job_id for run in runs],
                [run.key.due_us for run in runs],
                [run.trigger for run in runs],
                [run.backfill_of_us for run in runs],
            )
        return {run.key for run in runs} - {RunKey(row["job_id"], row["due_at"]) for row in rows}


def decode_attempt(row: asyncpg.Record) -> Attempt:
    """An attempt that did not end its run, from its row."""
    return Attempt(
        job_id=row["job_id"],
        due_us=row["due_at"],
        attempt=row["attempt"],
        token=row["token"],
        shard=row["shard"],
        started_at_us=row["started_at"],
        finished_at_us=row["finished_at"],
        outcome=Failed(error=row["error"] or "", http_status=row["http_status"]),
    )
