"""Who may call by gRPC: the rules of the API."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from grpc import StatusCode
from tests.api import Api, machine_us, serve
from tests.contract.work.conftest import Scheduler
from tests.contract.work.grpc_protocols import Calls
from tests.unit.api.grpc.test_calls import refused
from tests.work import MemoryWork

from wheelsched.api.grpc.requester import address_of
from wheelsched.config import GrpcConfig
from wheelsched.errors import StoreUnavailable
from wheelsched.ports.work import Held
from wheelsched.testing import MemoryStore
from wheelsched.v1 import dispatcher_pb2 as pb


@asynccontextmanager
async def served(*, has_work: bool = True, **settings: Any) -> AsyncIterator[Api]:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    work = MemoryWork(machine_us) if has_work else None
    async with serve(store, store, work=work, grpc=GrpcConfig(port=0), **settings) as api:
        yield api


@asynccontextmanager
async def calling(api: Api, token: str | None) -> AsyncIterator[Calls]:
    calls = Calls(api.grpc, token)
    try:
        yield calls
    finally:
        await calls.close()


async def outcomes_of(calls: Calls) -> list[tuple[StatusCode, str | None]]:
    """How each method refuses a call."""
    errors = [
        await refused(calls.claim()),
        await refused(calls.update(attempt_id="x", status="RUNNING")),
        await refused(calls.work().read()),
    ]
    return [(error.code(), error.details()) for error in errors]


async def test_a_call_without_a_token_is_unauthenticated(scheduler: Scheduler) -> None:
    async with calling(scheduler.api, None) as calls:
        for code, details in await outcomes_of(calls):
            assert code is StatusCode.UNAUTHENTICATED
            assert details == "missing `Authorization: Bearer <token>` header"


async def test_an_unknown_token_is_unauthenticated(scheduler: Scheduler) -> None:
    async with calling(scheduler.api, "wst_unknown") as calls:
        for code, details in await outcomes_of(calls):
            assert (code, details) == (StatusCode.UNAUTHENTICATED, "unknown or revoked token")


async def test_a_token_needs_the_scope_work(scheduler: Scheduler) -> None:
    api = scheduler.api
    await api.add_token("wst_write", api.tenant_id, "read", "write")
    async with calling(api, "wst_write") as calls:
        for code, details in await outcomes_of(calls):
            assert code is StatusCode.PERMISSION_DENIED
            assert details == "this operation requires a token with the scope 'work'"
    await api.add_token("wst_work", api.tenant_id, "work")
    async with calling(api, "wst_work") as calls:
        await calls.claim()


async def test_a_tenant_has_one_rate_for_all_protocols(scheduler: Scheduler) -> None:
    api = scheduler.api
    slow = await api.add_tenant("slow", requests_per_second=2)
    await api.add_token("wst_slow", slow, "work")
    assert (await api.post("/runs/outcomes", [], token="wst_slow")).status == 200
    async with calling(api, "wst_slow") as calls:
        await calls.claim()
        error = await refused(calls.claim())
        assert error.code() is StatusCode.RESOURCE_EXHAUSTED
        assert "2 requests per second" in (error.details() or "")
        assert ("grpc-retry-pushback-ms", "1000") in tuple(error.trailing_metadata() or ())
    assert (await api.post("/runs/outcomes", [], token="wst_slow")).status == 429


async def test_local_programs_need_no_token_if_the_api_allows_that() -> None:
    async with served(auth="loopback") as api, calling(api, None) as calls:
        await calls.claim()
        calls.metadata = (("x-forwarded-for", "198.51.100.7"),)
        assert (await refused(calls.claim())).code() is StatusCode.PERMISSION_DENIED


async def test_a_callback_may_not_call() -> None:
    async with served(auth="loopback") as api, calling(api, None) as calls:
        calls.metadata = (("wheelsched-run-id", "x"),)
        error = await refused(calls.claim())
        assert error.code() is StatusCode.PERMISSION_DENIED


async def test_a_process_without_queues_is_unavailable() -> None:
    async with served(has_work=False) as api, calling(api, api.token) as calls:
        valid = {"attempt_id": f"{'0' * 32}-1:1", "status": "RUNNING"}
        for call in (calls.claim(), calls.update(**valid), calls.work().read()):
            error = await refused(call)
            assert error.code() is StatusCode.UNAVAILABLE
            assert "connect to another API process" in (error.details() or "")


async def test_a_busy_process_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer_later(*_: object) -> list[Held]:
        is_asked.set()
        await may_answer.wait()
        return [Held(is_held=True)]

    monkeypatch.setattr(MemoryWork, "heartbeat", answer_later)
    beat = {"attempt_id": f"{'0' * 32}-1:1", "status": "RUNNING"}
    async with served(max_in_flight=1) as api, calling(api, api.token) as calls:
        first = asyncio.create_task(calls.update(**beat))
        await is_asked.wait()
        error = await refused(calls.update(**beat))
        assert error.code() is StatusCode.UNAVAILABLE
        assert error.details() == "server busy; retry after 1 s"
        may_answer.set()
        assert (await first).success


async def test_a_worker_that_waits_does_not_make_a_process_busy() -> None:
    async with served(max_in_flight=1) as api, calling(api, api.token) as calls:
        waiting = calls.work()
        await waiting.write(pb.WorkerMessage(hello=pb.Hello(worker_id="w", queues=["billing"])))
        await waiting.read()
        await calls.claim()
        assert (api.vitals.in_flight, api.vitals.waiting) == (0, 1)


async def test_connections_are_limited() -> None:
    async with served(max_connections=2) as api, AsyncExitStack() as exits:
        for _ in range(2):
            calls = await exits.enter_async_context(calling(api, api.token))
            await calls.claim()
        another = await exits.enter_async_context(calling(api, api.token))
        assert (await refused(another.claim())).code() is StatusCode.UNAVAILABLE
        await calls.claim()


async def test_a_database_that_fails_is_unavailable_without_details(
    scheduler: Scheduler, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable("password authentication failed for user 'api'")

    monkeypatch.setattr(scheduler.work, "heartbeat", fail)
    error = await refused(calls.update(attempt_id=f"{'0' * 32}-1:1", status="RUNNING"))
    assert error.code() is StatusCode.UNAVAILABLE
    assert "password" not in (error.details() or "")


async def test_a_bug_is_internal_without_details(
    scheduler: Scheduler, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(scheduler.work, "heartbeat", fail)
    error = await refused(calls.update(attempt_id=f"{'0' * 32}-1:1", status="RUNNING"))
    assert error.code() is StatusCode.INTERNAL
    assert "secret" not in (error.details() or "")


async def test_calls_are_counted_with_the_requests(scheduler: Scheduler, calls: Calls) -> None:
    await calls.claim()
    await refused(calls.claim(queues=[]))
    answered = scheduler.api.vitals.answered
    assert (answered["ClaimTriggers", 200], answered["ClaimTriggers", 422]) == (1, 1)
    assert scheduler.api.vitals.in_flight == 0


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1"),
        ("ipv6:[::1]:5000", "::1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:5000", "fe80::1"),
        ("unix:/run/socket", None),
        ("", None),
    ],
)
def test_the_address_of_a_peer(peer: str, address: str | None) -> None:
    assert address_of(peer) == address
