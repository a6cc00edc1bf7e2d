"""Runs of one tenant, in memory. Invariant: as on Postgres, nothing here arms a run."""

from collections.abc import Collection, Sequence
from uuid import UUID

from msgspec.structs import replace

from wheelsched.core.duration import MILLISECOND
from wheelsched.core.model import FINAL_STATES, Attempt, Run, RunKey, RunState
from wheelsched.errors import RunNotFound, RunNotLive
from wheelsched.ports import RequestedRun
from wheelsched.testing.tables import IN_TIME_US, MemoryTables, RunRow


class MemoryHistory:
    """`HistoryStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def get_run(self, tenant_id: UUID, key: RunKey) -> tuple[Run, list[Attempt]]:
        row = self._row(tenant_id, key)
        attempts = [attempt for (of, _), attempt in self._tables.attempts.items() if of == key]
        return row.run, sorted(attempts, key=lambda attempt: attempt.attempt)

    async def list_runs(
        self, tenant_id: UUID, job_id: UUID, limit: int, before_us: int | None = None
    ) -> list[Run]:
        found = [
            row.run
            for key, row in self._tables.runs.items()
            if key.job_id == job_id
            and row.run.tenant_id == tenant_id
            and (before_us is None or key.due_us < before_us)
        ]
        return sorted(found, key=lambda run: -run.due_us)[:limit]

    async def list_dead(
        self, tenant_id: UUID, limit: int, after: RunKey | None = None
    ) -> list[RunKey]:
        found = [
            key
            for key, row in self._tables.runs.items()
            if row.run.tenant_id == tenant_id
            and row.run.state is RunState.DEAD
            and (after is None or position(key) > position(after))
        ]
        return sorted(found, key=position)[:limit]

    async def request(self, tenant_id: UUID, runs: Sequence[RequestedRun]) -> set[RunKey]:
        refused: set[RunKey] = set()
        for requested in runs:
            job = self._tables.jobs.get(requested.key.job_id)
            if job is None or job.tenant_id != tenant_id:
                refused.add(requested.key)
                continue
            run = Run(
                job_id=requested.key.job_id,
                due_us=requested.key.due_us,
                tenant_id=tenant_id,
                state=RunState.RETRYING,
                trigger=requested.trigger,
                backfill_of_us=requested.backfill_of_us,
                retry_at_us=requested.key.due_us,
            )
            if not self._tables.write_run(run):
                refused.add(run.key)
                continue
            self._wait(self._tables.runs[run.key])
        return refused

    async def cancel(self, tenant_id: UUID, key: RunKey) -> bool:
        row = self._row(tenant_id, key)
        before = row.run.state
        if before in FINAL_STATES and before is not RunState.CANCELLED:
            raise RunNotLive
        if before is not RunState.CANCELLED:
            row.run = replace(
                row.run,
                state=RunState.CANCELLED,
                finished_at_us=self._tables.now_us(),
                retry_at_us=None,
            )
            self._tables.retries.pop(key, None)
            self._tables.hint(key.job_id)
        is_early = key.due_us > self._tables.now_us() + IN_TIME_US
        return before is not RunState.RUNNING and (before is RunState.RETRYING or is_early)

    async def retry(self, tenant_id: UUID, keys: Collection[RunKey]) -> set[RunKey]:
        refused: set[RunKey] = set()
        for key in keys:
            row = self._tables.runs.get(key)
            if (
                row is None
                or row.run.tenant_id != tenant_id
                or row.run.state not in (RunState.DEAD, RunState.CANCELLED)
            ):
                refused.add(key)
                continue
            now_us = self._tables.now_us()
            row.run = replace(
                row.run,
                state=RunState.RETRYING,
                retry_at_us=now_us - now_us % MILLISECOND,
                attempts_before=row.run.attempt,
                finished_at_us=None,
            )
            self._wait(row)
        return refused

    async def heartbeat(self, tenant_id: UUID, key: RunKey, token: int) -> bool:
        row = self._tables.runs.get(key)
        if row is None or row.run.tenant_id != tenant_id or row.run.token != token:
            return False
        if row.run.state not in (RunState.ARMED, RunState.RUNNING):
            return False
        row.heartbeat_at_us = self._tables.now_us()
        return True

    def _wait(self, row: RunRow) -> None:
        row.had_retry = True
        self._tables.retries[row.run.key] = row.run.retry_at_us
        self._tables.hint(row.run.job_id)

    def _row(self, tenant_id: UUID, key: RunKey) -> RunRow:
        row = self._tables.runs.get(key)
        if row is None or row.run.tenant_id != tenant_id:
            raise RunNotFound
        return row


def position(key: RunKey) -> tuple[int, bytes]:
    """The order of lists."""
    return key.due_us, key.job_id.bytes
