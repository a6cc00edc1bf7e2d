"""Two tenants on one API and one Postgres: neither reads, changes or guesses the other's."""

import asyncio

import pytest
from tests.api import Api, document
from tests.unit.api.resources.test_runs import armed

from wheelsched.core.model import RunState, format_run_id

OTHER = "wst_other"


@pytest.fixture
async def both(api: Api) -> Api:
    other_id = await api.add_tenant("other")
    await api.add_token(OTHER, other_id, "read", "write")
    return api


async def test_a_tenant_sees_its_own_jobs_runs_and_dead(both: Api) -> None:
    key = await armed(both, state=RunState.DEAD)
    await both.post("/jobs", document(), token=OTHER)
    mine, theirs = await both.get("/jobs"), await both.get("/jobs", token=OTHER)
    assert [len(jobs.body["items"]) for jobs in (mine, theirs)] == [1, 1]
    assert mine.body["items"][0]["job_id"] != theirs.body["items"][0]["job_id"]
    assert len((await both.get("/dead")).body["items"]) == 1
    assert (await both.get("/dead", token=OTHER)).body["items"] == []
    assert (await both.post("/dead/redrive", token=OTHER)).body["count"] == 0
    assert (await both.get(f"/runs/{format_run_id(key)}")).body["state"] == "dead"


async def test_whatever_names_another_tenants_job_or_run_is_not_found(both: Api) -> None:
    key = await armed(both, state=RunState.RUNNING)
    token = (await both.run(key)).token
    job, run = f"/jobs/{key.job_id}", f"/runs/{format_run_id(key)}"
    for method, path, body in (
        ("GET", job, None),
        ("PATCH", job, {"priority": 1}),
        ("DELETE", job, None),
        ("POST", f"{job}/pause", None),
        ("POST", f"{job}/resume", None),
        ("POST", f"{job}/trigger", None),
        (
            *("POST", f"{job}/backfill"),
            {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"},
        ),
        ("GET", f"{job}/next", None),
        ("GET", f"{job}/runs", None),
        ("GET", f"{job}/explain?at=2026-01-01T00:00:00Z", None),
        ("GET", run, None),
        ("POST", f"{run}/cancel", None),
        ("POST", f"{run}/retry", None),
        ("POST", f"{run}/heartbeat", {"token": token}),
        ("POST", f"{run}/complete", {"token": token}),
        ("POST", f"{run}/fail", {"token": token}),
    ):
        answer = await both.call(method, path, body, token=OTHER)
        assert answer.status == 404, (method, path, answer.body)
    assert (await both.run(key)).state is RunState.RUNNING
    assert (await both.get(job)).body["version"] == 1


async def test_a_cursor_of_another_tenant_is_forged(both: Api) -> None:
    for number in range(2):
        await both.create(name=f"job-{number}")
    cursor = (await both.get("/jobs?limit=1")).body["next_cursor"]
    refused = await both.get(f"/jobs?cursor={cursor}", token=OTHER)
    assert (refused.status, refused.pointers) == (400, ["/cursor"])


async def test_names_and_keys_of_tenants_are_apart(both: Api) -> None:
    key = {"Idempotency-Key": "same"}
    mine = await both.post("/jobs", document(), headers=key)
    theirs = await both.post("/jobs", document(), headers=key, token=OTHER)
    assert (mine.status, theirs.status) == (201, 201)
    assert mine.body["job_id"] != theirs.body["job_id"]


async def test_who_asked_is_in_the_audit(both: Api, database: str, connect: object) -> None:
    job = await both.create()
    await both.post(f"/jobs/{job['job_id']}/pause")
    owner = await connect(database)  # type: ignore[operator]
    rows = await owner.fetch("SELECT actor, verb FROM audit WHERE verb LIKE 'job.%' ORDER BY at")
    assert [tuple(row) for row in rows] == [
        ("token:wst_all", "job.register"),
        ("token:wst_all", "job.pause"),
    ]


async def test_of_many_sendings_of_one_request_one_makes_a_job(both: Api) -> None:
    key = {"Idempotency-Key": "race"}
    answers = await asyncio.gather(*(both.post("/jobs", document(), headers=key) for _ in range(8)))
    assert {answer.status for answer in answers} <= {201, 409}
    made = {answer.body["job_id"] for answer in answers if answer.status == 201}
    assert len(made) == 1
    assert len((await both.get("/jobs")).body["items"]) == 1
