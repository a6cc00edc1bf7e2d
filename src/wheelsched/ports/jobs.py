"""The store of jobs for the API.

Invariant: a caller sees only the jobs of its own tenant, and every change is in the audit log.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import Draft, Job, JobState, RunKey
from wheelsched.core.policies.misfire import Skip
from wheelsched.errors import JobNotPlanned
from wheelsched.ports.tenants import Caller
from wheelsched.schedule.spec import END_US


class Registration(Struct, frozen=True):
    """A job to register, and its first due time, if any."""

    job: Job
    due_us: int | None


class Acknowledged(Struct, frozen=True, kw_only=True):
    """The job after a change.

    `too_late` are the armed runs that are due so soon that they may still fire.
    """

    job: Job
    too_late: tuple[RunKey, ...] = ()


class Deleted(Struct, frozen=True, kw_only=True):
    """A deleted job or draft. `too_late` is as in `Acknowledged`."""

    job: Job | Draft
    too_late: tuple[RunKey, ...] = ()


class JobFilter(Struct, frozen=True, kw_only=True):
    state: JobState | None = None
    name: str | None = None
    tags: dict[str, str] = {}


class JobPosition(NamedTuple):
    """A position in the list of jobs.

    Of several jobs with one name, the unfinished one comes first, then the finished ones, latest
    first.
    """

    name: str = ""
    ended_at_us: int = END_US - 1
    job_id: UUID = UUID(int=0)


FIRST_JOB: Final = JobPosition()


def position_of(job: Job | Draft) -> JobPosition:
    """The position of a job in the list."""
    if job.state is JobState.FINISHED:
        return JobPosition(job.name, job.updated_at_us, job.job_id)
    return JobPosition(job.name, job_id=job.job_id)


class JobsPage(NamedTuple):
    """Which jobs of the list, and how many."""

    wanted: JobFilter
    limit: int
    after: JobPosition = FIRST_JOB


class JobsFound(Struct, frozen=True):
    """A page of jobs; `jobs` is None where the reader knows its fingerprint.

    The fingerprint changes when any job of the page does, or when there are others. An empty page
    has none.
    """

    fingerprint: bytes | None
    jobs: list[Job | Draft] | None


def planned(job: Job | Draft) -> Job:
    """Return the job. Raises `JobNotPlanned` if it is a draft."""
    if isinstance(job, Draft):
        raise JobNotPlanned(f"the job was refused: {job.error}" if job.error else None)
    return job


class JobStore(Protocol):
    """The jobs of one tenant, for the API. A change and its audit entry commit together."""

    async def register(self, caller: Caller, jobs: Sequence[Registration]) -> set[UUID]:
        """Register jobs, and return those whose name is already taken.

        Raises `TenantNotFound`, and `QuotaExceeded` if the tenant would exceed its quota. Then none
        is registered. A finished job does not occupy its name and does not count for the quota.
        """

    async def get(self, caller: Caller, job_id: UUID) -> Job:
        """One job. Raises `JobNotFound`, and `JobNotPlanned` if it is a draft."""

    async def read(self, caller: Caller, job_id: UUID) -> Job | Draft:
        """One job or draft. Raises `JobNotFound`."""

    async def list_jobs(
        self, caller: Caller, wanted: JobFilter, limit: int, after: JobPosition = FIRST_JOB
    ) -> list[Job | Draft]:
        """Jobs ordered by `JobPosition`, after the last one of the previous page."""

    async def list_jobs_unless(
        self, caller: Caller, page: JobsPage, known: bytes | None
    ) -> JobsFound:
        """The same, without the jobs of a page that still has the fingerprint that is known."""

    async def read_names(self, caller: Caller, job_ids: Collection[UUID]) -> dict[UUID, str]:
        """The names of these jobs, without deleted ones."""

    async def edit(
        self, caller: Caller, job: Job, due_us: int | None, *, is_rescheduled: bool
    ) -> Acknowledged:
        """Replace the version before `job.version`. Raises `JobChanged` if it is not current.

        A finished job that becomes active again needs its name and its quota back: raises
        `JobNameTaken` or `QuotaExceeded`. Passed due times of the old schedule that were not armed
        are recorded as one skipped run, like in `pause`.
        """

    async def pause(self, caller: Caller, job_id: UUID, version: int | None = None) -> Acknowledged:
        """Stop the timer and skip the armed runs.

        Raises `JobChanged` if a version is given and the job has another one. Passed due times that
        were not armed are recorded as one skipped run.
        """

    async def resume(
        self,
        caller: Caller,
        job_id: UUID,
        due_us: int | None,
        version: int | None = None,
        skip: Skip | None = None,
    ) -> Acknowledged:
        """Start the timer of a paused job at a due time of this version of its schedule.

        `skip` are the due times during the pause, which are recorded as one skipped run. Raises
        `JobChanged` if the paused job has another version.
        """

    async def delete(self, caller: Caller, job_id: UUID, version: int | None = None) -> Deleted:
        """Delete a job or a draft. Its history stays until its retention ends.

        Raises `JobChanged` if a version is given and the job has another one. Armed runs are
        skipped, and runs that wait for an attempt are cancelled. A running one may finish. Armed
        attempts that are due within a second are `too_late`.
        """
