"""Many workers on one process: those that wait hold up nobody."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector, WSServerHandshakeError
from tests.api import Api, machine_us, serve
from tests.waiting import until
from tests.work import MemoryWork

from wheelsched.testing import MemoryStore
from wheelsched.wire.stream import SUBPROTOCOL


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[Api, MemoryWork]]:
    work = MemoryWork(machine_us)
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    async with serve(store, store, work=work, **settings) as api:
        yield api, work


async def test_claims_that_wait_do_not_block_other_requests() -> None:
    async with served(max_in_flight=2, max_connections_per_address=30) as (api, work):
        body = {"worker_id": "w", "max_runs": 1}
        claims = [
            asyncio.create_task(api.post("/queues/billing/claim", body | {"claim_id": str(i)}))
            for i in range(2)
        ]
        for more in range(10):

            async def all_wait(count: int = 2 + more) -> bool:
                return len(work.subscriptions) == count

            await until(all_wait)
            sending = api.post("/queues/billing/claim", body | {"claim_id": f"more-{more}"})
            claims.append(asyncio.create_task(sending))
        assert (await api.get("/jobs")).status == 200
        assert api.vitals.in_flight == 0
        work.add(api.tenant_id, count=12)
        for answer in await asyncio.gather(*claims):
            assert len(answer.body["runs"]) == 1


async def test_workers_do_not_count_as_connections_of_their_address() -> None:
    async with (
        served(max_connections_per_address=3) as (api, work),
        ClientSession(connector=TCPConnector(limit=0)) as session,
        AsyncExitStack() as exits,
    ):
        headers = {"Authorization": f"Bearer {api.token}"}
        url = f"{api.url}/api/v1/stream"
        for number in range(10):
            websocket = await exits.enter_async_context(
                session.ws_connect(url, protocols=[SUBPROTOCOL], headers=headers)
            )
            await websocket.send_json(
                {"type": "hello", "worker_id": str(number), "queues": ["billing"]}
            )
            assert (await websocket.receive_json(timeout=60))["type"] == "welcome"
        assert len(work.subscriptions) == 10
        assert (await api.get("/jobs")).status == 200


async def test_without_queues_workers_are_told_to_go_elsewhere(api: Api) -> None:
    for answer in (
        await api.post("/queues/billing/claim", {"worker_id": "w", "claim_id": "c"}),
        await api.post("/runs/outcomes", []),
        await api.post("/runs/heartbeats", []),
        await api.get("/queues"),
    ):
        assert (answer.status, answer.body["type"]) == (
            503,
            "urn:wheelsched:problem:work-unavailable",
        )


async def test_workers_leave_connections_to_others() -> None:
    """One tenant may open very many streams, from one address."""
    async with (
        served(max_connections=12, max_connections_per_address=1) as (api, _),
        ClientSession(connector=TCPConnector(limit=0)) as session,
        AsyncExitStack() as exits,
    ):
        headers = {"Authorization": f"Bearer {api.token}"}
        url = f"{api.url}/api/v1/stream"
        for _ in range(11):  # the last one counts for its address
            connecting = session.ws_connect(url, protocols=[SUBPROTOCOL], headers=headers)
            await exits.enter_async_context(connecting)
        with pytest.raises(WSServerHandshakeError) as refused:
            await session.ws_connect(url, protocols=[SUBPROTOCOL], headers=headers)
        assert refused.value.status == 429
