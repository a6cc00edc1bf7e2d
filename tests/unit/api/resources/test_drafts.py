"""Jobs scheduled in SQL that no shard has accepted, as the API shows them."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.api import Api, document

from wheelsched.core.model import Draft
from wheelsched.core.targets.egress import NO_EXCEPTIONS
from wheelsched.errors import InvalidDocument
from wheelsched.jobs.drafts import draft_answer, judge_draft
from wheelsched.ports import Caller, Plan
from wheelsched.testing import MemoryStore


async def scheduled(api: Api, error: str | None = None, **changes: Any) -> str:
    """The id of a new draft; with an error, it is refused."""
    assert isinstance(api.stores, MemoryStore)
    written = document(**changes)
    draft = api.stores.application.schedule(Caller(api.tenant_id, "app"), uuid4(), written)
    if error is not None:
        (entry,) = await api.shard.plans.list_unplanned(range(256), 9)
        plan = Plan(number=entry.number, draft=draft, error=error)
        await api.shard.plans.plan(await api.own_all(), [plan])
    return str(draft.job_id)


async def test_a_refused_job_is_shown_with_its_error(api: Api) -> None:
    job_id = await scheduled(api, "/schedule: no", name="bad", schedule="99 * * * *")
    answer = await api.get(f"/jobs/{job_id}")
    assert answer.status == 200
    assert answer.headers["ETag"] == '"2"'
    shown = answer.body
    assert (shown["state"], shown["error"]) == ("refused", "/schedule: no")
    assert (shown["name"], shown["schedule"]) == ("bad", "99 * * * *")
    assert shown["next_run_at"] is None
    listed = (await api.get("/jobs?state=refused")).body["items"]
    assert [job["job_id"] for job in listed] == [job_id]
    assert (await api.get("/jobs?state=active")).body["items"] == []


async def test_an_unplanned_job_is_shown_as_it_was_written(api: Api) -> None:
    job_id = await scheduled(api, payload={"a": 1}, retry={"max_attempts": 9}, tags={"team": "a"})
    shown = (await api.get(f"/jobs/{job_id}")).body
    assert (shown["state"], shown["error"]) == ("unplanned", None)
    assert (shown["payload"], shown["tags"]) == ({"a": 1}, {"team": "a"})
    assert shown["retry"]["max_attempts"] == 9
    assert (await api.get(f"/jobs/{job_id}/runs")).body["items"] == []


@pytest.mark.parametrize("url", ["https://me:s3cret@example.org/", "me:s3cret@example.org"])
async def test_credentials_in_a_draft_are_masked(api: Api, url: str) -> None:
    target = {"url": url, "headers": {"authorization": "s3cret", "x-team": "a"}}
    job_id = await scheduled(api, target=target)
    draft = await api.stores.jobs.read(Caller(api.tenant_id, "app"), UUID(job_id))
    assert isinstance(draft, Draft)
    with pytest.raises(InvalidDocument) as refused:
        judge_draft(draft, NO_EXCEPTIONS)
    assert "s3cret" not in str(refused.value)
    shown = (await api.get(f"/jobs/{job_id}")).body
    assert shown["target"]["headers"] == {"authorization": "***", "x-team": "a"}
    assert "s3cret" not in str(shown)


async def test_unreadable_fields_of_a_draft_are_omitted(api: Api) -> None:
    nonsense: dict[str, Any] = {"retry": 5, "timeout": ["a"], "tags": {"a": 1}, "priority": "high"}
    job_id = await scheduled(api, "all wrong", **nonsense)
    shown = (await api.get(f"/jobs/{job_id}")).body
    assert (shown["error"], shown["timeout"], shown["tags"]) == ("all wrong", "2m", {})
    assert (await api.get("/jobs")).status == 200


async def test_a_deeply_nested_draft_is_still_listed(api: Api) -> None:
    """The database, and some interpreters, parse JSON nested thousands of levels deep."""
    job_id = await scheduled(api, "nested too deep", name="deep")
    draft = await api.stores.jobs.read(Caller(api.tenant_id, "app"), UUID(job_id))
    assert isinstance(draft, Draft)
    depth = 100_000
    written = b'{"payload":' + b"[" * depth + b"]" * depth + b"}"
    shown = draft_answer(replace(draft, document=Raw(written)))
    assert (shown.name, shown.error, bytes(shown.payload)) == ("deep", "nested too deep", b"null")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "", {"timeout": "1s"}),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("POST", "/trigger", None),
        ("GET", "/next", None),
        ("GET", "/explain?at=2030-01-01T00:00:00Z", None),
    ],
)
async def test_a_draft_can_only_be_deleted(api: Api, method: str, path: str, body: object) -> None:
    job_id = await scheduled(api, "/schedule: no such day")
    answer = await api.call(method, f"/jobs/{job_id}{path}", body)
    assert answer.status == 409
    assert answer.body["type"] == "urn:wheelsched:problem:job-not-planned"
    assert "no such day" in answer.body["detail"]
    assert (await api.call("DELETE", f"/jobs/{job_id}")).status == 200
    assert (await api.get(f"/jobs/{job_id}")).status == 404


async def test_its_name_is_taken_until_it_is_deleted(api: Api) -> None:
    job_id = await scheduled(api, "wrong", name="one")
    assert (await api.post("/jobs", document(name="one"))).status == 409
    await api.call("DELETE", f"/jobs/{job_id}")
    assert (await api.post("/jobs", document(name="one"))).status == 201


async def test_a_draft_is_validated_as_of_its_creation(api: Api) -> None:
    job_id = await scheduled(api, schedule="2030-01-01T00:00:00Z")
    assert isinstance(api.stores, MemoryStore)
    draft = await api.stores.jobs.read(Caller(api.tenant_id, "app"), UUID(job_id))
    assert isinstance(draft, Draft)
    assert judge_draft(draft, NO_EXCEPTIONS).due_us == 1_893_456_000_000_000
    later = replace(draft, created_at_us=1_893_456_061_000_000)
    with pytest.raises(InvalidDocument, match="longer ago than the grace"):
        judge_draft(later, NO_EXCEPTIONS)


async def test_a_time_from_now_counts_from_when_the_draft_was_written(api: Api) -> None:
    assert isinstance(api.stores, MemoryStore)
    written = document(schedule="in 5m")
    draft = api.stores.application.schedule(Caller(api.tenant_id, "app"), uuid4(), written)
    found = judge_draft(draft, NO_EXCEPTIONS)
    assert found.due_us is not None
    assert 0 <= found.due_us - draft.created_at_us - 300_000_000 < 1_000
    assert bytes(found.job.schedule) == f'"{found.job.spec.expression[:23]}Z"'.encode()
