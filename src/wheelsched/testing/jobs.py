"""`JobStore` in memory. Invariant: like on Postgres, changes also apply to armed runs."""

from collections.abc import Collection, Sequence
from hashlib import sha256
from uuid import UUID

from msgspec.structs import replace

from wheelsched.core.audit import changed, registered
from wheelsched.core.model import Draft, Job, JobState, RunKey, RunState, SkipReason
from wheelsched.core.policies.misfire import Skip
from wheelsched.errors import (
    JobChanged,
    JobNameTaken,
    JobNotFound,
    JobNotPausable,
    QuotaExceeded,
    TenantNotFound,
)
from wheelsched.ports import (
    FIRST_JOB,
    Acknowledged,
    Caller,
    Deleted,
    JobFilter,
    JobPosition,
    JobsFound,
    JobsPage,
    Registration,
    planned,
    position_of,
)
from wheelsched.testing.skips import stop_timer, withdraw, write_skip
from wheelsched.testing.tables import HINTED_US, IN_TIME_US, MemoryTables, RunRow, TimerRow
from wheelsched.values.duration import HOUR

PAST_US = HOUR  # older runs have certainly been sent


class MemoryJobs:
    """`JobStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def register(self, caller: Caller, jobs: Sequence[Registration]) -> set[UUID]:
        taken: set[str] = set()
        refused: set[UUID] = set()
        added: list[Registration] = []
        once: dict[UUID, Registration] = {}
        for registration in jobs:
            once.setdefault(registration.job.job_id, registration)
        for registration in once.values():
            job = registration.job
            if (known := self._tables.jobs.get(job.job_id)) is not None:
                if known.tenant_id != caller.tenant_id:
                    refused.add(job.job_id)
            elif registration.due_us is None:  # finished, so it needs no name
                added.append(registration)
            elif self._named(caller, job.name) or job.name in taken:
                refused.add(job.job_id)
            else:
                taken.add(job.name)
                added.append(registration)
        if jobs:
            counted = [each.job.job_id for each in added if each.due_us is not None]
            self._check_quota(caller, counted)
        for registration in added:
            self._add(caller, registration)
        if added:
            new = [registration.job for registration in added]
            self._tables.note(caller.tenant_id, caller.actor, registered(new))
        return refused

    async def get(self, caller: Caller, job_id: UUID) -> Job:
        return self._job(caller, job_id)

    async def read(self, caller: Caller, job_id: UUID) -> Job | Draft:
        return self._either(caller, job_id)

    async def list_jobs(
        self, caller: Caller, wanted: JobFilter, limit: int, after: JobPosition = FIRST_JOB
    ) -> list[Job | Draft]:
        jobs: list[Job | Draft] = [*self._tables.jobs.values(), *self._tables.drafts.values()]
        found = [
            job
            for job in jobs
            if job.tenant_id == caller.tenant_id
            and _order(position_of(job)) > _order(after)
            and wanted.state in (None, job.state)
            and wanted.name in (None, job.name)
            and wanted.tags.items() <= (job.tags.items() if isinstance(job, Job) else set())
        ]
        return sorted(found, key=lambda job: _order(position_of(job)))[:limit]

    async def list_jobs_unless(
        self, caller: Caller, page: JobsPage, known: bytes | None
    ) -> JobsFound:
        found = await self.list_jobs(caller, *page)
        if not found:
            return JobsFound(None, [])
        versions = [(each.job_id, each.version, each.updated_at_us) for each in found]
        fingerprint = sha256(repr(versions).encode()).digest()
        return JobsFound(fingerprint, None if fingerprint == known else found)

    async def read_names(self, caller: Caller, job_ids: Collection[UUID]) -> dict[UUID, str]:
        jobs: list[Job | Draft] = [*self._tables.jobs.values(), *self._tables.drafts.values()]
        return {
            job.job_id: job.name
            for job in jobs
            if job.tenant_id == caller.tenant_id and job.job_id in job_ids
        }

    async def edit(
        self, caller: Caller, job: Job, due_us: int | None, *, is_rescheduled: bool
    ) -> Acknowledged:
        before = self._job(caller, job.job_id)
        if before.version != job.version - 1:
            raise JobChanged
        if job.state is not JobState.FINISHED:
            if self._named(caller, job.name) not in (None, job.job_id):
                raise JobNameTaken
            if before.state is JobState.FINISHED:
                self._check_quota(caller, [job.job_id])
        self._tables.jobs[job.job_id] = replace(
            job,
            tenant_id=caller.tenant_id,
            created_at_us=before.created_at_us,
            paused_at_us=before.paused_at_us if job.state is JobState.PAUSED else None,
        )
        self._tables.release(before)
        self._tables.occupy(self._tables.jobs[job.job_id])
        if is_rescheduled:
            next_us = due_us if job.state is JobState.ACTIVE else None
            until_us = None if next_us is None else next_us - 1
            stop_timer(self._tables, before, SkipReason.EDITED, until_us=until_us)
            self._start_timer(job.job_id, next_us)
            withdraw(self._tables, job.job_id, SkipReason.EDITED)
        elif job.job_id in self._tables.timers:
            self._tables.timers[job.job_id].version = job.version
        self._note(caller, "edit", job, is_rescheduled=is_rescheduled)
        return self._acknowledged(job.job_id)

    async def pause(self, caller: Caller, job_id: UUID, version: int | None = None) -> Acknowledged:
        job = self._job(caller, job_id)
        if version not in (None, job.version):
            raise JobChanged
        if job.state is JobState.FINISHED:
            raise JobNotPausable
        if job.state is JobState.ACTIVE:
            self._change_state(job, JobState.PAUSED)
            paused_at_us = self._tables.jobs[job_id].paused_at_us
            stop_timer(self._tables, job, SkipReason.PAUSED, until_us=paused_at_us)
            self._note(caller, "pause", job)
        withdraw(self._tables, job_id, SkipReason.PAUSED)
        return self._acknowledged(job_id)

    async def resume(
        self,
        caller: Caller,
        job_id: UUID,
        due_us: int | None,
        version: int | None = None,
        skip: Skip | None = None,
    ) -> Acknowledged:
        job = self._job(caller, job_id)
        if job.state is JobState.FINISHED:
            raise JobNotPausable
        if job.state is JobState.PAUSED:
            if version not in (None, job.version):
                raise JobChanged
            self._tables.release(job)
            self._change_state(job, JobState.FINISHED if due_us is None else JobState.ACTIVE)
            self._tables.occupy(self._tables.jobs[job_id])
            self._start_timer(job_id, due_us)
            if skip is not None:
                write_skip(self._tables, job, skip)
            self._note(caller, "resume", job)
        return self._acknowledged(job_id)

    async def delete(self, caller: Caller, job_id: UUID, version: int | None = None) -> Deleted:
        job = self._either(caller, job_id)
        if version not in (None, job.version):
            raise JobChanged
        if isinstance(job, Job):
            stop_timer(self._tables, job, SkipReason.DELETED)
        withdraw(self._tables, job_id, SkipReason.DELETED)
        late = self._cancel_waiting(job_id)
        self._tables.hint(job_id)
        too_late = {*self._too_late(job_id), *late}
        self._tables.release(job)
        if isinstance(job, Draft):
            del self._tables.drafts[job_id]
        else:
            del self._tables.jobs[job_id]
        self._note(caller, "delete", job)
        return Deleted(job=job, too_late=tuple(sorted(too_late)))

    def _add(self, caller: Caller, registration: Registration) -> None:
        job, due_us = registration.job, registration.due_us
        self._tables.jobs[job.job_id] = replace(
            job,
            tenant_id=caller.tenant_id,
            state=JobState.FINISHED if due_us is None else JobState.ACTIVE,
            updated_at_us=job.created_at_us,
        )
        self._tables.occupy(self._tables.jobs[job.job_id])
        self._start_timer(job.job_id, due_us)

    def _check_quota(self, caller: Caller, new: Sequence[UUID]) -> None:
        tenant = self._tables.tenants.get(caller.tenant_id)
        if tenant is None:
            raise TenantNotFound
        room = tenant.job_quota - self._tables.job_counts[caller.tenant_id]
        if len(new) > room and new:
            raise QuotaExceeded(room=room, new=frozenset(new))

    def _note(self, caller: Caller, verb: str, job: Job | Draft, **detail: object) -> None:
        self._tables.note(caller.tenant_id, caller.actor, changed(verb, job, **detail))

    def _job(self, caller: Caller, job_id: UUID) -> Job:
        return planned(self._either(caller, job_id))

    def _either(self, caller: Caller, job_id: UUID) -> Job | Draft:
        job = self._tables.jobs.get(job_id) or self._tables.drafts.get(job_id)
        if job is None or job.tenant_id != caller.tenant_id:
            raise JobNotFound
        return job

    def _named(self, caller: Caller, name: str) -> UUID | None:
        return self._tables.names.get((caller.tenant_id, name))

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

    def _runs(self, job_id: UUID) -> list[RunRow]:
        return [row for key, row in self._tables.runs.items() if key.job_id == job_id]

    def _cancel_waiting(self, job_id: UUID) -> tuple[RunKey, ...]:
        """Cancel the runs that wait for an attempt. Returns those that may still be sent."""
        now_us = self._tables.now_us()
        late = []
        for key in [key for key in self._tables.retries if key.job_id == job_id]:
            row = self._tables.runs[key]
            due_in_us = (row.run.retry_at_us or 0) - now_us
            is_armed = row.run.state is RunState.ARMED
            if row.run.state is RunState.RETRYING or (is_armed and due_in_us > IN_TIME_US):
                del self._tables.retries[key]
                is_unsent = is_armed and row.run.attempt == 0
                row.run = replace(
                    row.run,
                    state=RunState.SKIPPED if is_unsent else RunState.CANCELLED,
                    skip_reason=SkipReason.DELETED if is_unsent else None,
                    finished_at_us=now_us,
                    retry_at_us=None,
                )
            elif is_armed:
                late.append(key)
        return tuple(late)

    def _acknowledged(self, job_id: UUID) -> Acknowledged:
        self._tables.hint(job_id)
        return Acknowledged(job=self._tables.jobs[job_id], too_late=self._too_late(job_id))

    def _too_late(self, job_id: UUID) -> tuple[RunKey, ...]:
        now_us = self._tables.now_us()
        keys = [
            row.run.key
            for row in self._runs(job_id)
            if row.run.due_us > now_us - PAST_US and is_too_late(row, now_us)
        ]
        return tuple(sorted(keys))


def _order(position: JobPosition) -> tuple[str, int, bytes]:
    """The sort key of positions in the list."""
    return position.name, -position.ended_at_us, position.job_id.bytes


def is_too_late(row: RunRow, now_us: int) -> bool:
    """Whether the run may still be sent. A run that was handed over is running before that."""
    run = row.run
    if run.state is RunState.RUNNING:
        return run.started_at_us is None
    is_first = run.state is RunState.ARMED and not row.had_retry
    return is_first and run.due_us <= now_us + IN_TIME_US
