"""A run that a circuit breaker holds back says so."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from tests.api import Api, machine_us, serve

from wheelsched.core.model import BreakerKind, RunKey, format_run_id
from wheelsched.ports import Lease, OpenBreaker
from wheelsched.testing import MemoryStore

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
ORIGIN = "https://example.org:443"
URL = "https://example.org/hooks/report"


async def armed(api: Api, schedule: str = "* * * * * *", **fields: object) -> tuple[Lease, RunKey]:
    """A run armed for the next due time, and its shard."""
    made = await api.create(schedule=schedule, timezone="UTC", **fields)
    horizon = await api.shard.timers.load(range(256), api.now_us + 400 * 24 * HOUR_US)
    due_us = next(due for job_id, due, _ in horizon if str(job_id) == made["job_id"])
    lease = await api.own_all()
    return lease, await api.arm(lease, made["job_id"], due_us, due_us + HOUR_US)


class Time:
    """The time of the API and of its store, which passes when a test says so."""

    def __init__(self) -> None:
        self.now_us = machine_us()

    def come_due(self, key: RunKey) -> None:
        self.now_us = max(self.now_us, key.due_us)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def api(time: Time) -> AsyncIterator[Api]:
    store = MemoryStore(lambda: time.now_us)
    async with serve(store, store, now_us=lambda: time.now_us) as served:
        yield served


def breaker(key: RunKey, tenant_id: UUID, /, **changes: Any) -> OpenBreaker:
    shown = OpenBreaker(
        kind=BreakerKind.ORIGIN,
        tenant_id=tenant_id,
        target=ORIGIN,
        opened_at_us=key.due_us,
        next_probe_at_us=key.due_us + SECOND_US,
        error="no connection to the worker",
    )
    return replace(shown, **changes)


@pytest.mark.parametrize(
    ("kind", "target", "words"),
    [
        (BreakerKind.ORIGIN, ORIGIN, f"the circuit breaker of {ORIGIN}, open since 2"),
        (BreakerKind.TARGET, URL, f"the circuit breaker of {URL}, open since 2"),
        (BreakerKind.JOB, ORIGIN, "the circuit breaker of this job, open since 2"),
    ],
)
async def test_a_run_says_which_breaker_it_waits_for(
    api: Api, time: Time, kind: BreakerKind, target: str, words: str
) -> None:
    lease, key = await armed(api)
    job_id = key.job_id if kind is BreakerKind.JOB else None
    shown = breaker(key, api.tenant_id, kind=kind, target=target, job_id=job_id)
    await api.shard.leases.tell(lease, [shown])
    time.come_due(key)
    run = (await api.get(f"/runs/{format_run_id(key)}")).body
    assert run["waiting_for"].startswith(words)
    assert run["waiting_for"].endswith("last error: no connection to the worker")
    due_at = run["due_at"]
    explained = await api.get(f"/jobs/{key.job_id}/explain", params={"at": due_at})
    assert explained.body["verdict"] == "waiting"
    assert words in explained.body["detail"]


async def test_a_run_of_a_queue_waits_for_a_worker(api: Api, time: Time) -> None:
    _, key = await armed(api, target={"queue": "billing"})
    time.come_due(key)
    run = (await api.get(f"/runs/{format_run_id(key)}")).body
    assert run["waiting_for"].startswith("a worker of the queue billing")
    explained = await api.get(f"/jobs/{key.job_id}/explain", params={"at": run["due_at"]})
    assert "a worker of the queue billing" in explained.body["detail"]


async def test_a_run_that_is_not_due_waits_for_nothing(api: Api) -> None:
    lease, key = await armed(api, "0 0 1 1 *")
    await api.shard.leases.tell(lease, [breaker(key, api.tenant_id)])
    assert (await api.get(f"/runs/{format_run_id(key)}")).body["waiting_for"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant_id": uuid4()},
        {"target": "https://other.example:443"},
        {"kind": BreakerKind.JOB, "job_id": uuid4()},
    ],
)
async def test_an_unrelated_breaker_is_not_reported(
    api: Api, time: Time, changes: dict[str, object]
) -> None:
    lease, key = await armed(api)
    await api.shard.leases.tell(lease, [breaker(key, api.tenant_id, **changes)])
    time.come_due(key)
    assert (await api.get(f"/runs/{format_run_id(key)}")).body["waiting_for"] is None


async def test_operators_see_all_open_breakers_and_others_their_own(api: Api) -> None:
    lease, key = await armed(api)
    own, other = breaker(key, api.tenant_id), breaker(key, uuid4(), target="https://b.example:443")
    await api.shard.leases.tell(lease, [own, other])
    await api.add_token("wst_reader", api.tenant_id, "read")
    (shard,) = (await api.get("/shards")).body["items"]
    assert [one["target"] for one in shard["breakers"]] == [own.target, other.target]
    assert shard["breakers"][0]["kind"] == "origin"
    assert shard["breakers"][0]["error"] == "no connection to the worker"
    (shard,) = (await api.get("/shards", token="wst_reader")).body["items"]
    assert [one["target"] for one in shard["breakers"]] == [own.target]
