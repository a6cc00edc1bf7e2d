"""Jobs of one tenant, in memory. Invariant: as on Postgres, changes reach what is armed."""

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from wheelsched.core.duration import SECOND
from wheelsched.core.model import Job, JobState, RunKey, RunState, SkipReason
from wheelsched.errors import JobChanged, JobNameTaken, JobNotFound, JobNotPausable
from wheelsched.ports import Acknowledged, JobFilter, Registration
from wheelsched.testing.tables import HINTED_US, IN_TIME_US, MemoryTables, RunRow, TimerRow


class MemoryJobs:
    """`JobStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def register(self, tenant_id: UUID, jobs: Sequence[Registration]) -> set[UUID]:
        refused: set[UUID] = set()
        for registration in jobs:
            job = registration.job
            if self._named(tenant_id, job.name) not in (None, job.job_id):
                refused.add(job.job_id)
            elif job.job_id not in self._tables.jobs:
                has_future = registration.due_us is not None
                state = JobState.ACTIVE if has_future else JobState.FINISHED
                self._tables.jobs[job.job_id] = replace(
                    job, tenant_id=tenant_id, state=state, updated_at_us=job.created_at_us
                )
                self._tables.names[tenant_id, job.name] = job.job_id
                self._start_timer(job.job_id, registration.due_us)
        return refused

    async def get(self, tenant_id: UUID, job_id: UUID) -> Job:
        return self._job(tenant_id, job_id)

    async def list_jobs(
        self, tenant_id: UUID, wanted: JobFilter, limit: int, after_name: str = ""
    ) -> list[Job]:
        found = [
            job
            for job in self._tables.jobs.values()
            if job.tenant_id == tenant_id
            and job.name > after_name
            and wanted.state in (None, job.state)
            and wanted.name in (None, job.name)
            and wanted.tags.items() <= job.tags.items()
        ]
        return sorted(found, key=lambda job: job.name)[:limit]

    async def edit(
        self, tenant_id: UUID, job: Job, due_us: int | None, *, is_rescheduled: bool
    ) -> Acknowledged:
        before = self._job(tenant_id, job.job_id)
        if before.version != job.version - 1:
            raise JobChanged
        if self._named(tenant_id, job.name) not in (None, job.job_id):
            raise JobNameTaken
        self._tables.jobs[job.job_id] = replace(
            job,
            tenant_id=tenant_id,
            created_at_us=before.created_at_us,
            paused_at_us=before.paused_at_us if job.state is JobState.PAUSED else None,
        )
        del self._tables.names[tenant_id, before.name]
        self._tables.names[tenant_id, job.name] = job.job_id
        if is_rescheduled:
            self._tables.timers.pop(job.job_id, None)
            if job.state is JobState.ACTIVE:
                self._start_timer(job.job_id, due_us)
            self._withdraw(job.job_id, RunState.SKIPPED, SkipReason.EDITED)
        elif job.job_id in self._tables.timers:
            self._tables.timers[job.job_id].version = job.version
        return self._acknowledged(job.job_id)

    async def pause(self, tenant_id: UUID, job_id: UUID) -> Acknowledged:
        job = self._job(tenant_id, job_id)
        if job.state is JobState.FINISHED:
            raise JobNotPausable
        if job.state is JobState.ACTIVE:
            self._change_state(job, JobState.PAUSED)
            self._tables.timers.pop(job_id, None)
            self._withdraw(job_id, RunState.SKIPPED, SkipReason.PAUSED)
        return self._acknowledged(job_id)

    async def resume(self, tenant_id: UUID, job_id: UUID, due_us: int | None) -> Acknowledged:
        job = self._job(tenant_id, job_id)
        if job.state is JobState.FINISHED:
            raise JobNotPausable
        if job.state is JobState.PAUSED:
            self._change_state(job, JobState.FINISHED if due_us is None else JobState.ACTIVE)
            self._start_timer(job_id, due_us)
        return self._acknowledged(job_id)

    async def delete(self, tenant_id: UUID, job_id: UUID) -> Acknowledged:
        self._job(tenant_id, job_id)
        self._tables.timers.pop(job_id, None)
        self._withdraw(job_id, RunState.CANCELLED, None)
        self._cancel_waiting(job_id)
        acknowledged = self._acknowledged(job_id)
        job = self._tables.jobs.pop(job_id)
        del self._tables.names[tenant_id, job.name]
        return acknowledged

    def _job(self, tenant_id: UUID, job_id: UUID) -> Job:
        job = self._tables.jobs.get(job_id)
        if job is None or job.tenant_id != tenant_id:
            raise JobNotFound
        return job

    def _named(self, tenant_id: UUID, name: str) -> UUID | None:
        return self._tables.names.get((tenant_id, name))

    def _start_timer(self, job_id: UUID, due_us: int | None) -> None:
        if due_us is None:
            return
        self._tables.timers[job_id] = TimerRow(self._tables.jobs[job_id].version, due_us)
        if due_us < self._tables.now_us() + HINTED_US:
            self._tables.hint(job_id)

    def _change_state(self, job: Job, state: JobState) -> None:
        now_us = self._tables.now_us()
        self._tables.jobs[job.job_id] = replace(
            job,
            state=state,
            version=job.version + 1,
            updated_at_us=now_us,
            paused_at_us=now_us if state is JobState.PAUSED else None,
        )

    def _armed(self, job_id: UUID) -> list[RunRow]:
        """The runs of a job that are armed for their first attempt."""
        return [
            row
            for key, row in self._tables.runs.items()
            if key.job_id == job_id and row.run.state is RunState.ARMED and not row.had_retry
        ]

    def _withdraw(self, job_id: UUID, state: RunState, reason: SkipReason | None) -> None:
        now_us = self._tables.now_us()
        for row in self._armed(job_id):
            if row.run.due_us > now_us + IN_TIME_US:
                row.run = replace(
                    row.run,
                    state=state,
                    skip_reason=reason,
                    finished_at_us=now_us,
                    missed_count=1,
                    missed_since_us=row.run.due_us,
                )

    def _cancel_waiting(self, job_id: UUID) -> None:
        waiting = [
            key
            for key, retry_at_us in self._tables.retries.items()
            if key.job_id == job_id and retry_at_us is not None
        ]
        for key in waiting:
            del self._tables.retries[key]
            row = self._tables.runs[key]
            row.run = replace(
                row.run,
                state=RunState.CANCELLED,
                finished_at_us=self._tables.now_us(),
                retry_at_us=None,
            )

    def _acknowledged(self, job_id: UUID) -> Acknowledged:
        self._tables.hint(job_id)
        now_us = self._tables.now_us()
        due_us = sorted(row.run.due_us for row in self._armed(job_id))
        return Acknowledged(
            job=self._tables.jobs[job_id],
            too_late=tuple(
                RunKey(job_id, instant_us)
                for instant_us in due_us
                if now_us - 10 * SECOND < instant_us <= now_us + IN_TIME_US
            ),
        )
