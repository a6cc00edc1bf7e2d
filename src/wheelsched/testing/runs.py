"""Stages *settle* and *sweep*, in memory. Invariant: as on Postgres, fenced by token."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from wheelsched.core.model import FINAL_STATES, Attempt, Run, RunKey, RunState
from wheelsched.core.outcome import Failed
from wheelsched.core.partition import partition_of
from wheelsched.ports import Adoption, Checked, Lease, Settled
from wheelsched.testing.tables import MemoryTables, RunRow

UNFINISHED = (RunState.ARMED, RunState.RUNNING)
WITHOUT_ATTEMPT = (RunState.SKIPPED, RunState.CANCELLED)


class MemoryRuns:
    """`RunStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def settle(self, settled: Sequence[Settled]) -> set[RunKey]:
        stale: set[RunKey] = set()
        for outcome in settled:
            row = self._tables.runs.get(outcome.key)
            if row is None:
                continue
            if row.run.token != outcome.token:
                self._tables.stale.add((outcome.key, outcome.token))
                stale.add(outcome.key)
            elif counts(row.run, outcome):
                self._write(row, outcome)
        return stale

    async def list_unfinished(
        self, lease: Lease, partitions: Collection[int], limit: int, after: Run | None = None
    ) -> list[Run]:
        wanted = {
            partition
            for partition in partitions
            if self._tables.partitions[partition].owner == lease.shard_id
        }
        found = [
            row.run
            for row in self._tables.runs.values()
            if row.run.state in UNFINISHED
            and partition_of(row.run.job_id) in wanted
            and self._is_known(row)
            and (after is None or position(row.run) > position(after))
        ]
        return sorted(found, key=position)[:limit]

    async def adopt(self, lease: Lease, adoptions: Sequence[Adoption]) -> set[RunKey]:
        self._tables.check_lease(lease)
        lost: set[RunKey] = set()
        for adoption in adoptions:
            row = self._tables.runs.get(adoption.key)
            if (
                row is None
                or row.run.state not in UNFINISHED
                or row.run.token != adoption.old_token
                or adoption.token <= adoption.old_token
            ):
                lost.add(adoption.key)
                continue
            row.run = replace(row.run, shard=lease.shard_id, token=adoption.token)
        return lost

    async def recheck(self, keys: Collection[RunKey]) -> list[Checked]:
        found = [(key, self._tables.runs[key]) for key in keys if key in self._tables.runs]
        return [
            Checked(
                key=key,
                state=row.run.state,
                token=row.run.token,
                version=self._version(key),
                heartbeat_at_us=row.heartbeat_at_us,
            )
            for key, row in found
        ]

    def _version(self, key: RunKey) -> int | None:
        job = self._tables.jobs.get(key.job_id)
        return None if job is None else job.version

    def _is_known(self, row: RunRow) -> bool:
        """Whether a sweep sees the run: after its partition's mark, or among the retries."""
        mark_us = self._tables.partitions[partition_of(row.run.job_id)].live_since_us
        return row.run.due_us >= mark_us or row.run.key in self._tables.retries

    def _write(self, row: RunRow, outcome: Settled) -> None:
        before = row.run
        makes_attempt = before.state is RunState.ARMED and outcome.state not in WITHOUT_ATTEMPT
        is_final = outcome.state in FINAL_STATES
        row.run = replace(
            before,
            state=outcome.state,
            attempt=before.attempt + makes_attempt,
            started_at_us=first(before.started_at_us, outcome.started_at_us),
            lateness_us=first(before.lateness_us, outcome.lateness_us),
            finished_at_us=outcome.finished_at_us if is_final else None,
            http_status=outcome.http_status,
            error=outcome.error,
            retry_at_us=outcome.retry_at_us,
            skip_reason=outcome.skip_reason,
        )
        if is_final:
            self._tables.retries.pop(outcome.key, None)
        elif outcome.state is RunState.RETRYING:
            row.had_retry = True
            self._tables.retries[outcome.key] = outcome.retry_at_us
            self._note_attempt(row.run, outcome)

    def _note_attempt(self, run: Run, outcome: Settled) -> None:
        assert run.shard
        assert outcome.started_at_us is not None
        self._tables.attempts[outcome.key, outcome.token] = Attempt(
            job_id=run.job_id,
            due_us=run.due_us,
            attempt=run.attempt,
            token=outcome.token,
            shard=run.shard,
            started_at_us=outcome.started_at_us,
            finished_at_us=outcome.finished_at_us,
            outcome=Failed(error=outcome.error or "", http_status=outcome.http_status),
        )


def counts(run: Run, outcome: Settled) -> bool:
    """Whether an outcome that has the run's token finds it in a state that it can change."""
    if run.state is RunState.RUNNING:
        return outcome.state is not RunState.SKIPPED
    return run.state is RunState.ARMED


def position(run: Run) -> tuple[int, int, bytes]:
    """The order of a sweep."""
    return partition_of(run.job_id), run.due_us, run.job_id.bytes


def first(before: int | None, now: int | None) -> int | None:
    """What the first attempt wrote stays."""
    return now if before is None else before
