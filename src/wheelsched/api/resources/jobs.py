"""Jobs: register, get, list, edit, delete.

Invariant: a response shows what the store acknowledged, never what was requested.
"""

from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from wheelsched.api.environment import Environment
from wheelsched.api.http.cursors import Cursors
from wheelsched.api.http.operation import JSON, MERGE_PATCH, ApiResponse, Call, NoQuery, Operation
from wheelsched.api.http.pages import PageQuery, split_page
from wheelsched.api.resources.optimistic_retry import retry_on_conflict
from wheelsched.api.resources.response_cache import KeptPage, RenderedPages, render
from wheelsched.core.model import Draft, Job, JobState
from wheelsched.core.targets.egress import EgressRules
from wheelsched.core.targets.sensitive import MASK
from wheelsched.errors import (
    InvalidParameter,
    JobChanged,
    JobNameTaken,
    VersionMismatch,
    WrongType,
    quoted,
)
from wheelsched.jobs.describe import job_answer, masked_document_of
from wheelsched.jobs.job_ids import Identities
from wheelsched.jobs.merge import merge_job
from wheelsched.jobs.parse import Edit, JobParser
from wheelsched.ports import (
    FIRST_JOB,
    Acknowledged,
    Deleted,
    JobFilter,
    JobPosition,
    JobsPage,
    JobStore,
    position_of,
)
from wheelsched.wire.job import JobAnswer, JobDocument
from wheelsched.wire.jobs import JobPage
from wheelsched.wire.strict import check_json
from wheelsched.wire.tenant import Scope


class JobsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to list, by name."""

    state: JobState | None = None
    name: str | None = None
    tag: Annotated[
        tuple[str, ...],
        Meta(description="Filter by tag, as `name:value`; repeat to require several."),
    ] = ()


class Jobs:
    """Operations on job definitions."""

    def __init__(self, jobs: JobStore, environment: Environment, rules: EgressRules) -> None:
        self._jobs = jobs
        self._environment = environment
        self._rules = rules
        self._pages = RenderedPages()

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
                response=JobAnswer,
                status=201,
            ),
            Operation(
                method="GET",
                path="/jobs",
                summary="List jobs by name",
                scope=Scope.READ,
                handle=self.list_jobs,
                query=JobsQuery,
                response=JobPage,
            ),
            Operation(
                method="GET",
                path="/jobs/{job_id}",
                summary="Get a job",
                scope=Scope.READ,
                handle=self.read,
                response=JobAnswer,
            ),
            Operation(
                method="PATCH",
                path="/jobs/{job_id}",
                summary="Edit a job with a merge patch",
                description="Objects are merged, and null resets a field (RFC 7396). `payload` and "
                "`schedule` are not merged but replaced. "
                f"`{MASK}` as the value of a sensitive header keeps the stored value.",
                scope=Scope.WRITE,
                handle=self.edit,
                body=bytes,
                described_body=JobDocument,
                content_types=(MERGE_PATCH, JSON),
                response=JobAnswer,
                is_conditional=True,
            ),
            Operation(
                method="DELETE",
                path="/jobs/{job_id}",
                summary="Delete a job; its history is kept for its retention period",
                scope=Scope.WRITE,
                handle=self.delete,
                response=JobAnswer,
                is_conditional=True,
            ),
        )

    async def create(self, call: Call[NoQuery, bytes]) -> ApiResponse:
        job_id = Identities(call.now_us, call.seed, self._environment.random).next()
        parser = JobParser(call.now_us, self._rules)
        registration = parser.register_json(call.body, job_id, call.caller.tenant_id)
        if await self._jobs.register(call.caller, [registration]):
            raise JobNameTaken
        self._environment.vitals.registered += 1
        answer = with_etag(registration.job, call.now_us)
        return msgspec.structs.replace(
            answer, status=201, headers={**answer.headers, "Location": f"/api/v1/jobs/{job_id}"}
        )

    async def list_jobs(self, call: Call[JobsQuery, None]) -> ApiResponse:
        query = call.query
        wanted = JobFilter(state=query.state, name=query.name, tags=_read_tags(query.tag))
        cursors = Cursors(call.caller.tenant_id, "jobs", wanted)
        after = FIRST_JOB if query.cursor is None else cursors.read(query.cursor, JobPosition)
        page = JobsPage(wanted, query.limit + 1, after)
        kept = self._pages.look_up(call.caller.tenant_id, query, call.now_us)
        found = await self._jobs.list_jobs_unless(
            call.caller, page, None if kept is None else kept.fingerprint
        )
        if found.jobs is None:
            assert kept is not None
            return ApiResponse(body=kept.page.body)
        # Another request that waited for the same page may have rendered it.
        kept = self._pages.look_up(call.caller.tenant_id, query, call.now_us)
        if kept is not None and kept.fingerprint == found.fingerprint:
            return ApiResponse(body=kept.page.body)
        jobs, last = split_page(found.jobs, query.limit)
        cursor = None if last is None else cursors.write(position_of(last))
        rendered = render(jobs, cursor, call.now_us)
        if found.fingerprint is not None:
            kept = KeptPage(found.fingerprint, rendered)
            self._pages.keep(call.caller.tenant_id, query, kept)
        return ApiResponse(body=rendered.body)

    async def read(self, call: Call[NoQuery, None]) -> ApiResponse:
        return with_etag(await self._jobs.read(call.caller, call.job_id), call.now_us)

    async def edit(self, call: Call[NoQuery, bytes]) -> ApiResponse:
        if not isinstance(check_json(call.body), dict):
            raise WrongType("a merge patch must be an object", pointer="")
        return await retry_on_conflict(partial(self._edit, call), JobChanged)

    async def delete(self, call: Call[NoQuery, None]) -> ApiResponse:
        return await retry_on_conflict(partial(self._delete, call), JobChanged)

    async def _edit(self, call: Call[NoQuery, bytes]) -> ApiResponse:
        before = await self._jobs.get(call.caller, call.job_id)
        check_version(before, call.if_match)
        edit = self._edited(before, call)
        acknowledged = await self._jobs.edit(
            call.caller, edit.job, edit.due_us, is_rescheduled=edit.is_rescheduled
        )
        return acknowledged_answer(acknowledged, call.now_us)

    async def _delete(self, call: Call[NoQuery, None]) -> ApiResponse:
        version = await matched_version(self._jobs, call)
        acknowledged = await self._jobs.delete(call.caller, call.job_id, version)
        return acknowledged_answer(acknowledged, call.now_us)

    def _edited(self, before: Job, call: Call[NoQuery, bytes]) -> Edit:
        document = Raw(msgspec.json.encode(masked_document_of(before)))
        merged = merge_job(document, Raw(call.body))
        return JobParser(call.now_us, self._rules).edit_json(before, bytes(merged))


def with_etag(job: Job | Draft, now_us: int) -> ApiResponse:
    """The job, with its version as ETag."""
    return ApiResponse(body=job_answer(job, now_us), headers={"ETag": f'"{job.version}"'})


def acknowledged_answer(acknowledged: Acknowledged | Deleted, now_us: int) -> ApiResponse:
    """The job after a change, with the runs that the change came too late for."""
    job = acknowledged.job
    return ApiResponse(
        body=job_answer(job, now_us, acknowledged.too_late), headers={"ETag": f'"{job.version}"'}
    )


async def matched_version(jobs: JobStore, call: Call[Any, Any]) -> int | None:
    """The version required by If-Match; None if any version will do."""
    if call.if_match is None:
        return None
    job = await jobs.read(call.caller, call.job_id)
    check_version(job, call.if_match)
    return job.version


def check_version(job: Job | Draft, if_match: str | None) -> None:
    """Raises `VersionMismatch` unless If-Match allows the job's version."""
    if if_match is None or if_match.strip() == "*":
        return
    if f'"{job.version}"' not in [tag.strip() for tag in if_match.split(",")]:
        raise VersionMismatch(f'the job has version "{job.version}", not {if_match[:100]}')


def _read_tags(texts: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for tag in texts:
        name, separator, value = tag.partition(":" if ":" in tag else "=")
        if not separator:
            raise InvalidParameter(
                f"invalid tag {quoted(tag)}; expected name:value", pointer="/tag"
            )
        tags[name] = value
    return tags
