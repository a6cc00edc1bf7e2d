"""Runs of one tenant, on Postgres: what the API reads, and what people ask for.

Invariant: nothing here arms a run. What a person asks for waits for the shard that owns it.
"""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import asyncpg

from wheelsched.core.audit import asked
from wheelsched.core.model import Attempt, Run, RunKey
from wheelsched.core.outcome import Failed
from wheelsched.core.request import MAX_REQUESTED
from wheelsched.errors import RunNotFound, RunNotLive
from wheelsched.ports import Caller, DeadFilter, RequestedRun, RunFilter, RunsFound, Settled
from wheelsched.store.audit import note
from wheelsched.store.database import Database
from wheelsched.store.days import Days, with_days
from wheelsched.store.definition import decode_run
from wheelsched.store.hints import hint
from wheelsched.store.latest import list_latest
from wheelsched.store.outcomes import note_stale, settle
from wheelsched.store.queries import load_queries
from wheelsched.store.requests import request_runs

QUERIES = load_queries("history.sql")
BEFORE_ALL = RunKey(UUID(int=0), 0)
STATES_THAT_WAIT = ("retrying",)


class PostgresHistory:
    """`HistoryStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_run(self, caller: Caller, key: RunKey) -> tuple[Run, list[Attempt]]:
        async with self._database.tenant(caller) as connection:
            row = await connection.fetchrow(QUERIES["get_run"], *key)
            if row is None:
                raise RunNotFound
            attempts = await connection.fetch(QUERIES["list_attempts"], *key)
        return decode_run(row), [decode_attempt(attempt) for attempt in attempts]

    async def list_runs(
        self, caller: Caller, job_id: UUID, limit: int, before_us: int | None = None
    ) -> list[Run]:
        async with self._database.tenant(caller) as connection:
            rows = await connection.fetch(QUERIES["list_runs"], job_id, before_us, limit)
        return [decode_run(row) for row in rows]

    async def list_runs_from(
        self, caller: Caller, job_id: UUID, limit: int, from_us: int
    ) -> list[Run]:
        async with self._database.tenant(caller) as connection:
            rows = await connection.fetch(QUERIES["list_runs_from"], job_id, from_us, limit)
        return [decode_run(row) for row in rows]

    async def list_latest(
        self, caller: Caller, wanted: RunFilter, limit: int, rest: RunKey | None = None
    ) -> RunsFound:
        async with self._database.tenant(caller) as connection:
            return await list_latest(connection, wanted, limit, rest)

    async def list_dead(
        self, caller: Caller, wanted: DeadFilter, limit: int, after: RunKey | None = None
    ) -> list[Run]:
        position = after or BEFORE_ALL
        async with self._database.tenant(caller) as connection:
            rows = await connection.fetch(
                QUERIES["list_dead"],
                position.due_us,
                position.job_id,
                wanted.job_id,
                wanted.since_us,
                wanted.until_us,
                limit,
            )
        return [decode_run(row) for row in rows]

    async def request(
        self, caller: Caller, runs: Sequence[RequestedRun], most: int = MAX_REQUESTED
    ) -> list[RunKey]:
        if not runs:
            return []
        return await with_days(
            self._database, partial(request_runs, self._database, caller, runs, most)
        )

    async def cancel(self, caller: Caller, key: RunKey) -> bool:
        async with self._database.tenant(caller) as connection:
            before = await connection.fetchrow(QUERIES["cancel_run"], *key)
            if before is not None and before["hints"]:
                await note(connection, caller.tenant_id, caller.actor, asked("cancel", [key]))
        if before is None:
            await self.get_run(caller, key)  # it may be dead, and its day dropped
            raise RunNotLive
        if before["state"] not in ("armed", "running", "retrying", "cancelled"):
            raise RunNotLive
        return before["state"] != "running" and (
            before["state"] in STATES_THAT_WAIT or before["is_early"]
        )

    async def retry(
        self, caller: Caller, keys: Sequence[RunKey], *, delay_us: int = 0, spacing_us: int = 0
    ) -> set[RunKey]:
        retry = partial(self._retry, caller, keys, delay_us, spacing_us)
        return await with_days(self._database, retry)

    async def _retry(
        self, caller: Caller, keys: Sequence[RunKey], delay_us: int, spacing_us: int, days: Days
    ) -> set[RunKey]:
        given = [key.job_id for key in keys], [key.due_us for key in keys]
        async with self._database.tenant(caller) as connection:
            if kept := await connection.fetch(QUERIES["list_kept"], *given):
                days += (row["due_at"] for row in kept)
                await connection.execute(QUERIES["restore_kept"], *given)
            rows = await connection.fetch(QUERIES["retry_runs"], *given, delay_us, spacing_us)
            revived = {RunKey(row["job_id"], row["due_at"]) for row in rows}
            if revived:
                await note(connection, caller.tenant_id, caller.actor, asked("retry", revived))
        return set(keys) - revived

    async def heartbeat(self, caller: Caller, key: RunKey, token: int) -> bool:
        async with self._database.tenant(caller) as connection:
            return bool(await connection.fetchval(QUERIES["heartbeat"], *key, token))

    async def answer(self, caller: Caller, settled: Settled) -> bool:
        async with self._database.tenant(caller) as connection:
            if not await settle(connection, [settled]):
                await hint(connection, settled.key.job_id)
                return True
            if await note_stale(connection, [settled]):
                return False
            run = await connection.fetchrow(QUERIES["get_run"], *settled.key)
        if run is None:
            raise RunNotFound
        return bool(run["token"] == settled.token)  # or it is dead, and its day dropped


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
