"""`TimerStore` in memory. Invariant: like on Postgres, arming is a compare-and-set."""

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace

from wheelsched.core.model import Job, JobState, Run, RunKey, RunState, SkipReason
from wheelsched.core.overdue import Unarmed
from wheelsched.core.partition import partition_of
from wheelsched.ports import (
    NEVER_US,
    Claim,
    ClaimedRetry,
    ClaimedRun,
    Horizon,
    Lease,
    Mark,
    Retry,
)
from wheelsched.testing.skips import stop_timer, withdraw
from wheelsched.testing.tables import MemoryTables


class MemoryTimers:
    """`TimerStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def load(self, partitions: Collection[int], until_us: int) -> Horizon:
        wanted = frozenset(partitions)
        horizon = self._horizon(until_us, lambda job_id: partition_of(job_id) in wanted)
        ended = [
            (job_id.bytes, row.version)
            for job_id, row in self._tables.timers.items()
            if row.due_us is None and partition_of(job_id) in wanted
        ]
        return Horizon(
            job_ids=horizon.job_ids + b"".join(job_id for job_id, _ in ended),
            due_us=horizon.due_us + array("q", [NEVER_US] * len(ended)),
            versions=horizon.versions + array("i", [version for _, version in ended]),
            retries=horizon.retries,
        )

    async def reload(
        self,
        job_ids: Collection[UUID],
        until_us: int,
        retries_since_us: Mapping[UUID, int] | None = None,
    ) -> Horizon:
        horizon = self._horizon(until_us, frozenset(job_ids).__contains__)
        since_us = retries_since_us or {}
        newer = (
            retry
            for retry in horizon.retries
            if retry.retry_at_us > since_us.get(retry.key.job_id, 0)
        )
        return replace(horizon, retries=tuple(newer))

    async def oldest_unarmed(self, partitions: Collection[int]) -> list[Unarmed]:
        due_us: dict[int, list[int]] = {partition: [] for partition in partitions}
        retry_us: dict[int, list[int]] = {partition: [] for partition in partitions}
        for job_id, timer in self._tables.timers.items():
            if timer.due_us is not None and (partition := partition_of(job_id)) in due_us:
                due_us[partition].append(timer.due_us)
        for key, retry_at_us in self._tables.retries.items():
            if retry_at_us is not None and (partition := partition_of(key.job_id)) in retry_us:
                retry_us[partition].append(retry_at_us)
        return [
            Unarmed(
                partition,
                min(due_us[partition], default=None),
                min(retry_us[partition], default=None),
            )
            for partition in sorted(partitions)
        ]

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        return [self._tables.jobs[job_id] for job_id in job_ids if job_id in self._tables.jobs]

    async def read_payloads(self, keys: Collection[RunKey]) -> dict[RunKey, Raw]:
        payloads = self._tables.payloads
        return {key: payloads[key] for key in keys if key in payloads}

    async def arm(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        assert len({claim.job_id for claim in claims}) == len(claims), "a job is claimed twice"
        if not claims:
            return set()
        self._tables.check_lease(lease)
        lost: set[RunKey] = set()
        for claim in claims:
            runs = [self._armed(lease, claim, run) for run in claim.runs]
            if not self._tables.owns(lease, claim.job_id) or not self._move_timer(claim):
                lost.update((claim.key, *(run.key for run in runs)))
                continue
            lost.update(run.key for run in runs if not self._tables.write_run(run))
            if claim.skip:
                self._tables.write_run(self._skipped(lease, claim))
        return lost

    async def arm_retries(self, lease: Lease, retries: Sequence[ClaimedRetry]) -> list[Run]:
        if not retries:
            return []
        self._tables.check_lease(lease)
        won: list[Run] = []
        for retry in retries:
            row = self._tables.runs.get(retry.key)
            if (
                row is None
                or not self._tables.owns(lease, retry.key.job_id)
                or row.run.state is not RunState.RETRYING
                or row.run.retry_at_us != retry.retry_at_us
            ):
                continue
            row.run = replace(
                row.run,
                state=RunState.ARMED,
                shard=lease.shard_id,
                token=retry.token,
                armed_at_us=self._tables.now_us(),
            )
            row.heartbeat_at_us = None  # belonged to the previous attempt
            self._tables.retries[retry.key] = None
            won.append(row.run)
        return won

    async def advance(self, lease: Lease, marks: Mapping[int, Mark]) -> None:
        if not self._tables.holds(lease):
            return
        for partition, mark in marks.items():
            row = self._tables.partitions[partition]
            if row.owner == lease.shard_id and row.marked_by < mark.token:
                row.live_since_us = max(row.live_since_us, mark.live_since_us)
                row.marked_by = mark.token

    async def finish(self, lease: Lease, job_ids: Collection[UUID]) -> None:
        if not self._tables.holds(lease):
            return
        for job_id in job_ids:
            timer = self._tables.timers.get(job_id)
            if timer is not None and timer.due_us is None and job_id in self._tables.jobs:
                del self._tables.timers[job_id]
                self._tables.release(self._tables.jobs[job_id])
                self._change_state(job_id, JobState.FINISHED)

    async def pause_gone(self, lease: Lease, versions: Mapping[UUID, int]) -> None:
        if not self._tables.holds(lease):
            return
        for job_id, version in versions.items():
            job = self._tables.jobs.get(job_id)
            if job is not None and (job.state, job.version) == (JobState.ACTIVE, version):
                self._change_state(job_id, JobState.PAUSED)
                paused_at_us = self._tables.jobs[job_id].paused_at_us
                stop_timer(self._tables, job, SkipReason.PAUSED, until_us=paused_at_us)
                withdraw(self._tables, job_id, SkipReason.PAUSED)
                self._tables.hint(job_id)

    def _horizon(self, until_us: int, is_wanted: Callable[[UUID], bool]) -> Horizon:
        found = [
            (job_id.bytes, row.due_us, row.version)
            for job_id, row in self._tables.timers.items()
            if row.due_us is not None and row.due_us <= until_us and is_wanted(job_id)
        ]
        return Horizon(
            job_ids=b"".join(job_id for job_id, _, _ in found),
            due_us=array("q", [due_us for _, due_us, _ in found]),
            versions=array("i", [version for _, _, version in found]),
            retries=tuple(
                Retry(key, retry_at_us)
                for key, retry_at_us in self._tables.retries.items()
                if retry_at_us is not None and retry_at_us <= until_us and is_wanted(key.job_id)
            ),
        )

    def _change_state(self, job_id: UUID, state: JobState) -> None:
        job = self._tables.jobs[job_id]
        now_us = self._tables.now_us()
        self._tables.jobs[job_id] = replace(
            job,
            state=state,
            version=job.version + 1,
            updated_at_us=now_us,
            paused_at_us=now_us if state is JobState.PAUSED else job.paused_at_us,
        )

    def _move_timer(self, claim: Claim) -> bool:
        timer = self._tables.timers.get(claim.job_id)
        if timer is None or (timer.due_us, timer.version) != (claim.due_us, claim.version):
            return False
        timer.due_us = claim.next_due_us
        return True

    def _armed(self, lease: Lease, claim: Claim, run: ClaimedRun) -> Run:
        return Run(
            job_id=claim.job_id,
            due_us=run.due_us,
            tenant_id=claim.tenant_id,
            state=RunState.ARMED,
            lane=run.lane,
            armed_at_us=self._tables.now_us(),
            shard=lease.shard_id,
            token=run.token,
        )

    def _skipped(self, lease: Lease, claim: Claim) -> Run:
        assert claim.skip
        return Run(
            job_id=claim.job_id,
            due_us=claim.skip.last_us,
            tenant_id=claim.tenant_id,
            state=RunState.SKIPPED,
            finished_at_us=self._tables.now_us(),
            skip_reason=claim.skip.reason,
            missed_count=claim.skip.count,
            missed_since_us=claim.skip.first_us,
            shard=lease.shard_id,
        )
