"""All calls of the API as values, shared by the async and the sync client.

Invariant: nothing is sent here.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from msgspec import UNSET

from wheelsched.client.body import write_json
from wheelsched.client.call import (
    MERGE_PATCH,
    NDJSON,
    Call,
    Parameter,
    RetrySafety,
    get,
    post,
    segment,
)
from wheelsched.client.fields import JobChanges, JobFields
from wheelsched.core.model import JobState, RunState
from wheelsched.wire.job import JobAnswer, JobDocument
from wheelsched.wire.jobs import BulkAnswer, JobPage, ResumeFrom, ResumeRequest
from wheelsched.wire.queue import QueuesAnswer
from wheelsched.wire.run import (
    BackfillRequest,
    CancelAnswer,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
    RedriveRequest,
    RequestedAnswer,
    RunAnswer,
    RunPage,
)
from wheelsched.wire.schedule import ExplainAnswer, NextAnswer, PreviewAnswer
from wheelsched.wire.shard import ShardsAnswer
from wheelsched.wire.tenant import (
    RotateRequest,
    TenantAnswer,
    TenantChanges,
    TenantPage,
    TenantRequest,
    TokenAnswer,
    TokenPage,
    TokenRequest,
)

PAGE: Final = 500
BULK_BYTES: Final = 8 << 20  # maximum size of one request

AnyJob = JobFields | JobDocument


def create_job(job: AnyJob) -> Call[JobAnswer]:
    return post("/jobs", JobAnswer, job)


def create_jobs(jobs: Iterable[AnyJob], chunk: int) -> Iterator[Call[BulkAnswer]]:
    """Calls that register up to `chunk` jobs each, fewer if the jobs are large."""
    lines: list[bytes] = []
    size = 0
    for number, job in enumerate(jobs):
        line = write_json(job, pointer=f"/{number}")
        if lines and (len(lines) == chunk or size + len(line) > BULK_BYTES):
            yield _bulk(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield _bulk(lines)


def _bulk(lines: list[bytes]) -> Call[BulkAnswer]:
    return Call(
        method="POST",
        path="/jobs/bulk",
        answer=BulkAnswer,
        body=b"\n".join(lines),
        content_type=NDJSON,
        retry_safety=RetrySafety.KEY,
    )


def get_job(job_id: UUID) -> Call[JobAnswer]:
    return get(f"/jobs/{segment(job_id)}", JobAnswer)


def list_jobs(
    state: JobState | None, name: str | None, tags: Mapping[str, str], cursor: str | None
) -> Call[JobPage]:
    tag = [f"{name}:{value}" for name, value in tags.items()]
    query: dict[str, Parameter] = {"state": state, "name": name, "tag": tag}
    return get("/jobs", JobPage, query | _page(cursor))


def update_job(job_id: UUID, changes: JobChanges, version: int | None) -> Call[JobAnswer]:
    """A patch with a version is sent once: a retry would fail on the version that it created
    itself."""
    return Call(
        method="PATCH",
        path=f"/jobs/{segment(job_id)}",
        answer=JobAnswer,
        body=write_json(changes),
        content_type=MERGE_PATCH,
        if_match=_etag(version),
        retry_safety=RetrySafety.IDEMPOTENT if version is None else RetrySafety.NEVER,
    )


def delete_job(job_id: UUID, version: int | None) -> Call[JobAnswer | None]:
    return Call(
        method="DELETE",
        path=f"/jobs/{segment(job_id)}",
        answer=JobAnswer | None,  # type: ignore[arg-type] # msgspec decodes unions, too
        if_match=_etag(version),
        is_removal=True,
    )


def pause_job(job_id: UUID) -> Call[JobAnswer]:
    return post(f"/jobs/{segment(job_id)}/pause", JobAnswer)


def resume_job(job_id: UUID, start: ResumeFrom) -> Call[JobAnswer]:
    return post(f"/jobs/{segment(job_id)}/resume", JobAnswer, ResumeRequest(start=start))


def trigger_job(job_id: UUID, payload: Any) -> Call[RequestedAnswer]:
    body = None if payload is UNSET else {"payload": payload}
    return post(f"/jobs/{segment(job_id)}/trigger", RequestedAnswer, body)


def backfill_job(
    job_id: UUID, since: datetime, until: datetime, *, preview: bool
) -> Call[RequestedAnswer]:
    body = BackfillRequest(since=since, until=until, preview=preview)
    return post(f"/jobs/{segment(job_id)}/backfill", RequestedAnswer, body)


def next_times(job_id: UUID, count: int) -> Call[NextAnswer]:
    return get(f"/jobs/{segment(job_id)}/next", NextAnswer, {"count": count})


def explain(job_id: UUID, at: datetime) -> Call[ExplainAnswer]:
    return get(f"/jobs/{segment(job_id)}/explain", ExplainAnswer, {"at": at})


def preview(job: AnyJob) -> Call[PreviewAnswer]:
    return post("/preview", PreviewAnswer, job, RetrySafety.IDEMPOTENT)


def list_runs(job_id: UUID, cursor: str | None) -> Call[RunPage]:
    return get(f"/jobs/{segment(job_id)}/runs", RunPage, _page(cursor))


def list_latest_runs(
    state: RunState | None,
    job_id: UUID | None,
    since: datetime | None,
    until: datetime | None,
    cursor: str | None,
) -> Call[RunPage]:
    query: dict[str, Parameter] = {
        "state": state,
        "job_id": job_id,
        "from": since,
        "until": until,
    }
    return get("/runs", RunPage, query | _page(cursor))


def get_run(run_id: str) -> Call[RunAnswer]:
    return get(f"/runs/{segment(run_id)}", RunAnswer)


def heartbeat(run_id: str, token: int) -> Call[None]:
    body = HeartbeatRequest(token=token)
    return post(f"/runs/{segment(run_id)}/heartbeat", type(None), body, RetrySafety.IDEMPOTENT)


def complete(run_id: str, token: int) -> Call[RunAnswer]:
    return post(f"/runs/{segment(run_id)}/complete", RunAnswer, CompleteRequest(token=token))


def fail(run_id: str, token: int, error: str, *, retry: bool) -> Call[RunAnswer]:
    body = FailRequest(token=token, error=error, retry=retry)
    return post(f"/runs/{segment(run_id)}/fail", RunAnswer, body)


def cancel_run(run_id: str) -> Call[CancelAnswer]:
    return post(f"/runs/{segment(run_id)}/cancel", CancelAnswer)


def retry_run(run_id: str) -> Call[RunAnswer]:
    return post(f"/runs/{segment(run_id)}/retry", RunAnswer)


def list_dead(
    job_id: UUID | None, since: datetime | None, until: datetime | None, cursor: str | None
) -> Call[RunPage]:
    query: dict[str, Parameter] = {"job_id": job_id, "since": since, "until": until}
    return get("/dead", RunPage, query | _page(cursor))


def redrive(request: RedriveRequest) -> Call[RequestedAnswer]:
    return post("/dead/redrive", RequestedAnswer, request)


def list_shards() -> Call[ShardsAnswer]:
    return get("/shards", ShardsAnswer)


def list_queues() -> Call[QueuesAnswer]:
    return get("/queues", QueuesAnswer)


def create_tenant(request: TenantRequest) -> Call[TenantAnswer]:
    return post("/tenants", TenantAnswer, request)


def update_tenant(tenant_id: UUID, changes: TenantChanges) -> Call[TenantAnswer]:
    return Call(
        method="PATCH",
        path=f"/tenants/{segment(tenant_id)}",
        answer=TenantAnswer,
        body=write_json(changes),
        content_type=MERGE_PATCH,
    )


def rotate_secret(tenant_id: UUID, request: RotateRequest) -> Call[TenantAnswer]:
    return post(f"/tenants/{segment(tenant_id)}/rotate-secret", TenantAnswer, request)


def list_tenants(cursor: str | None) -> Call[TenantPage]:
    return get("/tenants", TenantPage, _page(cursor))


def create_token(request: TokenRequest) -> Call[TokenAnswer]:
    return post("/tokens", TokenAnswer, request)


def list_tokens(tenant_id: UUID | None, cursor: str | None) -> Call[TokenPage]:
    query: dict[str, Parameter] = {"tenant_id": tenant_id}
    return get("/tokens", TokenPage, query | _page(cursor))


def revoke_token(token_id: str) -> Call[TokenAnswer]:
    return Call(method="DELETE", path=f"/tokens/{segment(token_id)}", answer=TokenAnswer)


def _page(cursor: str | None) -> dict[str, Parameter]:
    return {"limit": PAGE, "cursor": cursor}


def _etag(version: int | None) -> str | None:
    return None if version is None else f'"{version}"'
