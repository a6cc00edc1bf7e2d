"""A run that a circuit breaker holds back says so."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from tests.api import Api, machine_us

from wheelsched.core.model import BreakerKind, RunKey, format_run_id
from wheelsched.ports import Lease, OpenBreaker

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
ORIGIN = "https://example.org:443"
URL = "https://example.org/hooks/report"


async def armed(api: Api, schedule: str = "* * * * * *") -> tuple[Lease, RunKey]:
    """A run that is armed for the next due time, and the shard that did it."""
    made = await api.create(schedule=schedule, timezone="UTC")
    horizon = await api.shard.timers.load(range(256), api.now_us + 400 * 24 * HOUR_US)
    due_us = next(due for job_id, due, _ in horizon if str(job_id) == made["job_id"])
    lease = await api.own_all()
    return lease, await api.arm(lease, made["job_id"], due_us, due_us + HOUR_US)


async def come_due(key: RunKey) -> None:
    """Waits for the time of a run: for up to a second."""
    while machine_us() < key.due_us:
        await asyncio.sleep(0.05)


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
        (BreakerKind.ORIGIN, ORIGIN, f"the circuit breaker of {ORIGIN} is open since 2"),
        (BreakerKind.TARGET, URL, f"the circuit breaker of {URL} is open since 2"),
        (BreakerKind.JOB, ORIGIN, "the circuit breaker of this job is open since 2"),
    ],
)
async def test_a_run_says_which_breaker_it_waits_for(
    api: Api, kind: BreakerKind, target: str, words: str
) -> None:
    lease, key = await armed(api)
    job_id = key.job_id if kind is BreakerKind.JOB else None
    shown = breaker(key, api.tenant_id, kind=kind, target=target, job_id=job_id)
    await api.shard.leases.tell(lease, [shown])
    await come_due(key)
    run = (await api.get(f"/runs/{format_run_id(key)}")).body
    assert run["waiting_for"].startswith(words)
    assert run["waiting_for"].endswith("last error: no connection to the worker")
    due_at = run["due_at"]
    explained = await api.get(f"/jobs/{key.job_id}/explain", params={"at": due_at})
    assert explained.body["verdict"] == "waiting"
    assert words in explained.body["detail"]


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
async def test_a_breaker_of_something_else_is_no_reason(
    api: Api, changes: dict[str, object]
) -> None:
    lease, key = await armed(api)
    await api.shard.leases.tell(lease, [breaker(key, api.tenant_id, **changes)])
    await come_due(key)
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
