from uuid import uuid4

import pytest
from tests.api import Api, document

from wheelsched.errors import StoreUnavailable

KEY = {"Idempotency-Key": "order-4711"}


async def test_a_request_that_is_sent_again_is_answered_as_before(api: Api) -> None:
    first = await api.post("/jobs", document(), headers=KEY)
    again = await api.post("/jobs", document(), headers=KEY)
    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert again.headers["ETag"] == first.headers["ETag"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    assert len((await api.get("/jobs")).body["items"]) == 1


async def test_a_trigger_that_is_sent_again_makes_no_second_run(api: Api) -> None:
    job = await api.create()
    path = f"/jobs/{job['job_id']}/trigger"
    first = await api.post(path, headers=KEY)
    again = await api.post(path, headers=KEY)
    assert first.body == again.body
    assert len((await api.get(f"/jobs/{job['job_id']}/runs")).body["items"]) == 1


async def test_another_request_with_the_key_is_refused(api: Api) -> None:
    await api.post("/jobs", document(), headers=KEY)
    other = await api.post("/jobs", document(name="other"), headers=KEY)
    assert (other.status, other.body["type"]) == (422, "urn:wheelsched:problem:request-key-reused")
    elsewhere = await api.post("/preview", document(), headers=KEY)
    assert elsewhere.status == 422


async def test_a_refusal_leaves_the_key_as_new(api: Api) -> None:
    assert (await api.post("/jobs", document(name=" "), headers=KEY)).status == 422
    assert (await api.post("/jobs", document(), headers=KEY)).status == 201


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "ä"])
async def test_keys_that_are_none(api: Api, key: str) -> None:
    refused = await api.post("/jobs", document(), headers={"Idempotency-Key": key})
    assert refused.status == 400


async def test_keys_of_tenants_are_apart(api: Api) -> None:
    other_id = await api.add_tenant("other")
    await api.add_token("wst_other", other_id, "write")
    mine = await api.post("/jobs", document(), headers=KEY)
    theirs = await api.post("/jobs", document(), headers=KEY, token="wst_other")
    assert theirs.status == 201
    assert theirs.body["job_id"] != mine.body["job_id"]


async def test_after_a_lost_answer_the_work_is_found_and_not_done_twice(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database writes the job and fails before it can say so."""
    register = api.stores.jobs.register

    async def write_and_fail(*arguments: object) -> object:
        await register(*arguments)  # type: ignore[arg-type]
        raise StoreUnavailable

    monkeypatch.setattr(api.stores.jobs, "register", write_and_fail)
    lost = await api.post("/jobs", document(), headers=KEY)
    assert (lost.status, lost.headers["Retry-After"]) == (503, "1")
    monkeypatch.undo()
    (made,) = (await api.get("/jobs")).body["items"]
    again = await api.post("/jobs", document(), headers=KEY)
    assert again.status == 201
    assert again.body["job_id"] == made["job_id"]


async def test_a_request_that_is_being_answered_is_not_begun_twice(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = []

    async def ask_again(*arguments: object) -> set[object]:
        monkeypatch.undo()
        busy.append(await api.post("/jobs", document(), headers=KEY))
        return set()

    monkeypatch.setattr(api.stores.jobs, "register", ask_again)
    await api.post("/jobs", document(), headers=KEY)
    assert [(answer.status, answer.headers["Retry-After"]) for answer in busy] == [(409, "1")]


async def test_an_answer_that_cannot_be_kept_is_given_all_the_same(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(api.stores.idempotency, "keep", fail)
    assert (await api.post("/jobs", document(), headers=KEY)).status == 201


async def test_a_secret_is_in_the_first_answer_alone(api: Api) -> None:
    body = {"name": "ci", "tenant_id": str(api.tenant_id)}
    first = await api.post("/tokens", body, headers=KEY)
    again = await api.post("/tokens", body, headers=KEY)
    assert first.body["token"].startswith("wst_")
    assert again.body == first.body | {"token": None}
    unknown = await api.post("/tokens", {"name": "ci", "tenant_id": str(uuid4())})
    assert unknown.status == 404
