import json
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from tests.api import Api, document

from wheelsched.core.model import Draft, Job
from wheelsched.ports import Caller


async def test_a_registered_job_comes_back_with_every_default(api: Api) -> None:
    made = await api.post("/jobs", document(payload={"report": "weekly"}))
    assert made.status == 201
    assert made.headers["ETag"] == '"1"'
    assert made.headers["Location"] == f"/api/v1/jobs/{made.body['job_id']}"
    assert made.body["state"] == "active"
    assert made.body["next_run_at"] is not None
    assert made.body["misfire"] == {
        "policy": "once",
        "grace": "1m",
        "window": "1h",
        "max_missed": 100,
    }
    assert made.body["target"]["method"] == "POST"
    read = await api.get(f"/jobs/{made.body['job_id']}")
    assert (read.status, read.body) == (200, made.body)


async def test_schedule_and_payload_stay_as_they_were_written(api: Api) -> None:
    body = (
        b'{"name": "a", "schedule": { "every":\t"5m" }, "target": {"url": "https://example.org/"},'
    )
    made = await api.post("/jobs", body + b' "payload": {"x" : 1.50, "y":[ ]} }')
    job = await api.job(made.body["job_id"])
    assert bytes(job.schedule) == b'{ "every":\t"5m" }'
    assert bytes(job.payload) == b'{"x" : 1.50, "y":[ ]}'


async def test_a_returned_job_can_be_sent_as_a_patch(api: Api) -> None:
    made = await api.create(retry={"max_attempts": 7}, tags={"team": "a"}, jitter="30s")
    again = {name: made[name] for name in made if name in (*document(), "retry", "tags", "jitter")}
    copy = await api.post("/jobs", again | {"name": "copy"})
    assert copy.status == 201
    assert copy.body["retry"] == made["retry"]


@pytest.mark.parametrize("schedule", ["in 5m", {"at": " In 5 minutes"}])
async def test_a_time_from_now_is_stored_as_its_instant(api: Api, schedule: Any) -> None:
    made = await api.create(schedule=schedule)
    stored = made["schedule"]["at"] if isinstance(schedule, dict) else made["schedule"]
    assert datetime.fromisoformat(stored) == datetime.fromisoformat(made["next_run_at"])
    renamed = await api.call("PATCH", f"/jobs/{made['job_id']}", {"name": "b"})
    assert renamed.body["next_run_at"] == made["next_run_at"]


async def test_a_time_from_now_in_an_edit_counts_from_the_edit(api: Api) -> None:
    made = await api.create(schedule="in 5m")
    moved = await api.call("PATCH", f"/jobs/{made['job_id']}", {"schedule": "in 10m"})
    again = await api.call("PATCH", f"/jobs/{made['job_id']}", {"schedule": "in 10m"})
    assert moved.body["next_run_at"] > made["next_run_at"]
    assert again.body["next_run_at"] >= moved.body["next_run_at"]
    assert (await api.job(made["job_id"])).spec.kind == "at"


async def test_a_time_from_now_counts_from_the_first_request_with_a_key(api: Api) -> None:
    headers = {"Idempotency-Key": "once"}
    first = await api.post("/jobs", document(schedule="in 5m"), headers=headers)
    again = await api.post("/jobs", document(schedule="in 5m"), headers=headers)
    assert again.body == first.body


async def test_an_invalid_relative_time_is_reported_with_other_problems(api: Api) -> None:
    refused = await api.post("/jobs", document(name=" ", schedule="in a bit"))
    assert set(refused.pointers) == {"/name", "/schedule"}


async def test_a_schedule_that_others_read_differently_is_registered_with_a_warning(
    api: Api,
) -> None:
    made = await api.create(schedule="0 0 12 ? * 2-6")
    assert [warning.split(" here,")[0] for warning in made["warnings"]] == [
        "day of week 2-6 is Tuesday through Saturday"
    ]
    changes = {"schedule": "0 0 12 ? * MON-FRI"}
    edited = await api.call("PATCH", f"/jobs/{made['job_id']}", changes)
    assert edited.body["warnings"] == []


async def test_a_duplicate_name_is_rejected(api: Api) -> None:
    await api.create()
    again = await api.post("/jobs", document())
    assert again.status == 409
    assert again.body["type"] == "urn:wheelsched:problem:job-name-taken"


async def test_all_problems_are_reported_at_once(api: Api) -> None:
    refused = await api.post(
        "/jobs",
        document(
            name=" ",
            schedule="every now and then",
            timezone="Mars/Base",
            target={"url": "ftp://example.org", "headers": {"Host": "x"}, "batch": 0},
            timeout="0s",
            retry={"max_attempts": 1_000_000},
            idempotency_key="same",
            tags={"a": "\u202e"},
        ),
    )
    assert refused.status == 422
    assert refused.headers["Content-Type"].startswith("application/problem+json")
    assert set(refused.pointers) == {
        "/name",
        "/schedule",
        "/timezone",
        "/target/url",
        "/target/headers/Host",
        "/target/batch",
        "/timeout",
        "/retry/max_attempts",
        "/tags/a",
    }


async def test_jobs_are_listed_by_name_in_pages_and_filtered(api: Api) -> None:
    for number in range(5):
        await api.create(name=f"job-{number}", tags={"even": str(number % 2 == 0)})
    first = await api.get("/jobs?limit=3")
    rest = await api.get(f"/jobs?limit=3&cursor={first.body['next_cursor']}")
    names = [job["name"] for job in first.body["items"] + rest.body["items"]]
    assert names == [f"job-{number}" for number in range(5)]
    assert rest.body["next_cursor"] is None
    exact = await api.get("/jobs?limit=5")
    assert exact.body["next_cursor"] is None

    async def listed(query: str) -> list[str]:
        return [job["name"] for job in (await api.get(f"/jobs?{query}")).body["items"]]

    assert await listed("tag=even:True") == ["job-0", "job-2", "job-4"]
    assert await listed("tag=even=True") == ["job-0", "job-2", "job-4"]
    assert await listed("name=job-3") == ["job-3"]
    assert await listed("state=paused") == []


async def test_an_edit_is_a_merge_patch(api: Api) -> None:
    made = await api.create(retry={"max_attempts": 7}, tags={"a": "1", "b": "2"})
    edited = await api.call(
        "PATCH",
        f"/jobs/{made['job_id']}",
        {"name": "renamed", "retry": {"initial": "5s"}, "tags": {"b": None, "c": "3"}},
        headers={"If-Match": '"1"'},
    )
    assert edited.status == 200, edited.body
    assert edited.headers["ETag"] == '"2"'
    assert edited.body["name"] == "renamed"
    assert edited.body["retry"]["max_attempts"] == 7
    assert edited.body["retry"]["initial"] == "5s"
    assert edited.body["tags"] == {"a": "1", "c": "3"}
    assert edited.body["schedule"] == made["schedule"]


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [
        ("payload", {"a": 1, "b": {"c": 2}}, {"b": {"c": None}}),
        ("payload", {"a": 1}, {}),
        ("payload", {"a": 1}, None),
        ("payload", [1], {"a": None}),
        ("schedule", {"cron": "0 9 * * 1", "end": "2100-01-01T00:00:00Z"}, {"every": "5m"}),
        ("schedule", "0 9 * * 1", {"cron": "0 9 * * 1", "end": "2100-01-01T00:00:00Z"}),
    ],
)
async def test_an_edit_replaces_values_whole(
    api: Api, field: str, before: object, after: object
) -> None:
    path = f"/jobs/{(await api.create(timezone='UTC', **{field: before}))['job_id']}"
    edited = await api.call("PATCH", path, {field: after})
    assert edited.status == 200, edited.body
    assert edited.body[field] == after
    assert (await api.get(path)).body[field] == after


async def test_an_edit_of_the_payload_keeps_it_as_it_was_written(api: Api) -> None:
    job_id = (await api.create(payload={"a": 1}))["job_id"]
    await api.call("PATCH", f"/jobs/{job_id}", b'{"payload": {"b" : 1.50, "a": null}}')
    assert bytes((await api.job(job_id)).payload) == b'{"b" : 1.50, "a": null}'


async def test_an_edit_of_other_fields_keeps_the_due_times(api: Api) -> None:
    made = await api.create(schedule="every 7m")
    before = await api.job(made["job_id"])
    await api.call("PATCH", f"/jobs/{made['job_id']}", {"jitter": "10s", "priority": 5})
    after = await api.job(made["job_id"])
    assert after.anchor_us == before.anchor_us
    assert after.spec.jitter_us == 10_000_000
    assert after.version == 2


async def test_an_edit_of_the_schedule_gives_a_finished_job_a_future(api: Api) -> None:
    made = await api.create(schedule="2030-01-01T00:00:00Z")
    await api.post(f"/jobs/{made['job_id']}/pause")
    edited = await api.call("PATCH", f"/jobs/{made['job_id']}", {"schedule": "every 5m"})
    assert edited.body["state"] == "paused"
    resumed = await api.post(f"/jobs/{made['job_id']}/resume")
    assert resumed.body["state"] == "active"
    assert resumed.body["next_run_at"] < "2030"


async def test_a_finished_job_releases_its_name(api: Api) -> None:
    finished = await api.create(name="report", schedule="2030-01-01T00:00:00Z")
    caller = Caller(api.tenant_id, "test")
    await api.stores.jobs.pause(caller, UUID(finished["job_id"]))
    await api.stores.jobs.resume(caller, UUID(finished["job_id"]), None)
    again = await api.create(name="report", schedule="every 5m")
    listed = (await api.get("/jobs?name=report")).body["items"]
    assert [job["job_id"] for job in listed] == [again["job_id"], finished["job_id"]]
    page = (await api.get("/jobs?name=report&limit=1")).body
    rest = (await api.get(f"/jobs?name=report&limit=1&cursor={page['next_cursor']}")).body
    assert [job["job_id"] for job in page["items"] + rest["items"]] == [
        again["job_id"],
        finished["job_id"],
    ]
    path = f"/jobs/{finished['job_id']}"
    refused = await api.call("PATCH", path, {"schedule": "every 7m"})
    assert refused.status == 409
    assert "the tenant already has an unfinished job with this name" in str(refused.body)
    revived = await api.call("PATCH", path, {"schedule": "every 7m", "name": "another"})
    assert (revived.status, revived.body["state"]) == (200, "active")


@pytest.mark.parametrize(
    ("method", "verb", "body"),
    [
        ("PATCH", "", {"priority": 1}),
        ("DELETE", "", None),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
    ],
)
async def test_a_version_mismatch_is_rejected(
    api: Api, method: str, verb: str, body: object
) -> None:
    path = f"/jobs/{(await api.create())['job_id']}{verb}"
    stale = await api.call(method, path, body, headers={"If-Match": '"9"'})
    assert stale.status == 412
    right = await api.call(method, path, body, headers={"If-Match": '"1"'})
    assert right.status == 200


@pytest.mark.parametrize(("method", "verb"), [("DELETE", ""), ("POST", "/pause")])
async def test_a_versioned_change_does_not_apply_to_another_version(
    api: Api, monkeypatch: pytest.MonkeyPatch, method: str, verb: str
) -> None:
    """The job is edited between the version check and the change."""
    job_id = (await api.create())["job_id"]
    read = api.stores.jobs.read

    async def read_and_be_overtaken(*arguments: Any) -> Job | Draft:
        job = await read(*arguments)
        monkeypatch.undo()
        assert (await api.call("PATCH", f"/jobs/{job_id}", {"priority": 1})).status == 200
        return job

    monkeypatch.setattr(api.stores.jobs, "read", read_and_be_overtaken)
    refused = await api.call(method, f"/jobs/{job_id}{verb}", headers={"If-Match": '"1"'})
    assert refused.status == 412
    kept = (await api.get(f"/jobs/{job_id}")).body
    assert (kept["version"], kept["state"]) == (2, "active")
    changed = await api.call(method, f"/jobs/{job_id}{verb}", headers={"If-Match": "*"})
    assert changed.status == 200


async def test_an_invalid_patch_is_rejected_with_a_pointer(api: Api) -> None:
    made = await api.create()
    for patch, pointer in (
        ({"name": None}, "/name"),
        ({"target": {"url": None}}, "/target/url"),
        ({"target": {"verb": "GET"}}, "/target/verb"),
        ({"schedule": {"cron": "* * * *"}}, "/schedule/cron"),
        ({"retry": {"max": "1ms"}}, "/retry/max"),
    ):
        refused = await api.call("PATCH", f"/jobs/{made['job_id']}", patch)
        assert (refused.status, refused.pointers) == (422, [pointer]), patch
    assert (await api.call("PATCH", f"/jobs/{made['job_id']}", [1])).status == 422


async def test_a_deleted_job_is_gone(api: Api) -> None:
    made = await api.create()
    assert (await api.call("DELETE", f"/jobs/{made['job_id']}")).status == 200
    assert (await api.get(f"/jobs/{made['job_id']}")).status == 404
    assert (await api.call("DELETE", f"/jobs/{made['job_id']}")).status == 404


@pytest.mark.parametrize(
    "job_id", ["018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f", "no-id", "%00", "..%2f"]
)
async def test_an_invalid_job_id_is_not_found(api: Api, job_id: str) -> None:
    assert (await api.get(f"/jobs/{job_id}")).status == 404


async def test_markup_is_text_like_any_other(api: Api) -> None:
    made = await api.create(name="<script>alert(1)</script>")
    read = await api.get(f"/jobs/{made['job_id']}")
    assert read.body["name"] == "<script>alert(1)</script>"
    assert read.headers["Content-Type"].startswith("application/json")
    assert read.headers["X-Content-Type-Options"] == "nosniff"
    assert json.dumps(read.body)
