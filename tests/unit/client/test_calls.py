"""Every call of the API by both clients: URL, body and response type."""

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import Struct
from tests.unit.client.server import Server, reply

from wheelsched.client import Client, JobFields, SyncClient
from wheelsched.core.model import RunState
from wheelsched.errors import InvalidRequest
from wheelsched.wire.job import JobDocument
from wheelsched.wire.jobs import ResumeFrom
from wheelsched.wire.run import RedriveRequest, RunAnswer
from wheelsched.wire.tenant import TenantChanges, TenantRequest, TokenRequest

JOB_ID = UUID("018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f")
AT = datetime(2026, 11, 16, 14, tzinfo=UTC)
WRITTEN_AT = "2026-11-16T14%3A00%3A00%2B00%3A00"
FIELDS: JobFields = {
    "name": "weekly-report",
    "schedule": "0 9 * * 1",
    "target": {"url": "https://example.org/hooks/report"},
    "payload": {"report": "weekly"},
}
JOB = {
    "job_id": str(JOB_ID),
    "state": "active",
    "timezone": "UTC",
    **FIELDS,
    "misfire": {},
    "overlap": {},
    "retry": {},
    "dst": {},
    "timeout": "120s",
    "jitter": "0s",
    "priority": 0,
    "idempotency_key": "{{job_id}}",
    "tags": {},
    "version": 1,
    "created_at": "2026-11-16T14:00:00Z",
    "updated_at": "2026-11-16T14:00:00Z",
    "paused_at": None,
    "next_run_at": None,
}
RUN = {
    **dict.fromkeys(RunAnswer.__struct_fields__),
    "run_id": "run",
    "job_id": str(JOB_ID),
    "scheduled_at": "2026-11-16T14:00:00Z",
    "due_at": "2026-11-16T14:00:00Z",
    "state": "dead",
    "trigger": "manual",
    "attempt": 4,
}
REQUESTED = {"count": 1, "run_ids": ["run"]}
TENANT = {
    "tenant_id": str(JOB_ID),
    "name": "a",
    "weight": 1,
    "job_quota": 1,
    "requests_per_second": 1,
    "created_at": "2026-11-16T14:00:00Z",
    "secret": "whsec_a",
}
TOKEN = {
    "token_id": "ab",
    "tenant_id": str(JOB_ID),
    "name": "a",
    "scopes": ["read"],
    "created_at": "2026-11-16T14:00:00Z",
    "revoked_at": None,
    "token": "wst_a",
}


class Reading(Struct):
    value: float


class Case(Struct):
    ask: Callable[[Any], Any]  # of either client
    sent: str
    answer: object
    body: object = None


JOB_PATH = f"/api/v1/jobs/{JOB_ID}"
CASES = {
    "create_job": Case(lambda c: c.create_job(FIELDS), "POST /api/v1/jobs", JOB, FIELDS),
    "get_job": Case(lambda c: c.get_job(JOB_ID), f"GET {JOB_PATH}", JOB),
    "update_job": Case(
        lambda c: c.update_job(JOB_ID, {"timeout": None}),
        f"PATCH {JOB_PATH}",
        JOB,
        {"timeout": None},
    ),
    "delete_job": Case(lambda c: c.delete_job(JOB_ID), f"DELETE {JOB_PATH}", JOB),
    "pause_job": Case(lambda c: c.pause_job(JOB_ID), f"POST {JOB_PATH}/pause", JOB),
    "resume_job": Case(
        lambda c: c.resume_job(JOB_ID, ResumeFrom.PAUSED_AT),
        f"POST {JOB_PATH}/resume",
        JOB,
        {"from": "paused_at"},
    ),
    "trigger_job": Case(
        lambda c: c.trigger_job(JOB_ID, {"a": None}),
        f"POST {JOB_PATH}/trigger",
        REQUESTED,
        {"payload": {"a": None}},
    ),
    "backfill_job": Case(
        lambda c: c.backfill_job(JOB_ID, AT, AT, preview=True),
        f"POST {JOB_PATH}/backfill",
        REQUESTED,
        {"since": "2026-11-16T14:00:00Z", "until": "2026-11-16T14:00:00Z", "preview": True},
    ),
    "next_times": Case(
        lambda c: c.next_times(JOB_ID, 3),
        f"GET {JOB_PATH}/next?count=3",
        {"job_id": str(JOB_ID), "timezone": "UTC", "items": []},
    ),
    "explain": Case(
        lambda c: c.explain(JOB_ID, AT),
        f"GET {JOB_PATH}/explain?at={WRITTEN_AT}",
        {
            "job_id": str(JOB_ID),
            "at": "2026-11-16T14:00:00Z",
            "verdict": "paused",
            "detail": "",
            "run": None,
            "due_before": None,
            "due_after": None,
        },
    ),
    "preview": Case(
        lambda c: c.preview(FIELDS),
        "POST /api/v1/preview",
        {"words": "", "next_times": [], "warnings": []},
        FIELDS,
    ),
    "get_run": Case(lambda c: c.get_run("a/../b"), "GET /api/v1/runs/a%2F..%2Fb", RUN),
    "cancel_run": Case(
        lambda c: c.cancel_run("run"),
        "POST /api/v1/runs/run/cancel",
        {"run_id": "run", "in_time": True},
    ),
    "retry_run": Case(lambda c: c.retry_run("run"), "POST /api/v1/runs/run/retry", RUN),
    "heartbeat": Case(
        lambda c: c.heartbeat("run", 7), "POST /api/v1/runs/run/heartbeat", None, {"token": 7}
    ),
    "complete": Case(
        lambda c: c.complete("run", 7), "POST /api/v1/runs/run/complete", RUN, {"token": 7}
    ),
    "fail": Case(
        lambda c: c.fail("run", 7, "no", retry=False),
        "POST /api/v1/runs/run/fail",
        RUN,
        {"token": 7, "error": "no", "retry": False},
    ),
    "redrive": Case(
        lambda c: c.redrive(RedriveRequest(limit=9)),
        "POST /api/v1/dead/redrive",
        REQUESTED,
        {"job_id": None, "since": None, "until": None, "limit": 9, "rate": None},
    ),
    "list_shards": Case(
        lambda c: c.list_shards(), "GET /api/v1/shards", {"items": [], "free_partitions": []}
    ),
    "create_tenant": Case(
        lambda c: c.create_tenant(TenantRequest(name="a")),
        "POST /api/v1/tenants",
        TENANT,
        {"name": "a", "weight": 1, "job_quota": 100_000, "requests_per_second": 1_000},
    ),
    "update_tenant": Case(
        lambda c: c.update_tenant(JOB_ID, TenantChanges(weight=2)),
        f"PATCH /api/v1/tenants/{JOB_ID}",
        TENANT,
        {"weight": 2},
    ),
    "rotate_secret": Case(
        lambda c: c.rotate_secret(JOB_ID),
        f"POST /api/v1/tenants/{JOB_ID}/rotate-secret",
        TENANT,
        {"finish": False},
    ),
    "create_token": Case(
        lambda c: c.create_token(TokenRequest(name="a")),
        "POST /api/v1/tokens",
        TOKEN,
        {"name": "a", "scopes": ["read", "write"], "tenant_id": None},
    ),
    "list_queues": Case(lambda c: c.list_queues(), "GET /api/v1/queues", {"items": []}),
    "revoke_token": Case(lambda c: c.revoke_token("ab"), "DELETE /api/v1/tokens/ab", TOKEN),
}
LISTS = {
    "list_jobs": Case(
        lambda c: c.list_jobs(name="a b", tags={"team": "a", "x": "y"}),
        "GET /api/v1/jobs?name=a+b&tag=team:a&tag=x:y&limit=500",
        JOB,
    ),
    "list_runs": Case(lambda c: c.list_runs(JOB_ID), f"GET {JOB_PATH}/runs?limit=500", RUN),
    "list_latest_runs": Case(
        lambda c: c.list_latest_runs(state=RunState.DEAD, since=AT),
        f"GET /api/v1/runs?state=dead&from={WRITTEN_AT}&limit=500",
        RUN,
    ),
    "list_dead": Case(
        lambda c: c.list_dead(job_id=JOB_ID, since=AT),
        f"GET /api/v1/dead?job_id={JOB_ID}&since={WRITTEN_AT}&limit=500",
        RUN,
    ),
    "list_tenants": Case(lambda c: c.list_tenants(), "GET /api/v1/tenants?limit=500", TENANT),
    "list_tokens": Case(
        lambda c: c.list_tokens(JOB_ID),
        f"GET /api/v1/tokens?tenant_id={JOB_ID}&limit=500",
        TOKEN,
    ),
}


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.url) as client:
        yield client


@pytest.fixture
def sync_client(server: Server) -> Iterator[SyncClient]:
    with SyncClient(server.url) as client:
        yield client


def unquoted(path: str) -> str:
    """Servers on some event loops decode the colon, others do not."""
    return path.replace(":", "%3A")


@pytest.mark.parametrize("name", CASES)
async def test_a_call(server: Server, client: Client, sync_client: SyncClient, name: str) -> None:
    case = CASES[name]
    server.replies = [reply(case.answer)]
    answer = await case.ask(client)
    assert await asyncio.to_thread(case.ask, sync_client) == answer
    first, second = server.seen
    assert f"{first.method} {unquoted(first.path)}" == unquoted(case.sent)
    assert (first.body or b"null") == (second.body or b"null")
    assert msgspec.json.decode(first.body or b"null") == case.body
    if case.answer is not None:
        assert isinstance(answer, Struct)


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_iterates_over_all_pages(
    server: Server, client: Client, sync_client: SyncClient, name: str
) -> None:
    case = LISTS[name]
    pages = [
        reply({"items": [case.answer, case.answer], "next_cursor": "further"}),
        reply({"items": [case.answer], "next_cursor": None}),
    ]
    server.replies = [*pages]
    found = [item async for item in case.ask(client)]
    assert len(found) == 3
    first, second = server.seen
    assert f"{first.method} {unquoted(first.path)}" == unquoted(case.sent)
    assert second.path.endswith("&cursor=further")
    server.replies = [*pages]
    assert await asyncio.to_thread(lambda: list(case.ask(sync_client))) == found


async def test_many_jobs_are_sent_in_chunks(
    server: Server, client: Client, sync_client: SyncClient
) -> None:
    server.replies = [reply({"registered": 2, "refused": 0, "items": []})]
    answers = [each async for each in client.create_jobs([FIELDS] * 5, chunk=2)]
    assert len(answers) == 3
    assert [seen.body.count(b"weekly-report") for seen in server.seen] == [2, 2, 1]
    assert {seen.headers["content-type"] for seen in server.seen} == {"application/x-ndjson"}
    assert len({seen.headers["idempotency-key"] for seen in server.seen}) == 3
    assert [msgspec.json.decode(line) for line in server.seen[0].body.splitlines()] == [FIELDS] * 2
    answered = await asyncio.to_thread(
        lambda: list(sync_client.create_jobs(iter([FIELDS]), chunk=9))
    )
    assert len(answered) == 1


async def test_large_jobs_are_sent_in_smaller_chunks(server: Server, client: Client) -> None:
    server.replies = [reply({"registered": 2, "refused": 0, "items": []})]
    large: JobFields = {**FIELDS, "payload": "x" * (3 << 20)}
    assert len([each async for each in client.create_jobs([large] * 5)]) == 3


async def test_registering_no_jobs_sends_no_request(server: Server, client: Client) -> None:
    assert [each async for each in client.create_jobs([])] == []
    assert server.seen == []


async def test_a_job_document_is_sent_like_a_dictionary(server: Server, client: Client) -> None:
    server.replies = [reply(JOB)]
    document = msgspec.convert(
        {"name": "a", "schedule": msgspec.Raw(b'"@daily"'), "target": {"url": "u"}}, JobDocument
    )
    await client.create_job(document)
    sent = msgspec.json.decode(server.seen[0].body)
    assert (sent["schedule"], sent["target"]["url"]) == ("@daily", "u")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_nan_and_infinity_are_rejected(server: Server, client: Client, number: float) -> None:
    """msgspec would encode them as null."""
    job: JobFields = {**FIELDS, "payload": {"a/b": [None, {"c": number}], "d": Reading(number)}}
    for ask, place in (
        (client.create_job(job), ""),
        (client.preview(job), ""),
        (client.update_job(JOB_ID, {"payload": job["payload"]}), ""),
        (anext(aiter(client.create_jobs([FIELDS, job]))), "/1"),
    ):
        with pytest.raises(InvalidRequest, match=f"{number} is not a valid JSON number") as raised:
            await ask
        pointers = [error.pointer for error in raised.value.errors]
        assert pointers == [f"{place}/payload/a~1b/1/c", f"{place}/payload/d/value"]
    assert server.seen == []


async def test_null_is_sent(server: Server, client: Client) -> None:
    server.replies = [reply(JOB)]
    payload = {"a": None, "b": msgspec.Raw(b"[null]"), "c": 1.5}
    await client.create_job({**FIELDS, "payload": payload})
    sent = msgspec.json.decode(server.seen[0].body)
    assert sent["payload"] == {"a": None, "b": [None], "c": 1.5}


def test_every_call_is_tested_on_both_clients() -> None:
    tried = CASES.keys() | LISTS.keys() | {"create_jobs"}
    for kind in (Client, SyncClient):
        methods = {name for name, _ in inspect.getmembers(kind, inspect.isfunction)}
        assert {name for name in methods if not name.startswith("_")} - {"close"} == tried
