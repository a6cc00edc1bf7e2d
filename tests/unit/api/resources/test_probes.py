from typing import NoReturn

import pytest
from tests.api import Api, document, machine_us, serve

from wheelsched.errors import StoreUnavailable
from wheelsched.testing import MemoryStore


async def test_probes_need_no_token(api: Api) -> None:
    assert (await api.get("/healthz", token=None)).body == {"state": "healthy"}
    assert (await api.get("/readyz", token=None)).body == {"state": "ready"}
    metrics = await api.get("/metrics", token=None)
    assert (metrics.status, metrics.body) == (200, "wheelsched_up 1\n")


async def test_without_a_database_it_is_alive_but_not_ready(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> NoReturn:
        raise StoreUnavailable

    monkeypatch.setattr(api.stores.leases, "read_clock", fail)
    answer = await api.get("/readyz")
    assert (answer.status, answer.body["state"]) == (503, "unavailable")
    assert "the database" in answer.body["detail"]
    assert (await api.get("/healthz")).status == 200


async def test_it_is_not_ready_while_due_timers_are_unarmed() -> None:
    """The reading is cached for a few seconds."""
    now_us = machine_us()
    store = MemoryStore(lambda: now_us)
    async with serve(store, store, now_us=lambda: now_us) as api:
        await api.create(schedule="every 1m")
        assert (await api.get("/readyz")).status == 200
        now_us += 120_000_000
        assert (await api.get("/readyz")).status == 200
        await api.clock.advance(5_000_000_000)
        late = await api.get("/readyz", token=None)
        assert (late.status, late.body["state"]) == (503, "late")
        assert late.body["detail"] == "the oldest unarmed timer was due 60 s ago"


async def test_every_answer_has_a_request_id(api: Api) -> None:
    given = await api.get("/healthz", headers={"X-Request-Id": "abc-1"})
    assert given.headers["X-Request-Id"] == "abc-1"
    made = await api.get("/jobs/x", headers={"X-Request-Id": "no id \u00e4"})
    assert made.body["request_id"] == made.headers["X-Request-Id"] != "no id"


async def test_an_internal_error_reveals_no_details(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(api.stores.jobs, "list_jobs", fail)
    broken = await api.get("/jobs")
    assert (broken.status, broken.body["title"]) == (500, "Internal Server Error")
    assert "swordfish" not in str(broken.body)


async def test_requests_are_counted(api: Api) -> None:
    await api.create()
    await api.post("/jobs/bulk", [document(name="a"), document(name="b"), document(name="b")])
    await api.get("/jobs/x")
    await api.get("/nowhere")
    await api.get("/healthz")
    assert api.vitals.answered == {
        ("post_jobs", 201): 1,
        ("post_jobs_bulk", 200): 1,
        ("get_jobs_job_id", 404): 1,
        ("unknown", 404): 1,
        ("healthz", 200): 1,
    }
    assert api.vitals.registered == 3
    assert api.vitals.in_flight == 0
    assert api.vitals.durations["post_jobs"].count == 1
