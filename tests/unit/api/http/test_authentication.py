import pytest
from tests.api import PROBES, Api, document, serve

from wheelsched.testing import MemoryStore


async def test_requests_without_a_token_are_rejected(api: Api) -> None:
    refused = await api.get("/jobs", token=None)
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    for header in ("Basic abc", "Bearer", "Bearer ", "bearer", "Bearer " + "x" * 500):
        assert (await api.get("/jobs", headers={"Authorization": header})).status == 401


async def test_an_unknown_token_is_rejected(api: Api) -> None:
    assert (await api.get("/jobs", token="wst_wrong")).status == 401


async def test_a_revoked_token_is_rejected_after_the_cache_expires(api: Api) -> None:
    await api.add_token("wst_brief", api.tenant_id, "read")
    assert (await api.get("/jobs", token="wst_brief")).status == 200
    tokens = (await api.get("/tokens")).body["items"]
    token_id = next(token["token_id"] for token in tokens if token["name"] == "wst_brief")
    revoked = await api.call("DELETE", f"/tokens/{token_id}")
    assert revoked.body["revoked_at"] is not None
    await api.clock.advance(api.config.token_cache_ms * 1_000_000)
    assert (await api.get("/jobs", token="wst_brief")).status == 401


async def test_each_operation_requires_its_scope(api: Api) -> None:
    await api.add_token("wst_read", api.tenant_id, "read")
    await api.add_token("wst_write", api.tenant_id, "write")
    await api.add_token("wst_admin", api.tenant_id, "admin")
    assert (await api.get("/jobs", token="wst_read")).status == 200
    assert (await api.post("/jobs", document(), token="wst_read")).status == 403
    assert (await api.post("/jobs", document(), token="wst_write")).status == 201
    assert (await api.get("/jobs", token="wst_write")).status == 403
    assert (await api.get("/tenants", token="wst_write")).status == 403
    assert (await api.get("/tenants", token="wst_admin")).status == 403
    assert (await api.get("/tokens", token="wst_admin")).status == 200


async def test_another_tenants_ids_are_not_found(api: Api) -> None:
    other_id = await api.add_tenant("other")
    await api.add_token("wst_other", other_id, "read", "write")
    job = await api.create()
    run = (await api.post(f"/jobs/{job['job_id']}/trigger")).body["run_ids"][0]
    for method, path, body in (
        ("GET", f"/jobs/{job['job_id']}", None),
        ("PATCH", f"/jobs/{job['job_id']}", {"priority": 1}),
        ("DELETE", f"/jobs/{job['job_id']}", None),
        ("POST", f"/jobs/{job['job_id']}/pause", None),
        ("POST", f"/jobs/{job['job_id']}/resume", None),
        ("POST", f"/jobs/{job['job_id']}/trigger", None),
        ("GET", f"/jobs/{job['job_id']}/next", None),
        ("GET", f"/jobs/{job['job_id']}/runs", None),
        ("GET", f"/jobs/{job['job_id']}/explain?at=2026-11-16T00:00:00Z", None),
        ("GET", f"/runs/{run}", None),
        ("POST", f"/runs/{run}/cancel", None),
        ("POST", f"/runs/{run}/retry", None),
        ("POST", f"/runs/{run}/heartbeat", {"token": 1}),
        ("POST", f"/runs/{run}/complete", {"token": 1}),
        ("POST", f"/runs/{run}/fail", {"token": 1}),
    ):
        answer = await api.call(method, path, body, token="wst_other")
        assert answer.status == 404, (method, path)
    assert (await api.get("/jobs", token="wst_other")).body["items"] == []
    assert (await api.get(f"/jobs/{job['job_id']}")).body["version"] == 1


async def test_local_programs_need_no_token_with_auth_loopback() -> None:
    store = MemoryStore(lambda: 1_794_837_600_000_000)
    async with serve(store, store, auth="loopback") as api:
        assert (await api.post("/jobs", document(), token=None)).status == 201
        assert (await api.get("/tenants", token=None)).status == 200
        assert (await api.get("/jobs", token="wst_wrong")).status == 401
        for site in ("same-origin", "none"):
            own = {"Sec-Fetch-Site": site}
            assert (await api.get("/jobs", token=None, headers=own)).status == 200
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "http://[::1"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"X-Forwarded-For": "203.0.113.9"},
            {"Forwarded": "for=203.0.113.9"},
            {"Host": "evil.example:8420"},
            {"Host": "[::1"},
        ):
            refused = await api.get("/jobs", token=None, headers=headers)
            assert refused.status == 403, headers


async def test_a_rate_limited_tenant_gets_retry_after(api: Api) -> None:
    slow_id = await api.add_tenant("slow", requests_per_second=2)
    await api.add_token("wst_slow", slow_id, "read")
    answers = [(await api.get("/jobs", token="wst_slow")).status for _ in range(3)]
    assert answers == [200, 200, 429]
    refused = await api.get("/jobs", token="wst_slow")
    assert refused.headers["Retry-After"] == "1"
    assert (await api.get("/jobs")).status == 200
    await api.clock.advance(1_000_000_000)
    assert (await api.get("/jobs", token="wst_slow")).status == 200


async def test_the_job_quota_applies_per_tenant(api: Api) -> None:
    small_id = await api.add_tenant("small", job_quota=1)
    await api.add_token("wst_small", small_id, "write")
    assert (await api.post("/jobs", document(), token="wst_small")).status == 201
    refused = await api.post("/jobs", document(name="second"), token="wst_small")
    assert (refused.status, refused.body["type"]) == (403, "urn:wheelsched:problem:quota-exceeded")


@pytest.mark.parametrize("header", ["webhook-id", "Webhook-Signature", "Wheelsched-Run-Id"])
@pytest.mark.parametrize("path", ["/jobs", "/tenants", "/nothing", *PROBES])
async def test_a_callback_is_rejected_with_and_without_a_token(
    api: Api, path: str, header: str
) -> None:
    for token in (api.token, None):
        refused = await api.get(path, token=token, headers={header: "1"})
        assert refused.status == 403
        assert refused.body["type"] == "urn:wheelsched:problem:callback-refused"
        assert "must not call wheelsched itself" in refused.body["detail"]
