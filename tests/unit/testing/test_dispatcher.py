import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from wheelsched.core.model import HttpTarget, RunKey, Trigger
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.ports import Callback, Dispatcher, Route
from wheelsched.testing import MemoryDispatcher, VirtualClock

TENANT_ID = uuid4()
TARGET = HttpTarget(url="https://example.org/hooks", batch=10)
SECOND_NS = 10**9


def callback(number: int, timeout_us: int = 1_000_000) -> Callback:
    return Callback(
        key=RunKey(UUID(int=7), number),
        job_name="report",
        payload=b"{}",
        secrets=(),
        scheduled_us=number,
        send_at_us=number,
        timeout_us=timeout_us,
        attempt=1,
        token=1,
        trigger=Trigger.SCHEDULE,
        idempotency_key=str(number),
    )


def sending(
    dispatcher: MemoryDispatcher, *callbacks: Callback, may_begin: bool = True
) -> "asyncio.Future[list[Outcome] | None]":
    route = dispatcher.route(TENANT_ID, TARGET)
    batch = [dispatcher.prepare(route, callback) for callback in callbacks]
    return dispatcher.send(route, batch, lambda: may_begin)


async def test_it_records_every_request_with_its_time() -> None:
    clock = VirtualClock(5)
    dispatcher = MemoryDispatcher(clock)
    outcomes = await sending(dispatcher, callback(1), callback(2))
    assert outcomes == [Succeeded(http_status=200)] * 2
    (sent,) = dispatcher.sent
    assert sent.at_ns == 5
    assert sent.route is dispatcher.route(TENANT_ID, TARGET)
    assert sent.route.origin == "https://example.org"
    assert [callback.scheduled_us for callback in sent.callbacks] == [1, 2]


async def test_a_request_that_begin_refuses_is_not_sent() -> None:
    dispatcher = MemoryDispatcher(VirtualClock())
    assert await sending(dispatcher, callback(1), may_begin=False) is None
    assert dispatcher.sent == []


async def test_a_handler_takes_its_time_on_the_clock() -> None:
    clock = VirtualClock()

    async def handle(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        await clock.sleep(SECOND_NS // 2)
        return [Failed(error="no paper") for _ in callbacks]

    task = sending(MemoryDispatcher(clock, handle), callback(1))
    await clock.advance(SECOND_NS // 2 - 1)
    assert not task.done()
    await clock.advance(1)
    assert task.done()
    assert await task == [Failed(error="no paper")]


async def test_a_hanging_handler_times_out_at_the_longest_timeout() -> None:
    clock = VirtualClock()

    async def hang(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        await asyncio.Event().wait()
        raise AssertionError

    task = sending(MemoryDispatcher(clock, hang), callback(1, 1_000_000), callback(2, 2_000_000))
    await clock.advance(2 * SECOND_NS - 1)
    assert not task.done()
    await clock.advance(1)
    assert task.done()
    assert await task == [Failed(error="the worker did not respond before the timeout")] * 2


async def test_an_exception_in_a_handler_is_a_lost_connection() -> None:
    async def fail(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        raise ConnectionResetError

    outcomes = await sending(MemoryDispatcher(VirtualClock(), fail), callback(1))
    assert outcomes == [Failed(error="the connection was lost before the worker responded")]


async def test_cancellation_passes_through_and_stops_the_handler() -> None:
    clock = VirtualClock()
    stopped = asyncio.Event()

    async def hang(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    task = sending(MemoryDispatcher(clock, hang), callback(1))
    await clock.run_ready()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await clock.run_ready()
    assert stopped.is_set()


def test_it_is_a_dispatcher_with_one_route_for_each_target() -> None:
    dispatcher: Dispatcher = MemoryDispatcher(VirtualClock())
    route = dispatcher.route(TENANT_ID, TARGET)
    assert dispatcher.route(TENANT_ID, HttpTarget(url=TARGET.url, batch=10)) is route
    assert dispatcher.route(uuid4(), TARGET) is not route
