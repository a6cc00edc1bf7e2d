from uuid import uuid4

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
async def test_tenants_and_tokens_that_cannot_be_meant(
    api: Api, path: str, body: dict[str, object], pointer: str
) -> None:
    refused = await api.post(path, body)
    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_what_is_not_there(api: Api) -> None:
    assert (await api.post("/tenants", {"name": "one"})).status == 409
    assert (await api.post("/tokens", {"name": "a", "tenant_id": str(uuid4())})).status == 404
    assert (await api.get(f"/tokens?tenant_id={uuid4()}")).status == 404
    assert (await api.call("DELETE", "/tokens/" + "0" * 64)).status == 404
    assert (await api.call("DELETE", "/tokens/xyz")).status == 404
