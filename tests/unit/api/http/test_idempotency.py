from typing import cast
from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.api import Api, document

from wheelsched.core.model import RunState, parse_run_id
from wheelsched.errors import StoreUnavailable
from wheelsched.testing import MemoryStore

KEY = {"Idempotency-Key": "order-4711"}


async def test_a_retried_request_gets_the_same_response(api: Api) -> None:
    first = await api.post("/jobs", document(), headers=KEY)
    again = await api.post("/jobs", document(), headers=KEY)
    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert again.headers["ETag"] == first.headers["ETag"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    assert len((await api.get("/jobs")).body["items"]) == 1


async def test_a_retried_trigger_adds_no_second_run(api: Api) -> None:
    job = await api.create()
    path = f"/jobs/{job['job_id']}/trigger"
    first = await api.post(path, headers=KEY)
    again = await api.post(path, headers=KEY)
    assert first.body == again.body
    assert len((await api.get(f"/jobs/{job['job_id']}/runs")).body["items"]) == 1


async def test_a_different_request_with_the_key_is_rejected(api: Api) -> None:
    await api.post("/jobs", document(), headers=KEY)
    other = await api.post("/jobs", document(name="other"), headers=KEY)
    assert (other.status, other.body["type"]) == (422, "urn:wheelsched:problem:request-key-reused")
    elsewhere = await api.post("/preview", document(), headers=KEY)
    assert elsewhere.status == 422


async def test_a_rejected_request_releases_its_key(api: Api) -> None:
    assert (await api.post("/jobs", document(name=" "), headers=KEY)).status == 422
    assert (await api.post("/jobs", document(), headers=KEY)).status == 201


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "ä"])
async def test_invalid_keys_are_rejected(api: Api, key: str) -> None:
    refused = await api.post("/jobs", document(), headers={"Idempotency-Key": key})
    assert refused.status == 400


async def test_keys_are_separate_per_tenant(api: Api) -> None:
    other_id = await api.add_tenant("other")
    await api.add_token("wst_other", other_id, "write")
    mine = await api.post("/jobs", document(), headers=KEY)
    theirs = await api.post("/jobs", document(), headers=KEY, token="wst_other")
    assert theirs.status == 201
    assert theirs.body["job_id"] != mine.body["job_id"]


async def test_after_a_lost_response_the_work_is_not_repeated(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database writes the job and fails before it can respond."""
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


async def retry_and_end(api: Api, monkeypatch: pytest.MonkeyPatch, path: str, body: object) -> str:
    """A run is cancelled; the database retries it and fails before it can respond; it ends again.
    Returns its id."""
    job = await api.create()
    run_id = (await api.post(f"/jobs/{job['job_id']}/trigger")).body["run_ids"][0]
    key = parse_run_id(run_id)
    tables = cast(MemoryStore, api.stores)._tables
    row = tables.runs[key]
    row.run = replace(row.run, state=RunState.DEAD, finished_at_us=tables.now_us())
    retry = api.stores.history.retry

    async def write_and_fail(*arguments: object, **named: object) -> object:
        await retry(*arguments, **named)  # type: ignore[arg-type]
        raise StoreUnavailable

    monkeypatch.setattr(api.stores.history, "retry", write_and_fail)
    assert (await api.post(path.format(run_id), body, headers=KEY)).status == 503
    monkeypatch.undo()
    assert row.run.state is RunState.RETRYING
    row.run = replace(row.run, state=RunState.DEAD, finished_at_us=tables.now_us())
    return str(run_id)


async def test_a_retry_that_is_sent_again_does_not_retry_twice(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await retry_and_end(api, monkeypatch, "/runs/{}/retry", None)
    again = await api.post(f"/runs/{run_id}/retry", headers=KEY)
    assert (again.status, again.body["state"]) == (202, "dead")
    other = await api.post(f"/runs/{run_id}/retry", headers={"Idempotency-Key": "another"})
    assert (other.status, other.body["state"]) == (202, "retrying")


async def test_a_redrive_that_is_sent_again_does_not_either(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await retry_and_end(api, monkeypatch, "/dead/redrive", {})
    again = await api.post("/dead/redrive", {}, headers=KEY)
    assert (again.status, again.body["run_ids"]) == (202, [])
    other = await api.post("/dead/redrive", {}, headers={"Idempotency-Key": "another"})
    assert (other.status, other.body["run_ids"]) == (202, [run_id])


async def test_a_request_in_progress_is_not_started_again(
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


async def test_a_response_that_cannot_be_stored_is_still_returned(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(api.stores.idempotency, "keep", fail)
    assert (await api.post("/jobs", document(), headers=KEY)).status == 201


async def test_a_secret_is_not_replayed(api: Api) -> None:
    body = {"name": "ci", "tenant_id": str(api.tenant_id)}
    first = await api.post("/tokens", body, headers=KEY)
    again = await api.post("/tokens", body, headers=KEY)
    assert first.body["token"].startswith("wst_")
    assert again.body == first.body | {"token": None}
    unknown = await api.post("/tokens", {"name": "ci", "tenant_id": str(uuid4())})
    assert unknown.status == 404
