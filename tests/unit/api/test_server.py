"""Stopping: what has begun is answered, and nothing else begins."""

import asyncio
import time
from typing import Any

import pytest
from aiohttp import ClientConnectorError, ClientSession
from tests.api import Api, serve

from wheelsched.testing import MemoryStore


async def is_refused(api: Api) -> bool:
    """Whether the server takes no new connection."""
    try:
        async with ClientSession(api.url) as stranger, stranger.get("/healthz"):
            return False
    except ClientConnectorError:
        return True


async def test_what_has_begun_is_answered_before_the_server_stops(
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
