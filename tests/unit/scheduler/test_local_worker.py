"""The worker of a process with its own shard, on queues in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from tests.waiting import WAIT_LIMIT_S, until
from tests.work import MemoryWork

from wheelsched.clock import SystemClock
from wheelsched.config import WorkerConfig
from wheelsched.core.outcome import Failed, Succeeded
from wheelsched.errors import StoreUnavailable
from wheelsched.ports.work import Reported, WorkerOutcome
from wheelsched.scheduler.local_worker import LocalWorker
from wheelsched.scheduler.tasks import Tasks
from wheelsched.worker.attempt import Resources
from wheelsched.worker.deduplication import MemoryOnce
from wheelsched.worker.fencing import FencingCheck
from wheelsched.worker.pull.hands import Hands

TENANT_ID = UUID(int=1)
QUEUE = "shop:remind"


class FailingWork(MemoryWork):
    """A source whose database fails some times."""

    failures = 0

    async def finish(self, tenant_id: UUID, outcomes: Sequence[WorkerOutcome]) -> list[Reported]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable
        return await super().finish(tenant_id, outcomes)


class Scene:
    """A worker with one task that ends when it may."""

    def __init__(self, concurrency: int = 2) -> None:
        self.work = FailingWork(SystemClock.wall_us)
        self.may_end = asyncio.Event()
        self.began = 0
        self.is_stubborn = False  # the handler ignores a cancellation
        tasks = Tasks("shop")
        tasks.add("remind", self.remind)
        threads = ThreadPoolExecutor(1)
        clock = SystemClock()
        resources = Resources(MemoryOnce(), FencingCheck(), threads, clock)
        hands = Hands(tasks.find_handler, resources, WorkerConfig(), concurrency)
        self.worker = LocalWorker(self.work, TENANT_ID, hands, clock, 30_000_000)
        self.worker.subscribe(tasks.queues)

    async def remind(self, payload: object) -> None:
        self.began += 1
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                if not self.is_stubborn:
                    raise


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    running = asyncio.create_task(scene.worker.run())
    yield scene
    running.cancel()
    await asyncio.wait([running])


async def _until_begun(scene: Scene, count: int) -> None:
    async def have_begun() -> bool:
        return scene.began == count

    await until(have_begun)


async def test_it_takes_no_more_runs_than_its_concurrency(scene: Scene) -> None:
    runs = scene.work.add(TENANT_ID, QUEUE, 5)
    await _until_begun(scene, 2)
    assert [run.handed_out for run in runs] == [1, 1, 0, 0, 0]
    scene.may_end.set()

    async def have_ended() -> bool:
        return all(run.outcome == Succeeded() for run in runs)

    await until(have_ended)


async def test_an_outcome_is_reported_until_it_is_written(scene: Scene) -> None:
    scene.work.failures = 3
    scene.may_end.set()
    (run,) = scene.work.add(TENANT_ID, QUEUE)

    async def has_ended() -> bool:
        return run.outcome == Succeeded()

    await until(has_ended)
    assert run.handed_out == 1


async def test_a_drained_worker_ends_what_it_began_and_takes_nothing(scene: Scene) -> None:
    (begun,) = scene.work.add(TENANT_ID, QUEUE)
    await _until_begun(scene, 1)
    draining = asyncio.create_task(scene.worker.drain(WAIT_LIMIT_S))

    async def is_withdrawn() -> bool:
        return not scene.work.subscriptions

    await until(is_withdrawn)
    (later,) = scene.work.add(TENANT_ID, QUEUE)
    assert not draining.done()
    scene.may_end.set()
    await draining
    assert begun.outcome == Succeeded()
    assert later.handed_out == 0


async def test_a_handler_that_does_not_end_is_cancelled(scene: Scene) -> None:
    (run,) = scene.work.add(TENANT_ID, QUEUE)
    await _until_begun(scene, 1)
    await scene.worker.drain(0.01)
    assert run.outcome == Failed(error="the worker stopped before the run ended")


async def test_a_handler_that_ignores_its_cancellation_is_logged(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.is_stubborn = True
    scene.work.add(TENANT_ID, QUEUE)
    await _until_begun(scene, 1)
    await scene.worker.abandon()
    assert "worker.stuck" in caplog.text
    scene.may_end.set()


async def test_a_run_that_is_cancelled_stops(scene: Scene) -> None:
    (run,) = scene.work.add(TENANT_ID, QUEUE)
    await _until_begun(scene, 1)
    scene.work.cancel(run)

    async def has_ended() -> bool:
        return run.outcome is not None

    await until(has_ended)
    assert run.outcome == Failed(error="the run was cancelled")
