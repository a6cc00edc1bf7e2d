"""Requests, retries and responses of the client."""

import socket
from collections.abc import AsyncIterator
from random import Random
from uuid import UUID

import pytest
from tests.unit.client.server import Reply, Server, Unhurried, problem, reply

from wheelsched import errors
from wheelsched.client import Client, ClientConfig
from wheelsched.errors import (
    ApiError,
    ApiUnavailable,
    InvalidAnswer,
    InvalidApiToken,
    InvalidApiUrl,
    NotFound,
    SecretLost,
)
from wheelsched.wire.tenant import TenantRequest, TokenRequest

JOB_ID = UUID(int=7)
SHARDS = reply({"items": [], "free_partitions": [1]})


@pytest.fixture
def clock() -> Unhurried:
    return Unhurried()


@pytest.fixture
async def client(server: Server, clock: Unhurried) -> AsyncIterator[Client]:
    config = ClientConfig(timeout_ms=60_000, max_attempts=3, max_answer_bytes=100_000)
    async with Client(
        server.url + "/", "wst_token", config=config, clock=clock, random=Random(1)
    ) as client:
        yield client


async def test_a_call_carries_the_token(server: Server, client: Client) -> None:
    server.replies = [SHARDS]
    assert (await client.list_shards()).free_partitions == [1]
    (seen,) = server.seen
    assert seen.path == "/api/v1/shards"
    assert seen.headers["authorization"] == "Bearer wst_token"
    assert "idempotency-key" not in seen.headers


async def test_without_a_token_no_authorization_header_is_sent(server: Server) -> None:
    server.replies = [SHARDS]
    async with Client(server.url) as client:
        await client.list_shards()
    assert "authorization" not in server.seen[0].headers


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_transient_errors_are_retried(
    server: Server, client: Client, clock: Unhurried, status: int
) -> None:
    server.replies = [Reply(status), Reply(status), SHARDS]
    await client.list_shards()
    assert len(server.seen) == 3
    assert all(0 <= slept <= 400_000_000 for slept in clock.slept_ns)


async def test_the_number_of_attempts_is_limited(server: Server, client: Client) -> None:
    server.replies = [Reply(503)]
    with pytest.raises(ApiUnavailable):
        await client.list_shards()
    assert len(server.seen) == 3


async def test_a_lost_connection_is_retried_with_the_same_key(
    server: Server, client: Client
) -> None:
    server.replies = [
        Reply(is_cut=True),
        problem(409, "request-key-busy"),
        reply({"count": 1, "run_ids": ["x"]}),
    ]
    assert (await client.trigger_job(JOB_ID)).run_ids == ["x"]
    keys = [seen.headers["idempotency-key"] for seen in server.seen]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    await client.trigger_job(JOB_ID)
    assert server.seen[-1].headers["idempotency-key"] != keys[0]


async def test_retry_after_is_honoured(server: Server, client: Client, clock: Unhurried) -> None:
    server.replies = [problem(429, "rate-exceeded", **{"Retry-After": "2"}), SHARDS]
    await client.list_shards()
    assert 2_000_000_000 <= clock.slept_ns[0] <= 2_200_000_000


async def test_retry_after_is_bounded(server: Server, client: Client, clock: Unhurried) -> None:
    server.replies = [Reply(503, headers={"Retry-After": "86400"}), SHARDS]
    await client.list_shards()
    assert clock.slept_ns[0] == 5_000_000_000


@pytest.mark.parametrize("failure", [Reply(503), Reply(is_cut=True)])
async def test_a_versioned_edit_that_may_have_arrived_is_not_retried(
    server: Server, client: Client, failure: Reply
) -> None:
    server.replies = [failure]
    with pytest.raises(ApiUnavailable):
        await client.update_job(JOB_ID, {"name": "new"}, version=3)
    (seen,) = server.seen
    assert seen.headers["if-match"] == '"3"'
    assert seen.headers["content-type"] == "application/merge-patch+json"


@pytest.mark.parametrize("failure", [Reply(503), Reply(is_cut=True)])
async def test_a_retried_deletion_that_gets_404_succeeded(
    server: Server, client: Client, failure: Reply
) -> None:
    server.replies = [failure, problem(404, "job-not-found")]
    assert await client.delete_job(JOB_ID) is None
    assert len(server.seen) == 2


async def test_deleting_a_missing_job_raises_not_found(server: Server, client: Client) -> None:
    server.replies = [problem(429, "rate-exceeded"), problem(404, "job-not-found")]
    with pytest.raises(NotFound):
        await client.delete_job(JOB_ID)
    server.replies = [Reply(is_cut=True), problem(404, "job-not-found")]
    with pytest.raises(NotFound):
        await client.pause_job(JOB_ID)


async def test_a_lost_secret_is_an_error(server: Server, client: Client) -> None:
    token = {
        "token_id": "ab",
        "tenant_id": str(JOB_ID),
        "name": "ci",
        "scopes": ["read"],
        "created_at": "2026-01-01T00:00:00Z",
        "revoked_at": None,
    }
    server.replies = [Reply(is_cut=True), reply(token, 201)]
    with pytest.raises(SecretLost, match="ab"):
        await client.create_token(TokenRequest(name="ci"))
    tenant = {
        "tenant_id": str(JOB_ID),
        "name": "new",
        "weight": 1,
        "job_quota": 1,
        "requests_per_second": 1,
        "created_at": "2026-01-01T00:00:00Z",
    }
    server.replies = [Reply(is_cut=True), reply(tenant, 201)]
    with pytest.raises(SecretLost, match=str(JOB_ID)):
        await client.create_tenant(TenantRequest(name="new"))
    with pytest.raises(SecretLost, match="rotate again"):
        await client.rotate_secret(JOB_ID)


async def test_an_unreachable_api_is_retried_and_then_reported(clock: Unhurried) -> None:
    config = ClientConfig(max_attempts=3)
    async with Client("http://127.0.0.1:1", config=config, clock=clock) as client:
        with pytest.raises(ApiUnavailable, match="the API is unreachable"):
            await client.update_job(JOB_ID, {"name": "new"}, version=3)
    assert len(clock.slept_ns) == 2


async def test_a_missing_response_times_out(clock: Unhurried) -> None:
    config = ClientConfig(timeout_ms=50, max_attempts=2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with Client(url, config=config, clock=clock) as client:
            with pytest.raises(ApiUnavailable, match="timed out"):
                await client.list_shards()


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, "invalid-json", errors.InvalidRequest),
        (401, "token-unknown", errors.NotAuthenticated),
        (403, "scope-missing", errors.NotAllowed),
        (403, "quota-exceeded", errors.QuotaUsedUp),
        (404, "job-not-found", errors.NotFound),
        (409, "job-name-taken", errors.NameTaken),
        (409, "token-stale", errors.StaleToken),
        (409, "run-not-live", errors.Conflict),
        (412, "version-mismatch", errors.EditedMeanwhile),
        (422, "invalid-cron", errors.InvalidRequest),
        (429, "rate-exceeded", errors.TooManyRequests),
    ],
)
async def test_each_problem_type_maps_to_its_error(
    server: Server, client: Client, status: int, kind: str, error: type[ApiError]
) -> None:
    server.replies = [problem(status, kind)]
    with pytest.raises(error, match="what was wrong") as raised:
        await client.get_job(JOB_ID)
    assert type(raised.value) is error
    assert (raised.value.status, raised.value.kind) == (status, kind)


async def test_an_error_lists_every_invalid_field(server: Server, client: Client) -> None:
    server.replies = [problem(422, "invalid-document", ("/schedule", "no"), ("/name", "blank"))]
    with pytest.raises(errors.InvalidRequest, match="/schedule: no; /name: blank") as raised:
        await client.create_job({"name": "", "schedule": "?", "target": {"url": "x"}})
    assert [field.pointer for field in raised.value.errors] == ["/schedule", "/name"]


async def test_an_error_response_of_a_proxy_is_shown(server: Server, client: Client) -> None:
    server.replies = [Reply(403, b"<h1>go away</h1>" * 100)]
    with pytest.raises(errors.NotAllowed, match="403 Forbidden: <h1>go away") as raised:
        await client.list_shards()
    assert len(str(raised.value)) < 300


async def test_redirects_are_not_followed(server: Server, client: Client) -> None:
    server.replies = [Reply(307, headers={"Location": server.url + "/elsewhere"}), SHARDS]
    with pytest.raises(InvalidAnswer):
        await client.list_shards()
    assert len(server.seen) == 1


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>", b"\xff", b"[" * 50_000, b'"' * 100_001])
async def test_a_foreign_response_is_an_error(server: Server, client: Client, body: bytes) -> None:
    server.replies = [Reply(200, body)]
    with pytest.raises(InvalidAnswer):
        await client.list_shards()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8420",
        "ftp://example.org",
        "http://",
        "http://user:password@example.org",
        "http://example.org?x",
        "http://example.org:99999",
        "http://[::1",
    ],
)
def test_an_invalid_url_is_rejected_at_once(url: str) -> None:
    with pytest.raises(InvalidApiUrl):
        Client(url)


@pytest.mark.parametrize("token", ["", "wst_all\n", "wst all", "wst_ä", "wst_\x00"])
def test_an_invalid_token_is_rejected_at_once(token: str) -> None:
    with pytest.raises(InvalidApiToken, match="wheelsched token create") as raised:
        Client("http://127.0.0.1:8420", token)
    assert "wst" not in str(raised.value)


async def test_a_url_may_have_a_path_and_the_prefix(server: Server) -> None:
    server.replies = [SHARDS]
    for written in ("/scheduler", "/scheduler/api/v1/"):
        async with Client(server.url + written) as client:
            await client.list_shards()
    assert [seen.path for seen in server.seen] == ["/scheduler/api/v1/shards"] * 2


async def test_url_and_token_come_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHEELSCHED_URL", server.url)
    monkeypatch.setenv("WHEELSCHED_TOKEN", "wst_of_the_environment")
    server.replies = [SHARDS]
    async with Client.from_environment() as client:
        await client.list_shards()
    assert server.seen[0].headers["authorization"] == "Bearer wst_of_the_environment"
