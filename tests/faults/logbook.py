"""The logs of an experiment on real processes, as the checker reads them."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import asyncpg
import msgspec
from msgspec.structs import replace
from tests.checker.records import (
    ClockError,
    Fault,
    FaultKind,
    History,
    JobRow,
    Offset,
    Ownership,
    PartitionRow,
    RunRow,
)
from tests.faults.client import Clients, now_us
from tests.faults.records import Records
from tests.faults.server import Server

if TYPE_CHECKING:  # asyncpg's classes take type arguments in their stubs only
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

PAGE = 10_000
TRANSIT_US = 1_000_000  # a worker that is busy reads its new connections later than the others
LEASE_US = 5_000_000
COSTLY_US = 3_000_000  # of a lease that is renewed every second, and given up half a second early
US = "(extract(epoch FROM {0}) * 1000000)::bigint"
RUNS = f"""
SELECT job_id::text AS job, {US.format("due_at")} AS due_us, tenant_id::text AS tenant, partition,
    state, trigger, attempt, token, shard::text, {US.format("armed_at")} AS armed_at_us,
    {US.format("finished_at")} AS finished_at_us, skip_reason, missed_count,
    {US.format("missed_since")} AS missed_since_us, {US.format("backfill_of")} AS backfill_of_us
FROM {{0}} ORDER BY job_id, due_at
"""
JOBS = f"""
SELECT job_id::text AS job, name, jobs.tenant_id::text AS tenant, jobs.partition, state, error,
    CASE WHEN due_at < 'infinity' THEN {US.format("due_at")} END AS next_due_us
FROM wheelsched.jobs LEFT JOIN wheelsched.timers USING (job_id)
"""
OWNERSHIP = f"""
SELECT {US.format("at")} AS at_us, partition, epoch, owner::text, ended, offset_us
FROM faults.ownership ORDER BY seen
"""
UNFINISHED = """
SELECT EXISTS (
    SELECT FROM wheelsched.runs
    WHERE state NOT IN ('succeeded', 'dead', 'skipped', 'cancelled') AND due_at <= $1
)
"""
OVERDUE = "SELECT EXISTS (SELECT FROM wheelsched.timers WHERE due_at <= $1)"


class Logbook:
    """What only the experiment knows: what it broke, and when."""

    def __init__(self) -> None:
        self.started_us = now_us()
        self.faults: list[Fault] = []
        self.offsets: list[Offset] = []
        self.clock_errors: list[ClockError] = []
        self.stalls_us: list[int] = []
        self._stalls: list[tuple[int, int]] = []  # of the last seconds
        self.returns_us: list[int] = []  # when Postgres was back

    @contextmanager
    def fault(self, kind: FaultKind, shard: str | None = None) -> Iterator[None]:
        """Something is broken as long as the block lasts."""
        from_us = now_us()
        try:
            yield
        finally:
            self.note(kind, from_us, shard)

    def stalled(self, kind: FaultKind, from_us: int) -> None:
        """The machine itself was away for a while: too short to matter much, or not."""
        until_us = now_us()
        recent = [one for one in self._stalls if one[1] > from_us - LEASE_US]
        self._stalls = [*recent, (from_us, until_us)]
        self.stalls_us.append(until_us - from_us)
        away_us = _covered_us(self._stalls)
        self.note(kind if away_us > COSTLY_US else "stall", from_us)

    def note(self, kind: FaultKind, from_us: int, shard: str | None = None) -> None:
        self.faults.append(Fault(kind=kind, from_us=from_us, until_us=now_us(), shard=shard))


async def read_history(
    server: Server,
    database: str,
    logbook: Logbook,
    healed_us: int,
    said: tuple[Clients, Iterable[Records]],
) -> History:
    """Everything that happened: from the tables, and from what clients and workers wrote."""
    clients, records = said
    connection = await asyncpg.connect(server.url(database))
    try:
        jobs = await connection.fetch(JOBS)
        ids = {(row["tenant"], row["name"]): row["job"] for row in jobs}
        return History(
            started_us=logbook.started_us,
            healed_us=healed_us,
            ended_us=now_us(),
            transit_us=TRANSIT_US,
            requests=tuple(
                replace(request, job=ids.get((request.tenant, request.job), request.job))
                for request in clients.by_id()
            ),
            trespasses=tuple(one for client in clients.each for one in client.trespasses),
            arrivals=tuple(arrival for one in records for arrival in one.read()),
            jobs=tuple(msgspec.convert(_without(dict(row), "name"), JobRow) for row in jobs),
            runs=tuple([run async for run in read_runs(connection, "wheelsched.runs")]),
            partitions=tuple(
                PartitionRow(partition=row["partition"], epoch=row["epoch"])
                for row in await connection.fetch(
                    "SELECT partition, epoch FROM wheelsched.partitions"
                )
            ),
            overwritten=tuple([run async for run in read_runs(connection, "faults.overwritten")]),
            faults=tuple(logbook.faults),
            ownerships=tuple(read_ownerships(await connection.fetch(OWNERSHIP))),
            offsets=tuple(logbook.offsets),
            clock_errors=tuple(logbook.clock_errors),
        )
    finally:
        await connection.close()


async def read_runs(connection: Connection, table: str) -> AsyncIterator[RunRow]:
    """A page at a time: there may be a million."""
    async with connection.transaction(readonly=True):
        async for row in connection.cursor(RUNS.format(table), prefetch=PAGE):
            yield msgspec.convert(dict(row), RunRow)


def read_ownerships(rows: Iterable[asyncpg.Record]) -> Iterator[Ownership]:
    """Who owned what, in the reference's time: a row says when the database's clock was moved."""
    offset_us = 0
    current: dict[int, Ownership] = {}
    for row in rows:
        if row["offset_us"] is not None:
            offset_us = row["offset_us"]
            continue
        at_us = row["at_us"] - offset_us
        known = current.pop(row["partition"], None)
        if known is not None:
            yield replace(known, until_us=at_us, ended=row["ended"] or "released")
        if row["owner"] is not None:
            current[row["partition"]] = Ownership(
                partition=row["partition"],
                epoch=row["epoch"],
                shard=row["owner"],
                from_us=at_us,
            )
    yield from current.values()


def _covered_us(stretches: Iterable[tuple[int, int]]) -> int:
    """How long all of them took, together where they overlap: two probes may see one stall."""
    covered_us = end_us = 0
    for from_us, until_us in sorted(stretches):
        covered_us += max(until_us - max(from_us, end_us), 0)
        end_us = max(end_us, until_us)
    return covered_us


def _without(fields: dict[str, object], name: str) -> dict[str, object]:
    del fields[name]
    return fields
