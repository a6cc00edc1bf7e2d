import pytest
from tests.api import Api

from wheelsched.core.model import RunKey, RunState, format_run_id

HOUR_US = 3_600_000_000


async def armed(api: Api, *, state: RunState | None = None, **job: object) -> RunKey:
    """A run that was armed and is now in another state."""
    made = await api.create(**({"schedule": "0 * * * *", "timezone": "UTC"} | job))
    horizon = await api.shard.timers.load(range(256), api.now_us + 2 * HOUR_US)
    due_us = next(due for job_id, due, _ in horizon if str(job_id) == made["job_id"])
    key = await api.arm(await api.own_all(), made["job_id"], due_us, due_us + HOUR_US)
    if state is RunState.RUNNING:
        await api.settle(key, state, http_status=202)
    elif state is not None:
        await api.settle(key, state, error="boom", http_status=500)
    return key


async def test_a_run_has_every_attempt(api: Api) -> None:
    key = await armed(api)
    await api.settle(
        key, RunState.RETRYING, error="no paper", http_status=503, retry_at_us=api.now_us
    )
    read = await api.get(f"/runs/{format_run_id(key)}")
    assert read.status == 200
    assert (read.body["state"], read.body["attempt"]) == ("retrying", 1)
    assert read.body["lateness_ms"] == 2.0
    (attempt,) = read.body["attempts"]
    assert (attempt["attempt"], attempt["http_status"], attempt["error"]) == (1, 503, "no paper")


async def test_the_last_attempt_is_among_the_attempts(api: Api) -> None:
    key = await armed(api, state=RunState.DEAD)
    read = await api.get(f"/runs/{format_run_id(key)}")
    (attempt,) = read.body["attempts"]
    assert (attempt["attempt"], attempt["error"], attempt["token"]) == (
        *(1, "boom", read.body["token"]),
    )


async def test_runs_are_listed_in_pages(api: Api) -> None:
    job = await api.create()
    path = f"/jobs/{job['job_id']}/runs"
    assert (await api.get(path)).body == {"items": [], "next_cursor": None}
    made = [(await api.post(f"/jobs/{job['job_id']}/trigger")).body["run_ids"][0] for _ in range(3)]
    first = await api.get(f"{path}?limit=2")
    rest = await api.get(f"{path}?limit=2&cursor={first.body['next_cursor']}")
    listed = [run["run_id"] for run in first.body["items"] + rest.body["items"]]
    assert listed == made[::-1]
    assert first.body["items"][0]["attempts"] is None


async def test_a_worker_completes_its_run(api: Api) -> None:
    key = await armed(api, state=RunState.RUNNING)
    run_id, token = format_run_id(key), (await api.run(key)).token
    assert (await api.post(f"/runs/{run_id}/heartbeat", {"token": token})).status == 204
    done = await api.post(f"/runs/{run_id}/complete", {"token": token})
    assert (done.status, done.body["state"]) == (200, "succeeded")
    again = await api.post(f"/runs/{run_id}/complete", {"token": token})
    assert (again.status, again.body["state"]) == (200, "succeeded")


@pytest.mark.parametrize("state", [RunState.RUNNING, None])
@pytest.mark.parametrize("scope", ["work", "write"])
async def test_a_worker_reports_with_a_token_of_either_scope(
    api: Api, scope: str, state: RunState | None
) -> None:
    await api.add_token("wst_worker", api.tenant_id, scope)
    await api.add_token("wst_reader", api.tenant_id, "read")
    for verb, name in (("complete", "one"), ("fail", "two")):
        key = await armed(api, state=state, name=name)
        path, body = f"/runs/{format_run_id(key)}", {"token": (await api.run(key)).token}
        for call in ("heartbeat", verb):
            assert (await api.post(f"{path}/{call}", body, token="wst_reader")).status == 403
        beat = await api.post(f"{path}/heartbeat", body, token="wst_worker")
        assert beat.status == 204
        assert (await api.post(f"{path}/{verb}", body, token="wst_worker")).status == 200
        is_allowed = scope == "write"
        cancelled = await api.post(f"{path}/cancel", token="wst_worker")
        assert (cancelled.status != 403) is is_allowed


async def test_a_failed_run_is_retried_until_it_is_dead(api: Api) -> None:
    key = await armed(api, state=RunState.RUNNING, retry={"max_attempts": 2})
    token = (await api.run(key)).token
    failed = await api.post(f"/runs/{format_run_id(key)}/fail", {"token": token, "error": "no ink"})
    assert (failed.status, failed.body["state"]) == (200, "retrying")
    assert failed.body["error"] == "no ink"
    assert failed.body["retry_at"] is not None


@pytest.mark.parametrize(
    ("body", "attempts"), [({"retry": False, "error": "never"}, 4), ({"error": "last"}, 1)]
)
async def test_a_failure_without_retry_is_final(
    api: Api, body: dict[str, object], attempts: int
) -> None:
    key = await armed(api, state=RunState.RUNNING, retry={"max_attempts": attempts})
    token = (await api.run(key)).token
    failed = await api.post(f"/runs/{format_run_id(key)}/fail", {"token": token} | body)
    assert (failed.body["state"], failed.body["error"]) == ("dead", body["error"])


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail"])
async def test_a_stale_token_changes_nothing(api: Api, verb: str) -> None:
    key = await armed(api, state=RunState.RUNNING)
    token = (await api.run(key)).token
    assert token is not None
    stale = await api.post(f"/runs/{format_run_id(key)}/{verb}", {"token": token - 1})
    assert (stale.status, stale.body["type"]) == (409, "urn:wheelsched:problem:token-stale")
    assert (await api.run(key)).state is RunState.RUNNING


@pytest.mark.parametrize("verb", ["complete", "fail"])
async def test_a_run_that_was_not_sent_has_no_token(api: Api, verb: str) -> None:
    job = await api.create()
    run_id = (await api.post(f"/jobs/{job['job_id']}/trigger")).body["run_ids"][0]
    assert (await api.post(f"/runs/{run_id}/{verb}", {"token": 1})).status == 409


@pytest.mark.parametrize(
    ("token", "pointer"), [(None, "/token"), ("1", "/token"), (-1, "/token"), (2**63, "/token")]
)
async def test_invalid_tokens_are_rejected(api: Api, token: object, pointer: str) -> None:
    key = await armed(api, state=RunState.RUNNING)
    refused = await api.post(f"/runs/{format_run_id(key)}/complete", {"token": token})
    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_a_run_is_cancelled_and_tried_again(api: Api) -> None:
    job = await api.create()
    run_id = (await api.post(f"/jobs/{job['job_id']}/trigger")).body["run_ids"][0]
    cancelled = await api.post(f"/runs/{run_id}/cancel")
    assert cancelled.body == {"run_id": run_id, "in_time": True}
    retried = await api.post(f"/runs/{run_id}/retry")
    assert (retried.status, retried.body["state"]) == (202, "retrying")
    assert (await api.post(f"/runs/{run_id}/retry")).status == 409


async def test_a_run_that_has_ended_is_not_cancelled(api: Api) -> None:
    key = await armed(api, state=RunState.DEAD)
    assert (await api.post(f"/runs/{format_run_id(key)}/cancel")).status == 409


@pytest.mark.parametrize("run_id", ["x", "0" * 32 + "-5", "0" * 32 + "-" + "9" * 19, "%00-1"])
async def test_an_invalid_run_id_is_not_found(api: Api, run_id: str) -> None:
    assert (await api.get(f"/runs/{run_id}")).status == 404
    assert (await api.post(f"/runs/{run_id}/cancel")).status == 404
    assert (await api.post(f"/runs/{run_id}/retry")).status == 404


async def test_the_dead_are_listed_and_redriven(api: Api) -> None:
    keys = [
        await armed(api, state=RunState.DEAD, name=f"job-{number}", schedule=f"{number} * * * *")
        for number in range(3)
    ]
    keys.sort(key=lambda key: (key.due_us, key.job_id.bytes))
    first = await api.get("/dead?limit=2")
    rest = await api.get(f"/dead?limit=2&cursor={first.body['next_cursor']}")
    dead = first.body["items"] + rest.body["items"]
    assert [run["run_id"] for run in dead] == [format_run_id(key) for key in keys]
    assert {run["error"] for run in dead} == {"boom"}

    one = await api.post("/dead/redrive", {"job_id": str(keys[1].job_id)})
    assert one.body["run_ids"] == [format_run_id(keys[1])]
    others = await api.post("/dead/redrive", {"limit": 5, "rate": 1})
    assert others.body["run_ids"] == [format_run_id(keys[0]), format_run_id(keys[2])]
    retry_at_us = [(await api.run(key)).retry_at_us or 0 for key in (keys[0], keys[2])]
    assert 900_000 < retry_at_us[1] - retry_at_us[0] < 60_000_000
    assert (await api.post("/dead/redrive")).body["count"] == 0


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({"limit": 0}, "/limit"), ({"limit": 10_001}, "/limit"), ({"rate": 0}, "/rate")],
)
async def test_invalid_redrives_are_rejected(api: Api, body: dict[str, int], pointer: str) -> None:
    refused = await api.post("/dead/redrive", body)
    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_a_run_of_a_deleted_job_cannot_be_retried(api: Api) -> None:
    key = await armed(api, state=RunState.DEAD)
    await api.call("DELETE", f"/jobs/{key.job_id}")
    refused = await api.post(f"/runs/{format_run_id(key)}/retry")
    assert refused.status == 409
    assert "its job was deleted" in refused.body["detail"]
