"""`HistoryStore` in memory. Invariant: like on Postgres, nothing here arms a run."""

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from wheelsched.core.audit import asked
from wheelsched.core.model import FINAL_STATES, Attempt, Lane, Run, RunKey, RunState, Trigger
from wheelsched.core.outcome import Failed
from wheelsched.core.request import MAX_REQUESTED, moved_past, refuse_too_many
from wheelsched.errors import JobNotFound, RunNotFound, RunNotLive
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
from wheelsched.testing.outcomes import settle
from wheelsched.testing.tables import IN_TIME_US, MemoryTables, RunRow
from wheelsched.values.duration import MILLISECOND


class MemoryHistory:
    """`HistoryStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def get_run(self, caller: Caller, key: RunKey) -> tuple[Run, list[Attempt]]:
        row = self._row(caller, key)
        attempts = [attempt for (of, _), attempt in self._tables.attempts.items() if of == key]
        return row.run, sorted(attempts, key=lambda attempt: attempt.attempt)

    async def list_runs(
        self, caller: Caller, job_id: UUID, limit: int, before_us: int | None = None
    ) -> list[Run]:
        found = [
            row.run
            for key, row in self._tables.runs.items()
            if key.job_id == job_id
            and row.run.tenant_id == caller.tenant_id
            and (before_us is None or key.due_us < before_us)
        ]
        return sorted(found, key=lambda run: -run.due_us)[:limit]

    async def list_runs_from(
        self, caller: Caller, job_id: UUID, limit: int, from_us: int
    ) -> list[Run]:
        found = await self.list_runs(caller, job_id, len(self._tables.runs))
        return [run for run in reversed(found) if run.due_us >= from_us][:limit]

    async def list_latest(
        self, caller: Caller, wanted: RunFilter, limit: int, rest: RunKey | None = None
    ) -> RunsFound:
        found = [
            row.run
            for key, row in self._tables.runs.items()
            if row.run.tenant_id == caller.tenant_id
            and wanted.since_us <= key.due_us < wanted.until_us
            and wanted.state in (None, row.run.state)
            and wanted.job_id in (None, key.job_id)
            and (rest is None or position(key) < position(rest))
        ]
        part = sorted(found, key=lambda run: position(run.key), reverse=True)[:limit]
        return RunsFound(part, part[-1].key if len(part) == limit else None)

    async def list_dead(
        self, caller: Caller, wanted: DeadFilter, limit: int, after: RunKey | None = None
    ) -> list[Run]:
        found = [
            row.run
            for key, row in self._tables.runs.items()
            if row.run.tenant_id == caller.tenant_id
            and row.run.state is RunState.DEAD
            and (after is None or position(key) > position(after))
            and wanted.job_id in (None, key.job_id)
            and (wanted.since_us is None or key.due_us >= wanted.since_us)
            and (wanted.until_us is None or key.due_us < wanted.until_us)
        ]
        return sorted(found, key=lambda run: position(run.key))[:limit]

    async def request(
        self, caller: Caller, runs: Sequence[RequestedRun], most: int = MAX_REQUESTED
    ) -> list[RunKey]:
        if not runs:
            return []
        job_id, request_id = runs[0].key.job_id, runs[0].request_id
        job = self._tables.jobs.get(job_id)
        if job is None or job.tenant_id != caller.tenant_id:
            raise JobNotFound
        if request_id is not None and (made := self._made_by(request_id, job_id)):
            return made
        due_us = [run.key.due_us for run in runs]
        while taken := [each for each in due_us if RunKey(job_id, each) in self._tables.runs]:
            due_us = moved_past(due_us, taken[-1])
        waiting = sum(key.job_id == job_id for key in self._tables.retries)
        refuse_too_many(waiting, len(runs), most)
        for requested, each_us in zip(runs, due_us, strict=True):
            run = Run(
                job_id=job_id,
                due_us=each_us,
                tenant_id=caller.tenant_id,
                state=RunState.RETRYING,
                trigger=requested.trigger,
                lane=Lane.LATE if requested.trigger is Trigger.BACKFILL else Lane.ON_TIME,
                backfill_of_us=requested.backfill_of_us,
                retry_at_us=each_us,
            )
            self._tables.write_run(run)
            self._tables.runs[run.key].request_id = request_id
            if requested.payload is not None:
                self._tables.payloads[run.key] = requested.payload
            self._wait(self._tables.runs[run.key])
        keys = [RunKey(job_id, each_us) for each_us in due_us]
        self._note(caller, "request", set(keys))
        return keys

    def _made_by(self, request_id: UUID, job_id: UUID) -> list[RunKey]:
        rows = self._tables.runs.items()
        return sorted(
            key for key, row in rows if key.job_id == job_id and row.request_id == request_id
        )

    async def cancel(self, caller: Caller, key: RunKey) -> bool:
        row = self._row(caller, key)
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
            self._note(caller, "cancel", {key})
        is_early = key.due_us > self._tables.now_us() + IN_TIME_US
        return before is not RunState.RUNNING and (before is RunState.RETRYING or is_early)

    async def retry(
        self,
        caller: Caller,
        keys: Sequence[RunKey],
        *,
        delay_us: int = 0,
        spacing_us: int = 0,
        ended_by_us: int | None = None,
    ) -> set[RunKey]:
        refused: set[RunKey] = set()
        for index, key in enumerate(keys):
            row = self._tables.runs.get(key)
            if (
                row is None
                or row.run.tenant_id != caller.tenant_id
                or key.job_id not in self._tables.jobs
                or row.run.state not in (RunState.DEAD, RunState.CANCELLED)
                or (ended_by_us is not None and (row.run.finished_at_us or 0) > ended_by_us)
            ):
                refused.add(key)
                continue
            self._note_last(row.run)
            retry_at_us = self._tables.now_us() + delay_us + index * spacing_us
            if row.run.state is RunState.CANCELLED:
                retry_at_us = max(retry_at_us, key.due_us)
            row.run = replace(
                row.run,
                state=RunState.RETRYING,
                retry_at_us=retry_at_us - retry_at_us % MILLISECOND,
                attempts_before=row.run.attempt,
                finished_at_us=None,
                lane=Lane.LATE,
            )
            self._wait(row)
        self._note(caller, "retry", set(keys) - refused)
        return refused

    def _note_last(self, run: Run) -> None:
        """Store the last attempt of a dead run, because the next one overwrites it in the run."""
        is_known = any(
            key == run.key and attempt.attempt == run.attempt
            for (key, _), attempt in self._tables.attempts.items()
        )
        if run.state is RunState.DEAD and run.counted_attempt > 0 and not is_known:
            assert run.token is not None
            assert run.shard is not None
            attempt = Attempt(
                job_id=run.job_id,
                due_us=run.due_us,
                attempt=run.attempt,
                token=run.token,
                shard=run.shard,
                started_at_us=run.started_at_us if run.attempt == 1 else None,
                finished_at_us=run.finished_at_us,
                outcome=Failed(error=run.error or "", http_status=run.http_status),
            )
            self._tables.attempts.setdefault((run.key, run.token), attempt)

    async def heartbeat(self, caller: Caller, key: RunKey, token: int) -> bool:
        row = self._tables.runs.get(key)
        if row is None or row.run.tenant_id != caller.tenant_id or row.run.token != token:
            return False
        if row.run.state not in (RunState.ARMED, RunState.RUNNING):
            return False
        row.heartbeat_at_us = self._tables.now_us()
        row.lease_us = None
        return True

    async def heartbeats(
        self, caller: Caller, attempts: Sequence[Attempted], leases_us: Sequence[int | None]
    ) -> list[Held]:
        held: list[Held] = []
        for (key, token), lease_us in zip(attempts, leases_us, strict=True):
            row = self._tables.runs.get(key)
            if await self.heartbeat(caller, key, token):
                self._tables.runs[key].lease_us = lease_us
                held.append(Held(is_held=True))
            elif row is None or row.run.tenant_id != caller.tenant_id or row.run.token != token:
                held.append(Held(is_held=False))
            else:
                is_cancelled = row.run.state is RunState.CANCELLED
                held.append(Held(is_held=False, is_cancelled=is_cancelled))
        return held

    async def read_live(self, caller: Caller, keys: Sequence[RunKey]) -> list[LiveRun]:
        runs = [self._tables.runs[key].run for key in keys if key in self._tables.runs]
        return [self._live(run) for run in runs if run.tenant_id == caller.tenant_id]

    def _live(self, run: Run) -> LiveRun:
        job = self._tables.jobs.get(run.job_id)
        if job is None:
            return LiveRun(run, None)
        is_unchanged = run.armed_at_us is not None and job.updated_at_us <= run.armed_at_us
        return LiveRun(run, job.retry, job.version if is_unchanged else None)

    async def answer(self, caller: Caller, settled: Settled) -> bool:
        row = self._row(caller, settled.key)
        if row.run.token != settled.token:
            self._tables.stale.add((settled.key, settled.token))
            return False
        if settle(self._tables, row, settled):
            self._tables.hint(settled.key.job_id)
        return True

    async def answers(self, caller: Caller, settled: Sequence[Settled]) -> list[Receipt]:
        receipts: list[Receipt] = []
        for each in settled:
            try:
                is_written = await self.answer(caller, each)
            except RunNotFound:
                receipts.append(Receipt.UNKNOWN)
            else:
                receipts.append(Receipt.WRITTEN if is_written else Receipt.STALE)
        return receipts

    def _note(self, caller: Caller, verb: str, keys: set[RunKey]) -> None:
        if keys:
            self._tables.note(caller.tenant_id, caller.actor, asked(verb, keys))

    def _wait(self, row: RunRow) -> None:
        row.had_retry = True
        self._tables.retries[row.run.key] = row.run.retry_at_us
        self._tables.hint(row.run.job_id)

    def _row(self, caller: Caller, key: RunKey) -> RunRow:
        row = self._tables.runs.get(key)
        if row is None or row.run.tenant_id != caller.tenant_id:
            raise RunNotFound
        return row


def position(key: RunKey) -> tuple[int, bytes]:
    """The sort key of lists."""
    return key.due_us, key.job_id.bytes
