"""A scheduler from its start to its end, on instances that fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.waiting import WAIT_LIMIT_S, until
from tests.work import MemoryWork

from wheelsched.clock import SystemClock
from wheelsched.config import ShardConfig
from wheelsched.errors import SchedulerNotReady, SchedulerNotRunning, StoreUnavailable
from wheelsched.ports import Tenant
from wheelsched.scheduler.config import SchedulerConfig
from wheelsched.scheduler.instance import Instance
from wheelsched.scheduler.service import OnUnavailable, Service
from wheelsched.scheduler.tasks import DeclaredJob, Tasks
from wheelsched.scheduler.testing import TENANT_ID
from wheelsched.testing import MemoryStore

CONFIG = SchedulerConfig(stop_timeout_s=0.1, shard=ShardConfig(drain_us=0))


class Scene:
    """A service whose instances are in memory."""

    def __init__(self, config: SchedulerConfig = CONFIG) -> None:
        self.opened = 0
        self.closed = 0
        self.error: Exception | None = None
        self.store = MemoryStore(SystemClock.wall_us)
        self.work = MemoryWork(SystemClock.wall_us)
        self.tasks = Tasks("shop")
        hourly = DeclaredJob(name="hourly", schedule="every 1h", options={})
        self.tasks.declare(hourly, lambda: None)
        self.service = Service(self.open, self.tasks, config)

    @asynccontextmanager
    async def open(self, on_unavailable: OnUnavailable) -> AsyncIterator[Instance]:
        self.opened += 1
        if self.error is not None:
            raise self.error
        if self.opened == 1:
            tenant = Tenant(tenant_id=TENANT_ID, name="test", created_at_us=0)
            await self.store.tenants.create("test", tenant)
        try:
            yield Instance(
                jobs=self.store.jobs,
                source=self.work,
                tenant_id=TENANT_ID,
                clock=SystemClock(),
                now_us=SystemClock.wall_us,
            )
        finally:
            self.closed += 1


async def test_it_starts_and_stops_from_different_tasks() -> None:
    scene = Scene()
    await asyncio.create_task(scene.service.start())
    assert await scene.service.book.find("shop:hourly")
    await asyncio.create_task(scene.service.stop())
    assert scene.service.has_ended
    assert (scene.opened, scene.closed) == (1, 1)
    with pytest.raises(SchedulerNotRunning):
        _ = scene.service.book


async def test_it_is_not_ready_while_its_shard_is_not() -> None:
    scene = Scene()
    assert scene.service.missing() == ["start"]
    await scene.service.start()
    assert scene.service.missing() == ["schema", "lease", "load"]
    await scene.service.stop()
    assert scene.service.missing() == ["start"]


async def test_an_error_at_the_start_is_raised_there() -> None:
    scene = Scene()
    scene.error = ExceptionGroup("", [StoreUnavailable("no such host")])
    with pytest.raises(StoreUnavailable, match="no such host"):
        await scene.service.start()
    await scene.service.stop()


async def test_a_start_that_is_cancelled_leaves_nothing_open() -> None:
    scene = Scene()
    starting = asyncio.create_task(scene.service.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    assert scene.service.has_ended
    assert scene.opened == scene.closed


async def test_a_start_that_takes_too_long_is_given_up() -> None:
    scene = Scene(SchedulerConfig(start_timeout_s=0.05))
    may_open = asyncio.Event()

    @asynccontextmanager
    async def open_late(on_unavailable: OnUnavailable) -> AsyncIterator[Instance]:
        on_unavailable(StoreUnavailable("connection refused"))
        await may_open.wait()
        async with scene.open(on_unavailable) as instance:
            yield instance

    service = Service(open_late, scene.tasks, SchedulerConfig(start_timeout_s=0.05))
    with pytest.raises(SchedulerNotReady, match=r"within 0\.05 s: connection refused"):
        await service.start()
    assert service.has_ended


async def test_a_stop_ends_a_start_that_waits_for_the_database() -> None:
    scene = Scene(SchedulerConfig())
    waiting = asyncio.Event()

    @asynccontextmanager
    async def open_never(on_unavailable: OnUnavailable) -> AsyncIterator[Instance]:
        waiting.set()
        await asyncio.Event().wait()
        yield Instance()  # type: ignore[call-arg]

    service = Service(open_never, scene.tasks, SchedulerConfig())
    starting = asyncio.create_task(service.start())
    await waiting.wait()
    await asyncio.wait_for(service.stop(), 5)  # far less than a stop may take
    with pytest.raises(SchedulerNotReady, match="stopped before"):
        await starting
    assert service.has_ended


def _break(service: Service) -> None:
    """Makes the worker of a service fail."""
    assert service.worker is not None
    hands = service.worker._hands
    hands.take_returned = None  # type: ignore[assignment, method-assign]
    hands.changed.set()


async def test_handlers_end_with_the_instance_that_began_them() -> None:
    scene = Scene()
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(payload: object) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    scene.tasks.add("slow", slow)
    await scene.service.start()
    scene.work.add(TENANT_ID, "shop:slow")
    await asyncio.wait_for(began.wait(), WAIT_LIMIT_S)
    _break(scene.service)
    await asyncio.wait_for(ended.wait(), WAIT_LIMIT_S)
    await scene.service.stop()


async def test_a_service_that_is_cancelled_leaves_no_task() -> None:
    scene = Scene()
    began = asyncio.Event()

    async def slow(payload: object) -> None:
        began.set()
        await asyncio.Event().wait()

    scene.tasks.add("slow", slow)
    await scene.service.start()
    scene.work.add(TENANT_ID, "shop:slow")
    await asyncio.wait_for(began.wait(), WAIT_LIMIT_S)
    assert scene.service._serving is not None
    scene.service._serving.cancel()
    await asyncio.wait([scene.service._serving])
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_was_done_is_remembered_when_an_instance_fails() -> None:
    scene = Scene()
    calls = 0

    async def count(payload: object) -> None:
        nonlocal calls
        calls += 1

    scene.tasks.add("count", count)
    await scene.service.start()
    (run,) = scene.work.add(TENANT_ID, "shop:count")

    async def has_ended() -> bool:
        return run.outcome is not None

    await until(has_ended)
    _break(scene.service)

    async def has_opened_again() -> bool:
        return scene.opened == 2

    await until(has_opened_again)
    run.outcome = None
    scene.work.waiting.append(run)  # its outcome was lost
    scene.work.hand_out()
    await until(has_ended)
    assert calls == 1
    await scene.service.stop()


async def test_what_fails_after_the_start_is_started_again() -> None:
    scene = Scene()
    await scene.service.start()
    _break(scene.service)

    async def has_opened_again() -> bool:
        return scene.opened == 2

    await until(has_opened_again)
    assert scene.closed == 1

    async def is_running() -> bool:
        try:
            return bool(await scene.service.book.find("shop:hourly"))
        except SchedulerNotRunning:
            return False

    await until(is_running)
    await scene.service.stop()
    assert scene.closed == 2
