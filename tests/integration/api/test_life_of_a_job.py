"""A job from its registration to its end, over REST and on Postgres."""

from typing import Any

from tests.api import Api, document
from tests.unit.api.resources.test_runs import armed

from wheelsched.core.model import RunState, format_run_id


async def test_what_was_written_comes_back(api: Api) -> None:
    body = (
        b'{"name": "a <b>", "schedule": {"cron" : "0 9 * * 1"}, "tags": {"team": "a"},'
        b' "target": {"url": "https://example.org/", "headers": {"x-team": "a"}, "batch": 5},'
        b' "payload": {"x" : 1.50, "y": "\xc3\xa4\xe2\x82\xac"}}'
    )
    made = await api.post("/jobs", body)
    assert made.status == 201, made.body
    read = await api.get(f"/jobs/{made.body['job_id']}")
    assert read.body == made.body
    job = await api.job(made.body["job_id"])
    assert bytes(job.payload) == b'{"x" : 1.50, "y": "\xc3\xa4\xe2\x82\xac"}'
    assert (await api.get("/jobs?tag=team:a")).body["items"] == [read.body]
    assert (await api.get("/jobs?tag=team:b")).body["items"] == []


async def test_edit_pause_resume_delete(api: Api) -> None:
    made = await api.create()
    path = f"/jobs/{made['job_id']}"
    edited = await api.call("PATCH", path, {"priority": 7}, headers={"If-Match": '"1"'})
    assert (edited.status, edited.body["version"], edited.body["priority"]) == (200, 2, 7)
    stale = await api.call("PATCH", path, {"priority": 8}, headers={"If-Match": '"1"'})
    assert stale.status == 412
    assert (await api.post(f"{path}/pause")).body["state"] == "paused"
    assert (await api.post(f"{path}/resume")).body["state"] == "active"
    assert (await api.call("DELETE", path)).status == 200
    assert (await api.get(path)).status == 404


async def test_a_trigger_uses_up_no_scheduled_run(api: Api) -> None:
    made = await api.create()
    before = await api.get(f"/jobs/{made['job_id']}/next?count=1")
    run_id = (await api.post(f"/jobs/{made['job_id']}/trigger")).body["run_ids"][0]
    assert (await api.get(f"/runs/{run_id}")).body["trigger"] == "manual"
    assert (await api.get(f"/jobs/{made['job_id']}/next?count=1")).body == before.body


async def test_a_backfill_of_ten_thousand(api: Api) -> None:
    made = await api.create(schedule="* * * * *", timezone="UTC")
    asked: dict[str, Any] = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-07T22:40:00Z"}
    filled = await api.post(f"/jobs/{made['job_id']}/backfill", asked)
    assert (filled.status, filled.body["count"]) == (202, 10_000)


async def test_a_worker_reports_by_rest(api: Api) -> None:
    key = await armed(api, state=RunState.RUNNING)
    run, token = f"/runs/{format_run_id(key)}", (await api.run(key)).token
    assert token is not None
    assert (await api.post(f"{run}/heartbeat", {"token": token})).status == 204
    assert (await api.post(f"{run}/complete", {"token": token - 1})).status == 409
    failed = await api.post(f"{run}/fail", {"token": token, "error": "no ink"})
    assert (failed.status, failed.body["state"], failed.body["error"]) == (
        200,
        "retrying",
        "no ink",
    )
    assert [attempt["error"] for attempt in failed.body["attempts"]] == ["no ink"]
    late = await api.post(f"{run}/complete", {"token": token})
    assert (late.status, late.body["state"]) == (200, "succeeded")


async def test_the_dead_are_redriven(api: Api) -> None:
    key = await armed(api, state=RunState.DEAD)
    redriven = await api.post("/dead/redrive", {"job_id": str(key.job_id), "rate": 10})
    assert redriven.body["run_ids"] == [format_run_id(key)]
    assert (await api.run(key)).state is RunState.RETRYING


async def test_bulk_with_what_is_wrong_in_between(api: Api) -> None:
    documents = [document(name=f"job-{number % 2_400}") for number in range(2_500)]
    documents[7] = document(name="bad", timezone="Mars/Base")
    answer = await api.post("/jobs/bulk", documents)
    assert (answer.body["registered"], answer.body["refused"]) == (2_400, 100)
    assert answer.body["items"][7]["problem"]["errors"][0]["pointer"] == "/timezone"
    assert answer.body["items"][-1]["problem"]["status"] == 409


async def test_operators_make_tenants_and_tokens_that_work_and_can_be_revoked(api: Api) -> None:
    tenant = await api.post("/tenants", {"name": "new", "job_quota": 1})
    token = await api.post("/tokens", {"name": "ci", "tenant_id": tenant.body["tenant_id"]})
    text = token.body["token"]
    assert (await api.post("/jobs", document(), token=text)).status == 201
    over = await api.post("/jobs", document(name="second"), token=text)
    assert (over.status, over.body["type"]) == (403, "urn:wheelsched:problem:quota-exceeded")
    assert (await api.call("DELETE", f"/tokens/{token.body['token_id']}")).status == 200
    await api.clock.advance(api.config.token_cache_ms * 1_000_000)
    assert (await api.get("/jobs", token=text)).status == 401


async def test_shards_and_probes(api: Api) -> None:
    await api.own_all()
    shards = await api.get("/shards")
    assert [len(shard["partitions"]) for shard in shards.body["items"]] == [256]
    assert (await api.get("/readyz")).status == 200
