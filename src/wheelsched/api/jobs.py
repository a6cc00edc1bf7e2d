"""Jobs: register, read, list, edit, delete.

Invariant: an answer is written from what the store acknowledged, never from what was asked for.
"""

from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from wheelsched.api.answers import job_answer, masked_document_of
from wheelsched.api.changes import look_and_change
from wheelsched.api.cursors import Cursors
from wheelsched.api.identities import Identities
from wheelsched.api.intake import Edit, Intake
from wheelsched.api.merging import merge
from wheelsched.api.operation import JSON, MERGE_PATCH, Answer, Call, NoQuery, Operation
from wheelsched.api.pages import PageQuery, cut
from wheelsched.api.rendered import RenderedJob, RenderedJobs
from wheelsched.api.surroundings import Surroundings
from wheelsched.core.egress import EgressRules
from wheelsched.core.model import Draft, Job, JobState
from wheelsched.core.sensitive import MASK
from wheelsched.errors import (
    InvalidParameter,
    JobChanged,
    JobNameTaken,
    VersionMismatch,
    WrongType,
    quoted,
)
from wheelsched.ports import (
    FIRST_JOB,
    Acknowledged,
    Deleted,
    JobFilter,
    JobPosition,
    JobStore,
)
from wheelsched.wire.job import JobAnswer, JobDocument
from wheelsched.wire.jobs import JobPage
from wheelsched.wire.strict import check_json
from wheelsched.wire.tenant import Scope

# A null inside a payload is the user's, and of two kinds of schedule none is left by a merge.
VALUES: Final = frozenset({"payload", "schedule"})


class JobsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs, in the order of their names."""

    state: JobState | None = None
    name: str | None = None
    tag: Annotated[tuple[str, ...], Meta(description="`name:value`; each narrows the list")] = ()


class _RenderedPage(Struct, frozen=True, kw_only=True):
    """A `JobPage` whose items are JSON already."""

    items: list[Raw]
    next_cursor: str | None


class Jobs:
    """What is asked of the definitions of jobs."""

    def __init__(self, jobs: JobStore, surroundings: Surroundings, rules: EgressRules) -> None:
        self._jobs = jobs
        self._surroundings = surroundings
        self._rules = rules
        self._rendered = RenderedJobs()

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/jobs",
                summary="Register a job",
                scope=Scope.WRITE,
                handle=self.create,
                body=bytes,
                described_body=JobDocument,
                answer=JobAnswer,
                status=201,
            ),
            Operation(
                method="GET",
                path="/jobs",
                summary="List jobs by name",
                scope=Scope.READ,
                handle=self.list_jobs,
                query=JobsQuery,
                answer=JobPage,
            ),
            Operation(
                method="GET",
                path="/jobs/{job_id}",
                summary="Read a job",
                scope=Scope.READ,
                handle=self.read,
                answer=JobAnswer,
            ),
            Operation(
                method="PATCH",
                path="/jobs/{job_id}",
                summary="Edit a job by a merge patch of its document",
                description="Objects are merged, and null removes (RFC 7396); but `payload` and "
                "`schedule` are values, which are replaced whole by what is written, nulls too. "
                f"`{MASK}` as the value of a sensitive header keeps the stored value.",
                scope=Scope.WRITE,
                handle=self.edit,
                body=bytes,
                described_body=JobDocument,
                content_types=(MERGE_PATCH, JSON),
                answer=JobAnswer,
                is_conditional=True,
            ),
            Operation(
                method="DELETE",
                path="/jobs/{job_id}",
                summary="Delete a job; its history stays for its retention",
                scope=Scope.WRITE,
                handle=self.delete,
                answer=JobAnswer,
                is_conditional=True,
            ),
        )

    async def create(self, call: Call[NoQuery, bytes]) -> Answer:
        job_id = Identities(call.now_us, call.seed, self._surroundings.random).next()
        intake = Intake(call.now_us, self._rules)
        registration = intake.register_written(call.body, job_id, call.caller.tenant_id)
        if await self._jobs.register(call.caller, [registration]):
            raise JobNameTaken
        self._surroundings.vitals.registered += 1
        answer = tagged(registration.job, call.now_us)
        return msgspec.structs.replace(
            answer, status=201, headers={**answer.headers, "Location": f"/api/v1/jobs/{job_id}"}
        )

    async def list_jobs(self, call: Call[JobsQuery, None]) -> Answer:
        query = call.query
        wanted = JobFilter(state=query.state, name=query.name, tags=_read_tags(query.tag))
        cursors = Cursors(call.caller.tenant_id, "jobs", wanted)
        after = FIRST_JOB if query.cursor is None else cursors.read(query.cursor, JobPosition)
        found = await self._jobs.list_jobs_or(
            call.caller, wanted, query.limit + 1, after, self._rendered.at(call.now_us)
        )
        page, last = cut([self._rendered_at(job, call.now_us) for job in found], query.limit)
        return Answer(
            body=_RenderedPage(
                items=[job.answer for job in page],
                next_cursor=None if last is None else cursors.write(last.position),
            )
        )

    def _rendered_at(self, job: Job | Draft | RenderedJob, now_us: int) -> RenderedJob:
        return job if isinstance(job, RenderedJob) else self._rendered.render(job, now_us)

    async def read(self, call: Call[NoQuery, None]) -> Answer:
        return tagged(await self._jobs.read(call.caller, call.job_id), call.now_us)

    async def edit(self, call: Call[NoQuery, bytes]) -> Answer:
        if not isinstance(check_json(call.body), dict):
            raise WrongType("a merge patch is an object", pointer="")
        return await look_and_change(partial(self._edit, call), JobChanged)

    async def delete(self, call: Call[NoQuery, None]) -> Answer:
        return await look_and_change(partial(self._delete, call), JobChanged)

    async def _edit(self, call: Call[NoQuery, bytes]) -> Answer:
        before = await self._jobs.get(call.caller, call.job_id)
        check_version(before, call.if_match)
        edit = self._edited(before, call)
        acknowledged = await self._jobs.edit(
            call.caller, edit.job, edit.due_us, is_rescheduled=edit.is_rescheduled
        )
        return acknowledged_answer(acknowledged, call.now_us)

    async def _delete(self, call: Call[NoQuery, None]) -> Answer:
        version = await seen_version(self._jobs, call)
        acknowledged = await self._jobs.delete(call.caller, call.job_id, version)
        return acknowledged_answer(acknowledged, call.now_us)

    def _edited(self, before: Job, call: Call[NoQuery, bytes]) -> Edit:
        written = Raw(msgspec.json.encode(masked_document_of(before)))
        merged = merge(written, Raw(call.body), VALUES)
        return Intake(call.now_us, self._rules).edit_written(before, bytes(merged))


def tagged(job: Job | Draft, now_us: int) -> Answer:
    """A job with its version as ETag."""
    return Answer(body=job_answer(job, now_us), headers={"ETag": f'"{job.version}"'})


def acknowledged_answer(acknowledged: Acknowledged | Deleted, now_us: int) -> Answer:
    """A job after a change, with the runs that the change may not have reached."""
    job = acknowledged.job
    return Answer(
        body=job_answer(job, now_us, acknowledged.too_late), headers={"ETag": f'"{job.version}"'}
    )


async def seen_version(jobs: JobStore, call: Call[Any, Any]) -> int | None:
    """The version that a change is meant for; None when it is meant for any."""
    if call.if_match is None:
        return None
    job = await jobs.read(call.caller, call.job_id)
    check_version(job, call.if_match)
    return job.version


def check_version(job: Job | Draft, if_match: str | None) -> None:
    """Refuse a change of another version than the one that its author has seen."""
    if if_match is None or if_match.strip() == "*":
        return
    if f'"{job.version}"' not in [tag.strip() for tag in if_match.split(",")]:
        raise VersionMismatch(f'the job has the version "{job.version}", not {if_match[:100]}')


def _read_tags(written: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for tag in written:
        name, separator, value = tag.partition(":" if ":" in tag else "=")
        if not separator:
            raise InvalidParameter(
                f"{quoted(tag)} is not a tag; write it as name:value", pointer="/tag"
            )
        tags[name] = value
    return tags
