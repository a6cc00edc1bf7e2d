"""Jobs, as the API registers and changes them.

Invariant: a caller sees the jobs of its tenant and no other; every change is in the audit.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from wheelsched.core.misfire import Skip
from wheelsched.core.model import Draft, Job, JobState, RunKey
from wheelsched.core.spec import END_US
from wheelsched.errors import JobNotPlanned
from wheelsched.ports.tenants import Caller

Known = TypeVar("Known")


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


class JobPosition(NamedTuple):
    """A place in the list of jobs. Of one name the unfinished job comes first, then the finished
    ones, latest first."""

    name: str = ""
    ended_at_us: int = END_US - 1
    job_id: UUID = UUID(int=0)


FIRST_JOB: Final = JobPosition()


def position_of(job: Job | Draft) -> JobPosition:
    """Where a job is in the list."""
    if job.state is JobState.FINISHED:
        return JobPosition(job.name, job.updated_at_us, job.job_id)
    return JobPosition(job.name, job_id=job.job_id)


class JobVersion(NamedTuple):
    """What a job was at one time: whatever changes of it, changes this."""

    job_id: UUID
    version: int
    updated_at_us: int


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
        `TenantNotFound`; then none is registered. A finished job has neither a name that is taken
        nor a place in the quota.
        """

    async def get(self, caller: Caller, job_id: UUID) -> Job:
        """One job, or `JobNotFound`; or `JobNotPlanned`, as for every change of a draft."""

    async def read(self, caller: Caller, job_id: UUID) -> Job | Draft:
        """The same, be it planned or not."""

    async def list_jobs(
        self, caller: Caller, wanted: JobFilter, limit: int, after: JobPosition = FIRST_JOB
    ) -> list[Job | Draft]:
        """Jobs by name, after the last of a page. Finished jobs may share a name: see
        `JobPosition`."""

    async def list_jobs_or(
        self,
        caller: Caller,
        wanted: JobFilter,
        limit: int,
        after: JobPosition,
        known: Callable[[JobVersion], Known | None],
    ) -> list[Job | Draft | Known]:
        """The same, but for a version that is known comes what is known of it, undecoded."""

    async def read_names(self, caller: Caller, job_ids: Collection[UUID]) -> dict[UUID, str]:
        """The names of these jobs, without those that are gone."""

    async def edit(
        self, caller: Caller, job: Job, due_us: int | None, *, is_rescheduled: bool
    ) -> Acknowledged:
        """Replaces the version before `job.version`, or raises `JobChanged`.

        A finished job that gets a future needs its name and a place in the quota again: raises
        `JobNameTaken` or `QuotaExceeded`.

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
