"""Lists the latest runs of all jobs of a tenant, on Postgres.

Invariant: no index of `runs` begins with the tenant or the time, because each would make every run
slower. So the list is read in slices of time along the index of the partitions. A page ends when it
is full or has taken `BUDGET_S`, however many runs other tenants have.
"""

import asyncio
from typing import Final
from uuid import UUID

from wheelsched.core.model import Run, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.ports import RunFilter, RunsFound
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.definition import decode_run
from wheelsched.values.duration import SECOND

QUERIES = load_queries("history.sql")
BUDGET_S: Final = 0.5
FIRST_SLICE_US: Final = SECOND
GROWTH: Final = 2  # factor by which slices grow until the page is full
NO_JOB: Final = UUID(int=0)  # in a position: the runs of its instant have all been read
IN_RETRIES: Final = (RunState.RUNNING, RunState.RETRYING)


async def list_latest(
    connection: Connection, wanted: RunFilter, limit: int, rest: RunKey | None
) -> RunsFound:
    """A page of the list, read along the index that visits the fewest rows for the filter."""
    begin = rest or RunKey(NO_JOB, wanted.until_us)
    since_us, state = wanted.since_us, wanted.state
    if wanted.job_id is not None:
        of_job = (wanted.job_id, since_us, begin.due_us, state, limit)
        runs = await _fetch(connection, QUERIES["list_latest_of_job"], *of_job)
    elif state is RunState.DEAD:
        window = (since_us, begin.due_us, begin.job_id)
        runs = await _fetch(connection, QUERIES["list_latest_dead"], *window, limit)
    elif state in IN_RETRIES:
        window = (since_us, begin.due_us, begin.job_id)
        runs = await _fetch(connection, QUERIES["list_latest_live"], *window, state, limit)
    else:
        return await Slices(connection, wanted, limit).read(begin)
    return RunsFound(runs, runs[-1].key if len(runs) == limit else None)


class Slices:
    """Reads slices of time, latest first, each twice as long as the previous one."""

    def __init__(self, connection: Connection, wanted: RunFilter, limit: int) -> None:
        self._connection = connection
        self._wanted = wanted
        self._limit = limit
        self._runs: list[Run] = []

    async def read(self, begin: RunKey) -> RunsFound:
        """The page that begins at a position."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + BUDGET_S
        if begin.job_id != NO_JOB:
            await self._read_instant(begin)
        end_us, width_us = begin.due_us, FIRST_SLICE_US
        while len(self._runs) < self._limit:
            if end_us <= self._wanted.since_us:
                return RunsFound(self._runs, None)
            start_us = max(end_us - width_us, self._wanted.since_us)
            end_us = await self._read_slice(start_us, end_us)
            width_us *= GROWTH
            if len(self._runs) < self._limit and loop.time() > deadline_s:
                return RunsFound(self._runs, RunKey(NO_JOB, end_us))
        return RunsFound(self._runs, self._runs[-1].key)

    async def _read_slice(self, start_us: int, end_us: int) -> int:
        """Reads a slice until the page is full, and returns where it stopped."""
        left = self._limit - len(self._runs)
        state = self._wanted.state
        found = await _fetch(
            self._connection, QUERIES["list_latest"], start_us, end_us, state, left
        )
        if len(found) < left:
            self._runs += sorted(found, key=_sort_key)
            return start_us
        last_us = found[-1].due_us
        self._runs += sorted((run for run in found if run.due_us > last_us), key=_sort_key)
        await self._read_instant(RunKey(NO_JOB, last_us))
        return last_us

    async def _read_instant(self, after: RunKey) -> None:
        """Reads the runs that are due at the same instant as a run, and come after it."""
        partition = -1 if after.job_id == NO_JOB else partition_of(after.job_id)
        left = self._limit - len(self._runs)
        self._runs += await _fetch(
            self._connection,
            QUERIES["list_instant"],
            *(after.due_us, partition, after.job_id, self._wanted.state, left),
        )


def _sort_key(run: Run) -> tuple[int, int, bytes]:
    return -run.due_us, partition_of(run.job_id), run.job_id.bytes


async def _fetch(connection: Connection, query: str, *arguments: object) -> list[Run]:
    return [decode_run(row) for row in await connection.fetch(query, *arguments)]
