"""A scheduler with queues in memory, and workers of the SDK that pull from it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.api import Api, machine_us, serve
from tests.waiting import until
from tests.work import MemoryRun, MemoryWork

from wheelsched.config import WorkerConfig
from wheelsched.testing import MemoryStore
from wheelsched.worker import Worker

__all__ = ["Pulling", "pulling"]


class Pulling:
    """API processes on one store and one source of work, and the worker."""

    def __init__(self, work: MemoryWork, apis: list[Api]) -> None:
        self.work = work
        self.apis = apis
        self.config = WorkerConfig(stop_timeout_ms=60_000)

    @property
    def urls(self) -> list[str]:
        return [api.url for api in self.apis]

    def add(
        self, count: int = 1, payload: object = None, queue: str = "billing"
    ) -> list[MemoryRun]:
        return self.work.add(self.apis[0].tenant_id, queue, count, payload)

    @asynccontextmanager
    async def running(self, worker: Worker, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
        """Runs a worker, and stops it gracefully."""
        options = {"token": self.apis[0].token, "queues": ["billing"]} | options
        task = asyncio.create_task(worker.run(options.pop("url", self.urls), **options))
        try:
            yield task
        finally:
            if not task.done():
                await worker.stop()
            await asyncio.wait([task])

    async def finished(self, runs: list[MemoryRun]) -> None:
        async def have_ended() -> bool:
            return all(run.outcome is not None for run in runs)

        await until(have_ended)

    async def registered(self, count: int = 1) -> None:
        async def is_registered() -> bool:
            return len(self.work.subscriptions) == count

        await until(is_registered)


@pytest.fixture
async def pulling() -> AsyncIterator[Pulling]:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    work = MemoryWork(machine_us)
    async with AsyncExitStack() as exits:
        api = await exits.enter_async_context(serve(store, store, work=work, stop_timeout_ms=1_000))
        yield Pulling(work, [api])
