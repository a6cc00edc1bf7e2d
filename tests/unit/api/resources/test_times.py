"""Arrival times of requests follow the database clock, even after a step."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.api import Api, document, serve

from wheelsched.clock import DatabaseClock
from wheelsched.daemon.clock_sync import FRESH_NS, ClockSync
from wheelsched.errors import StoreUnavailable
from wheelsched.testing import MemoryStore, VirtualClock
from wheelsched.wire.callback import read_instant

SECOND = 1_000_000
KEY = {"Idempotency-Key": "order-4711"}
STAR = "* * * * * *"  # due in every second


class Database:
    """A database whose clock can be stepped, and an API that follows it."""

    api: Api

    def __init__(self) -> None:
        self.now_us = time.time_ns() // 1_000
        self.machine = VirtualClock()
        self.store = MemoryStore(lambda: self.now_us)
        self.readings = 0
        self.is_away = False

    async def set_back(self, by_us: int = 30 * SECOND) -> None:
        self.now_us -= by_us
        await self.machine.advance(FRESH_NS)

    async def timer_us(self) -> int:
        """The next run of the only job."""
        ((_, due_us, _),) = await self.store.timers.load(range(256), self.now_us + 3_600 * SECOND)
        return due_us


@pytest.fixture
async def database(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    database = Database()
    leases = database.store.leases
    read_clock = leases.read_clock

    async def read(*arguments: Any) -> Any:
        database.readings += 1
        if database.is_away:
            raise StoreUnavailable
        return await read_clock(*arguments)

    clock = DatabaseClock(database.machine, await leases.read_clock(database.machine.now_ns))
    monkeypatch.setattr(leases, "read_clock", read)
    readings = ClockSync(database.machine, clock, leases)
    store = database.store
    async with serve(store, store, now_us=clock.now_us, refresh_clock=readings.refresh) as api:
        database.api = api
        yield database


async def test_a_job_created_after_a_step_back_uses_the_new_time(database: Database) -> None:
    await database.set_back()
    made = await database.api.create(schedule=STAR)
    assert read_instant(made["created_at"]) == database.now_us
    assert 0 <= await database.timer_us() - database.now_us <= SECOND


async def test_a_job_that_is_resumed_after_a_step_back_loses_nothing(database: Database) -> None:
    job = await database.api.create(schedule=STAR)
    path = f"/jobs/{job['job_id']}"
    await database.api.post(f"{path}/pause")
    await database.set_back()
    await database.api.post(f"{path}/resume")
    assert 0 <= await database.timer_us() - database.now_us <= SECOND


async def test_a_trigger_after_a_step_back_fires_at_once(database: Database) -> None:
    job = await database.api.create()
    await database.set_back()
    await database.api.post(f"/jobs/{job['job_id']}/trigger")
    (run,) = (await database.api.get(f"/jobs/{job['job_id']}/runs")).body["items"]
    assert read_instant(run["due_at"]) <= database.now_us + SECOND


async def test_a_request_with_a_key_uses_the_store_arrival_time(database: Database) -> None:
    await database.set_back()
    made = await database.api.post("/jobs", document(), headers=KEY)
    assert read_instant(made.body["created_at"]) == database.now_us
    assert database.readings == 0


async def test_only_writes_refresh_the_clock(
    database: Database,
) -> None:
    await database.api.get("/jobs")
    await database.api.post("/preview", document())
    assert database.readings == 0
    job = await database.api.create()
    await database.api.post(f"/jobs/{job['job_id']}/pause")
    assert database.readings == 1
    database.now_us += FRESH_NS // 1_000
    await database.machine.advance(FRESH_NS)
    await database.api.call("DELETE", f"/jobs/{job['job_id']}")
    assert database.readings == 2


async def test_without_a_clock_reading_the_api_is_unavailable(
    database: Database,
) -> None:
    database.is_away = True
    refused = await database.api.post("/jobs", document())
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert refused.body["type"] == "urn:wheelsched:problem:store-unavailable"
    assert (await database.api.get("/jobs")).body["items"] == []
    database.is_away = False
    assert (await database.api.post("/jobs", document())).status == 201
