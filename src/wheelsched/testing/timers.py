"""Stages *load* and *arm*, in memory. Invariant: as on Postgres, by compare-and-set."""

from array import array
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from wheelsched.core.model import Job, JobState, Run, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.ports import Claim, ClaimedRetry, Horizon, Lease, Retry
from wheelsched.testing.tables import MemoryTables


class MemoryTimers:
    """`TimerStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def load(self, partitions: Collection[int], until_us: int) -> Horizon:
        wanted = frozenset(partitions)
        found = [
            (job_id.bytes, row.due_us, row.version)
            for job_id, row in self._tables.timers.items()
            if row.due_us is not None and row.due_us <= until_us and partition_of(job_id) in wanted
        ]
        return Horizon(
            job_ids=b"".join(job_id for job_id, _, _ in found),
            due_us=array("q", [due_us for _, due_us, _ in found]),
            versions=array("i", [version for _, _, version in found]),
            retries=tuple(
                Retry(key, retry_at_us)
                for key, retry_at_us in self._tables.retries.items()
                if retry_at_us is not None
                and retry_at_us <= until_us
                and partition_of(key.job_id) in wanted
            ),
        )

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        return [self._tables.jobs[job_id] for job_id in job_ids if job_id in self._tables.jobs]

    async def arm(self, lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        assert len({claim.job_id for claim in claims}) == len(claims), "a job is claimed twice"
        self._tables.check_lease(lease)
        lost: set[RunKey] = set()
        for claim in claims:
            runs = [self._armed(lease, claim, run.due_us, run.token) for run in claim.runs]
            if not self._move_timer(claim):
                lost.update(run.key for run in runs)
                continue
            lost.update(run.key for run in runs if not self._tables.write_run(run))
            if claim.skip:
                self._tables.write_run(self._skipped(lease, claim))
        return lost

    async def arm_retries(self, lease: Lease, retries: Sequence[ClaimedRetry]) -> set[RunKey]:
        self._tables.check_lease(lease)
        lost: set[RunKey] = set()
        for retry in retries:
            row = self._tables.runs.get(retry.key)
            if (
                row is None
                or row.run.state is not RunState.RETRYING
                or row.run.retry_at_us != retry.retry_at_us
            ):
                lost.add(retry.key)
                continue
            row.run = replace(
                row.run,
                state=RunState.ARMED,
                shard=lease.shard_id,
                token=retry.token,
                armed_at_us=self._tables.now_us(),
                retry_at_us=None,
            )
            self._tables.retries[retry.key] = None
        return lost

    async def advance(self, lease: Lease, live_since_us: Mapping[int, int]) -> None:
        if not self._tables.holds(lease):
            return
        for partition, instant_us in live_since_us.items():
            row = self._tables.partitions[partition]
            if row.owner == lease.shard_id:
                row.live_since_us = max(row.live_since_us, instant_us)

    async def finish(self, lease: Lease, job_ids: Collection[UUID]) -> None:
        if not self._tables.holds(lease):
            return
        for job_id in job_ids:
            timer = self._tables.timers.get(job_id)
            if timer is not None and timer.due_us is None:
                del self._tables.timers[job_id]
                self._change_state(job_id, JobState.FINISHED)

    async def pause_gone(self, lease: Lease, job_ids: Collection[UUID]) -> None:
        if not self._tables.holds(lease):
            return
        for job_id in job_ids:
            job = self._tables.jobs.get(job_id)
            if job is not None and job.state is JobState.ACTIVE:
                self._change_state(job_id, JobState.PAUSED)
                self._tables.timers.pop(job_id, None)

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

    def _armed(self, lease: Lease, claim: Claim, due_us: int, token: int) -> Run:
        return Run(
            job_id=claim.job_id,
            due_us=due_us,
            tenant_id=claim.tenant_id,
            state=RunState.ARMED,
            armed_at_us=self._tables.now_us(),
            shard=lease.shard_id,
            token=token,
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
