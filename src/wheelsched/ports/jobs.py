"""Jobs, as the API registers and changes them.

Invariant: a caller sees the jobs of its tenant and no other; every change is in the audit.
"""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from wheelsched.core.misfire import Skip
from wheelsched.core.model import Draft, Job, JobState, RunKey
from wheelsched.errors import JobNotPlanned
from wheelsched.ports.tenants import Caller


class Registration(Struct, frozen=True):
    """A job to register, and its first due time; None when it has none."""

    job: Job
    due_us: int | None


class Acknowledged(Struct, frozen=True, kw_only=True):
    """The job after a change, and whether the change reached every run that it should.

    `too_late` are the armed runs that were due so soon that they may fire all the same.
    """

    job: Job
    too_late: tuple[RunKey, ...] = ()


class Deleted(Struct, frozen=True, kw_only=True):
    """The same of a job, or a draft, that is no more."""

    job: Job | Draft
    too_late: tuple[RunKey, ...] = ()


class JobFilter(Struct, frozen=True, kw_only=True):
    state: JobState | None = None
    name: str | None = None
    tags: dict[str, str] = {}


def planned(job: Job | Draft) -> Job:
    """The job, or `JobNotPlanned` when it is a draft."""
    if isinstance(job, Draft):
        raise JobNotPlanned(f"the job was refused: {job.error}" if job.error else None)
    return job


class JobStore(Protocol):
    """Jobs of one tenant, for the API. Every change is in the audit when it is there."""

    async def register(self, caller: Caller, jobs: Sequence[Registration]) -> set[UUID]:
        """Registers jobs, and gives those whose name another job of the tenant has.

        Raises `QuotaExceeded` when the tenant would have more jobs than its quota, and
        `TenantNotFound`; then none is registered.
        """

    async def get(self, caller: Caller, job_id: UUID) -> Job:
        """One job, or `JobNotFound`; or `JobNotPlanned`, as for every change of a draft."""

    async def read(self, caller: Caller, job_id: UUID) -> Job | Draft:
        """The same, be it planned or not."""

    async def list_jobs(
        self, caller: Caller, wanted: JobFilter, limit: int, after_name: str = ""
    ) -> list[Job | Draft]:
        """Jobs by name, after the last name of a page."""

    async def edit(
        self, caller: Caller, job: Job, due_us: int | None, *, is_rescheduled: bool
    ) -> Acknowledged:
        """Replaces the version before `job.version`, or raises `JobChanged`.

        What the old schedule has left behind its timer is one skipped row, as of a pause.
        """

    async def pause(self, caller: Caller, job_id: UUID, version: int | None = None) -> Acknowledged:
        """Stops the timer, and skips the runs that are armed.

        With a version, that one or none: `JobChanged` when the job has another.

        Due times that have passed and were not armed are skipped too: one row stands for them.
        """

    async def resume(
        self,
        caller: Caller,
        job_id: UUID,
        due_us: int | None,
        version: int | None = None,
        skip: Skip | None = None,
    ) -> Acknowledged:
        """Starts the timer of a paused job, at a due time of this version of its schedule.

        `skip` are the due times that it was paused over: one row of the history stands for them.
        Raises `JobChanged` when a paused job has another version than that.
        """

    async def delete(self, caller: Caller, job_id: UUID, version: int | None = None) -> Deleted:
        """Removes the job, or the draft; its history stays for its retention.

        With a version, that one or none: `JobChanged` when the job has another.

        Its armed runs are skipped, those that wait for an attempt cancelled; a running one may end.
        Attempts that are armed and due within a second are too late, first or further ones.
        """
