from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.api import Api, document


async def test_a_tenant_and_its_token_are_made_and_used(api: Api) -> None:
    tenant = await api.post("/tenants", {"name": "new", "job_quota": 5})
    assert (tenant.status, tenant.body["job_quota"]) == (201, 5)
    assert tenant.body["secret"].startswith("whsec_")
    asked = {"name": "ci", "tenant_id": tenant.body["tenant_id"], "scopes": ["write", "read"]}
    token = await api.post("/tokens", asked)
    assert (token.status, token.body["scopes"]) == (201, ["read", "write"])
    text = token.body["token"]
    assert len(text) >= 47
    assert (await api.post("/jobs", document(), token=text)).status == 201
    assert (await api.get("/jobs")).body["items"] == []


async def test_secrets_are_in_no_list(api: Api) -> None:
    tenant_id = (await api.post("/tenants", {"name": "new"})).body["tenant_id"]
    token = (await api.post("/tokens", {"name": "ci", "tenant_id": tenant_id})).body["token"]
    for path in ("/tenants", f"/tokens?tenant_id={tenant_id}"):
        listed = await api.get(path)
        assert token not in str(listed.body)
        assert "whsec_" not in str(listed.body)


async def test_tenants_and_tokens_are_listed_in_pages(api: Api) -> None:
    for number in range(3):
        await api.post("/tenants", {"name": f"tenant-{number}"})
        await api.post("/tokens", {"name": f"token-{number}"})
    for path, names in (
        ("/tenants", ["one", "tenant-0", "tenant-1", "tenant-2"]),
        ("/tokens", ["wst_all", "token-0", "token-1", "token-2"]),
    ):
        first = await api.get(f"{path}?limit=3")
        rest = await api.get(f"{path}?limit=3&cursor={first.body['next_cursor']}")
        assert [item["name"] for item in first.body["items"] + rest.body["items"]] == names
        assert rest.body["next_cursor"] is None


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/tenants", {"name": " "}, "/name"),
        ("/tenants", {"name": "a", "weight": 0}, "/weight"),
        ("/tenants", {"name": "a", "job_quota": -1}, "/job_quota"),
        ("/tokens", {"name": "a\nb"}, "/name"),
        ("/tokens", {"name": "a", "scopes": []}, "/scopes"),
        ("/tokens", {"name": "a", "scopes": ["root"]}, "/scopes/0"),
        ("/tokens", {"name": "a", "tenant_id": "x"}, "/tenant_id"),
    ],
)
async def test_invalid_tenants_and_tokens_are_rejected(
    api: Api, path: str, body: dict[str, object], pointer: str
) -> None:
    refused = await api.post(path, body)
    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_missing_tenants_and_tokens_are_not_found(api: Api) -> None:
    assert (await api.post("/tenants", {"name": "one"})).status == 409
    assert (await api.post("/tokens", {"name": "a", "tenant_id": str(uuid4())})).status == 404
    assert (await api.get(f"/tokens?tenant_id={uuid4()}")).status == 404
    assert (await api.call("DELETE", "/tokens/" + "0" * 64)).status == 404
    assert (await api.call("DELETE", "/tokens/xyz")).status == 404


@pytest.fixture
async def two(api: Api) -> Api:
    """Admin tokens of the tenant `one` and of another tenant."""
    await api.add_token("wst_mine", api.tenant_id, "read", "write", "admin")
    await api.add_token("wst_theirs", await api.add_tenant("other"), "read", "write", "admin")
    return api


async def test_an_admin_manages_only_their_own_tenant(two: Api) -> None:
    made = await two.post("/tokens", {"name": "ci"}, token="wst_theirs")
    other_id = made.body["tenant_id"]
    assert (made.status, other_id != str(two.tenant_id)) == (201, True)
    for method, path, body in (
        ("GET", "/tenants", None),
        ("POST", "/tenants", {"name": "mine too"}),
        ("PATCH", f"/tenants/{other_id}", {"weight": 9}),
        ("PATCH", f"/tenants/{two.tenant_id}", {"job_quota": 10**9}),
        ("POST", f"/tenants/{other_id}/rotate-secret", None),
        ("GET", f"/tokens?tenant_id={other_id}", None),
        ("POST", "/tokens", {"name": "evil", "tenant_id": other_id}),
        ("POST", "/tokens", {"name": "evil", "scopes": ["operator"]}),
    ):
        refused = await two.call(method, path, body, token="wst_mine")
        assert (refused.status, refused.body["type"][-13:]) == (403, "scope-missing"), path
    revoked = await two.call("DELETE", f"/tokens/{made.body['token_id']}", token="wst_mine")
    assert revoked.status == 404
    assert (await two.get("/jobs", token=made.body["token"])).status == 200
    listed = await two.get(f"/tokens?tenant_id={two.tenant_id}", token="wst_mine")
    assert [token["name"] for token in listed.body["items"]] == ["wst_all", "wst_mine"]


async def test_an_admin_cannot_revoke_an_operator_token(two: Api) -> None:
    listed = await two.get("/tokens", token="wst_mine")
    ids = {token["name"]: token["token_id"] for token in listed.body["items"]}
    refused = await two.call("DELETE", f"/tokens/{ids['wst_all']}", token="wst_mine")
    assert (refused.status, refused.body["type"][-13:]) == (403, "scope-missing")
    ended = await two.call("DELETE", f"/tokens/{ids['wst_mine']}", token="wst_mine")
    assert (ended.status, ended.body["name"]) == (200, "wst_mine")


async def test_an_operator_can_create_operators(api: Api) -> None:
    made = await api.post("/tokens", {"name": "next", "scopes": ["operator", "admin"]})
    assert made.body["scopes"] == ["admin", "operator"]
    assert (await api.get("/tenants", token=made.body["token"])).status == 200
    assert (await api.get("/jobs", token=made.body["token"])).status == 403


async def test_quotas_are_changed_and_the_rest_stays(api: Api) -> None:
    made = (await api.post("/tenants", {"name": "new", "weight": 3})).body
    path = f"/tenants/{made['tenant_id']}"
    changed = await api.call("PATCH", path, {"job_quota": 7})
    assert (changed.status, changed.body["job_quota"], changed.body["weight"]) == (200, 7, 3)
    await api.call("PATCH", path, {"requests_per_second": 9, "weight": 4, "name": "newer"})
    (shown,) = [
        tenant
        for tenant in (await api.get("/tenants")).body["items"]
        if tenant["tenant_id"] == made["tenant_id"]
    ]
    assert (shown["job_quota"], shown["requests_per_second"], shown["weight"]) == (7, 9, 4)
    assert shown["name"] == "newer"
    (tenant,) = await api.stores.tenants.read([UUID(made["tenant_id"])])
    assert tenant.secrets == (made["secret"],)
    for body, pointer in (({"weight": 0}, "/weight"), ({"name": ""}, "/name"), ({"x": 1}, "/x")):
        refused = await api.call("PATCH", path, body)
        assert (refused.status, refused.pointers) == (422, [pointer])
    assert (await api.call("PATCH", path, {"name": "one"})).status == 409
    assert (await api.call("PATCH", f"/tenants/{uuid4()}", {"weight": 1})).status == 404
    assert (await api.call("PATCH", "/tenants/x", {"weight": 1})).status == 404


async def test_a_secret_is_rotated_while_the_old_one_stays(api: Api) -> None:
    made = (await api.post("/tenants", {"name": "new"})).body
    path = f"/tenants/{made['tenant_id']}/rotate-secret"

    async def secrets() -> tuple[str, ...]:
        (tenant,) = await api.stores.tenants.read([UUID(made["tenant_id"])])
        return tenant.secrets

    rotated = await api.post(path)
    assert (rotated.status, rotated.body["secret_count"]) == (200, 2)
    assert await secrets() == (rotated.body["secret"], made["secret"])
    again = await api.post(path)  # the answer was lost
    assert await secrets() == (again.body["secret"], made["secret"])
    finished = await api.post(path, {"finish": True})
    assert (finished.body["secret_count"], finished.body["secret"]) == (1, None)
    assert await secrets() == (again.body["secret"],)
    assert (await api.post(f"/tenants/{uuid4()}/rotate-secret")).status == 404


async def test_concurrent_changes_of_a_tenant_all_apply(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant_id = (await api.post("/tenants", {"name": "new"})).body["tenant_id"]
    edit = api.stores.tenants.edit

    async def edit_second(*given: Any) -> None:
        monkeypatch.setattr(api.stores.tenants, "edit", edit)
        await api.call("PATCH", f"/tenants/{tenant_id}", {"weight": 5})
        await edit(*given)

    monkeypatch.setattr(api.stores.tenants, "edit", edit_second)
    changed = await api.call("PATCH", f"/tenants/{tenant_id}", {"job_quota": 6})
    assert (changed.body["weight"], changed.body["job_quota"]) == (5, 6)
