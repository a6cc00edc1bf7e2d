"""Stopping: running requests finish, and no new ones start."""

import asyncio
import time
from itertools import count
from typing import Any

import pytest
from aiohttp import ClientConnectorError, ClientError, ClientSession
from tests.api import Api, document, serve

from wheelsched.ports import Caller, JobFilter, Token
from wheelsched.testing import MemoryStore


async def is_refused(api: Api) -> bool:
    """True if the server accepts no new connection."""
    try:
        async with ClientSession(api.url) as stranger, stranger.get("/healthz"):
            return False
    except ClientConnectorError:
        return True


async def test_running_requests_finish_before_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def list_slowly(*_: Any) -> list[Any]:
        has_begun.set()
        await may_end.wait()
        return []

    monkeypatch.setattr(store.jobs, "list_jobs", list_slowly)
    async with serve(store, store, stop_timeout_ms=60_000) as api, asyncio.timeout(60):
        asked = asyncio.create_task(api.get("/jobs"))
        await has_begun.wait()
        stopping = asyncio.create_task(api.stop())
        while not await is_refused(api):
            await asyncio.sleep(0)
        may_end.set()
        answer = await asked
        await stopping
    assert (answer.status, answer.body["items"]) == (200, [])


async def test_stopping_under_load_loses_no_acknowledged_write() -> None:
    """Clients that send without a pause, each on its own connection, until the server is gone."""
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    statuses: list[int] = []
    names: list[str] = []

    async def register_on_and_on(api: Api, client: int) -> None:
        headers = {"Authorization": f"Bearer {api.token}"}
        async with ClientSession(api.url) as session:
            for number in count():
                body = document(name=f"{client}-{number}")
                try:
                    async with session.post("/api/v1/jobs", json=body, headers=headers) as answer:
                        statuses.append(answer.status)
                        names.append((await answer.json())["name"])
                except ClientError:
                    return

    async with serve(store, store, stop_timeout_ms=60_000) as api, asyncio.timeout(120):
        clients = [asyncio.create_task(register_on_and_on(api, each)) for each in range(50)]
        while len(statuses) < 200:
            await asyncio.sleep(0)
        await api.stop()
        await asyncio.gather(*clients)
        assert set(statuses) == {201}
        kept = await store.jobs.list_jobs(Caller(api.tenant_id, "test"), JobFilter(), 1_000_000)
        assert {job.name for job in kept} >= set(names)


@pytest.mark.parametrize(
    ("path", "body", "settings"),
    [("/jobs", None, {"max_in_flight": 2}), ("/jobs/bulk", [], {"max_held_bytes": 5})],
)
async def test_requests_beyond_the_limit_get_503(
    monkeypatch: pytest.MonkeyPatch, path: str, body: Any, settings: dict[str, Any]
) -> None:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    begun, may_end = asyncio.Semaphore(0), asyncio.Event()
    find_token = store.tenants.find_token

    async def find_slowly(digest: bytes) -> Token | None:
        begun.release()
        await may_end.wait()
        return await find_token(digest)

    async with serve(store, store, token_cache_ms=0, **settings) as api, asyncio.timeout(60):
        monkeypatch.setattr(store.tenants, "find_token", find_slowly)
        method = "GET" if body is None else "POST"
        asked = [asyncio.create_task(api.call(method, path, body)) for _ in range(2)]
        for _ in asked:
            await begun.acquire()
        refused = await api.call(method, path, body)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert (await api.get("/healthz")).status == 200
        may_end.set()
        assert [(await each).status for each in asked] == [200, 200]
        assert (await api.call(method, path, body)).status == 200
