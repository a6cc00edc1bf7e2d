"""The runs of one tenant, on Postgres: read, requested, cancelled and retried by the API.

Invariant: nothing here arms a run. A requested or retried run waits for the shard that owns it.
"""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import asyncpg
import msgspec

from wheelsched.core.audit import asked
from wheelsched.core.model import Attempt, Run, RunKey
from wheelsched.core.outcome import Failed
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.core.request import MAX_REQUESTED
from wheelsched.errors import RunNotFound, RunNotLive
from wheelsched.ports import (
    Caller,
    DeadFilter,
    LiveRun,
    RequestedRun,
    RunFilter,
    RunsFound,
    Settled,
)
from wheelsched.ports.work import Attempted, Held, Receipt
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.definition import decode_run
from wheelsched.store.for_api.audit import note
from wheelsched.store.for_api.latest import list_latest
from wheelsched.store.for_api.reported_outcomes import write_reported_outcomes
from wheelsched.store.for_api.requests import request_runs
from wheelsched.store.schema.days import Days, with_days

QUERIES = load_queries("history.sql")
BEFORE_ALL = RunKey(UUID(int=0), 0)
RETRY = msgspec.json.Decoder(RetryPolicy)
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
            await self.get_run(caller, key)  # it may be a dead run whose day was dropped
            raise RunNotLive
        if before["state"] not in ("armed", "running", "retrying", "cancelled"):
            raise RunNotLive
        return before["state"] != "running" and (
            before["state"] in STATES_THAT_WAIT or before["is_early"]
        )

    async def retry(
        self,
        caller: Caller,
        keys: Sequence[RunKey],
        *,
        delay_us: int = 0,
        spacing_us: int = 0,
        ended_by_us: int | None = None,
    ) -> set[RunKey]:
        retry = partial(self._retry, caller, keys, (delay_us, spacing_us, ended_by_us))
        return await with_days(self._database, retry)

    async def _retry(
        self,
        caller: Caller,
        keys: Sequence[RunKey],
        terms: tuple[int, int, int | None],
        days: Days,
    ) -> set[RunKey]:
        given = [key.job_id for key in keys], [key.due_us for key in keys]
        async with self._database.tenant(caller) as connection:
            if kept := await connection.fetch(QUERIES["list_kept"], *given):
                days += (row["due_at"] for row in kept)
                await connection.execute(QUERIES["restore_kept"], *given)
            rows = await connection.fetch(QUERIES["retry_runs"], *given, *terms)
            revived = {RunKey(row["job_id"], row["due_at"]) for row in rows}
            if revived:
                await note(connection, caller.tenant_id, caller.actor, asked("retry", revived))
        return set(keys) - revived

    async def heartbeat(self, caller: Caller, key: RunKey, token: int) -> bool:
        async with self._database.tenant(caller) as connection:
            return bool(await connection.fetchval(QUERIES["heartbeat"], *key, token))

    async def heartbeats(
        self, caller: Caller, attempts: Sequence[Attempted], leases_us: Sequence[int | None]
    ) -> list[Held]:
        by_attempt = dict(zip(attempts, leases_us, strict=True))
        distinct = sorted(by_attempt)  # in one order, so that two statements do not deadlock
        async with self._database.tenant(caller) as connection:
            rows = await connection.fetch(
                QUERIES["heartbeats"],
                [key.job_id for key, _ in distinct],
                [key.due_us for key, _ in distinct],
                [token for _, token in distinct],
                [by_attempt[attempt] for attempt in distinct],
            )
        held = {attempt: Held(*row) for attempt, row in zip(distinct, rows, strict=True)}
        return [held[attempt] for attempt in attempts]

    async def read_live(self, caller: Caller, keys: Sequence[RunKey]) -> list[LiveRun]:
        given = [key.job_id for key in keys], [key.due_us for key in keys]
        async with self._database.tenant(caller) as connection:
            rows = await connection.fetch(QUERIES["read_live"], *given)
        return [
            LiveRun(
                decode_run(row),
                None if row["retry"] is None else RETRY.decode(row["retry"]),
                row["unchanged_version"],
            )
            for row in rows
        ]

    async def answer(self, caller: Caller, settled: Settled) -> bool:
        (receipt,) = await self.answers(caller, [settled])
        if receipt is Receipt.UNKNOWN:
            raise RunNotFound
        return receipt is Receipt.WRITTEN

    async def answers(self, caller: Caller, settled: Sequence[Settled]) -> list[Receipt]:
        async with self._database.tenant(caller) as connection:
            return await write_reported_outcomes(connection, settled)


def decode_attempt(row: asyncpg.Record) -> Attempt:
    """A failed attempt from its row."""
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
