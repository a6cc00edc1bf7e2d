"""Requested runs (triggers and backfills), on Postgres.

Invariant: either all runs of a request are added or none is. They are due in the order in which
they were given, each at an instant of its own. A retried request returns the runs that it added.
"""

from collections.abc import Sequence

from wheelsched.core.audit import asked
from wheelsched.core.model import RunKey
from wheelsched.core.request import moved_past, refuse_too_many
from wheelsched.errors import JobNotFound
from wheelsched.ports import Caller, RequestedRun
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.for_api.audit import note
from wheelsched.store.schema.days import Days

QUERIES = load_queries("history.sql")


async def request_runs(
    database: Database, caller: Caller, runs: Sequence[RequestedRun], most: int, days: Days
) -> list[RunKey]:
    """Adds the runs of one request, and returns their keys."""
    job_id, request_id = runs[0].key.job_id, runs[0].request_id
    async with database.tenant(caller) as connection:
        if await connection.fetchval(QUERIES["lock_requested"], job_id) is None:
            raise JobNotFound
        due_us = [run.key.due_us for run in runs]
        while taken := await connection.fetch(QUERIES["list_taken"], job_id, due_us):
            if request_id is not None and any(row["request_id"] == request_id for row in taken):
                return await _added_before(connection, runs)
            due_us = moved_past(due_us, taken[-1]["due_at"])
        waiting = await connection.fetchval(QUERIES["count_waiting"], job_id, most + 1)
        refuse_too_many(waiting, len(runs), most)
        days += (due_us[0], due_us[-1])  # they may have been moved past midnight
        await connection.execute(
            QUERIES["request_runs"],
            job_id,
            due_us,
            [run.trigger for run in runs],
            [run.backfill_of_us for run in runs],
            request_id,
        )
        for run, each_us in zip(runs, due_us, strict=True):
            if run.payload is not None:
                payload = bytes(run.payload)
                await connection.execute(QUERIES["add_payload"], job_id, each_us, payload)
        keys = [RunKey(job_id, each_us) for each_us in due_us]
        await note(connection, caller.tenant_id, caller.actor, asked("request", keys))
    return keys


async def _added_before(connection: Connection, runs: Sequence[RequestedRun]) -> list[RunKey]:
    job_id, first_us = runs[0].key
    rows = await connection.fetch(
        QUERIES["list_requested"], job_id, first_us, runs[0].request_id, len(runs)
    )
    return [RunKey(job_id, row["due_at"]) for row in rows]
