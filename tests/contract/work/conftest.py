"""A scheduler with queues in memory, and workers of each protocol."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from tests.api import Api, serve
from tests.contract.work.grpc_protocols import GrpcPollingWorker, GrpcStreamingWorker
from tests.contract.work.protocols import PollingWorker, StreamingWorker, WorkerSide
from tests.work import MemoryRun, MemoryWork

from wheelsched.config import GrpcConfig
from wheelsched.testing import MemoryStore

PROTOCOLS: dict[str, Callable[[str, str, str], WorkerSide]] = {
    "poll": PollingWorker,
    "stream": StreamingWorker,
    "grpc-poll": GrpcPollingWorker,
    "grpc-stream": GrpcStreamingWorker,
}


class Scheduler:
    """The API, the queues behind it, and its workers."""

    def __init__(self, api: Api, work: MemoryWork, exits: AsyncExitStack) -> None:
        self.api = api
        self.work = work
        self._exits = exits
        self.now_us = work.now_us()

    def add(self, count: int = 1, queue: str = "billing") -> list[MemoryRun]:
        return self.work.add(self.api.tenant_id, queue, count)

    def worker(
        self, protocol: str, queue: str = "billing", *, token: str | None = None
    ) -> WorkerSide:
        address = self.api.grpc if protocol.startswith("grpc") else self.api.url
        made = PROTOCOLS[protocol](address, token or self.api.token, queue)
        self._exits.push_async_callback(made.leave)
        return made

    def pass_time(self, passed_us: int) -> None:
        """Moves the clock of the scheduler."""
        self.now_us += passed_us
        self.work.expire()


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    held: list[Scheduler] = []
    begun_us = time.time_ns() // 1_000

    def now_us() -> int:
        return held[0].now_us if held else begun_us

    store = MemoryStore(now_us)
    work = MemoryWork(now_us)
    async with (
        serve(store, store, now_us=now_us, work=work, grpc=GrpcConfig(port=0)) as api,
        AsyncExitStack() as exits,
    ):
        held.append(Scheduler(api, work, exits))
        yield held[0]


@pytest.fixture(params=list(PROTOCOLS))
async def worker(scheduler: Scheduler, request: pytest.FixtureRequest) -> WorkerSide:
    return scheduler.worker(request.param)


@pytest.fixture(params=list(PROTOCOLS))
async def another(scheduler: Scheduler, request: pytest.FixtureRequest) -> WorkerSide:
    """A second worker, of each protocol."""
    return scheduler.worker(request.param)
