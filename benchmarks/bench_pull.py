"""What does a run cost between the queues and a handler? The stream of the API and the worker SDK.

    make bench ONLY=pull

The queues are in memory: they hand out a run for each credit, and accept each outcome at once. The
API is one process and the worker another, as in production, each on its own loop. Per run: the time
until all were finished, and the CPU time of the API and of the worker.
"""

import asyncio
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from random import Random
from uuid import UUID, uuid4

import pytest
import uvloop

from report import Record, Target
from wheelsched.api.app import build_app
from wheelsched.api.environment import Environment
from wheelsched.api.http.server import ApiServer
from wheelsched.clock import SystemClock
from wheelsched.config import ApiConfig
from wheelsched.core.model import RunKey, format_run_id
from wheelsched.ports import Tenant
from wheelsched.ports.work import (
    DELIVERY_LEASE_US,
    Attempted,
    Held,
    QueueRun,
    QueueState,
    Reported,
    WorkerOutcome,
)
from wheelsched.testing import MemoryStore
from wheelsched.wire.callback import write_instant
from wheelsched.worker import Worker

RUNS = int(os.environ.get("WHEELSCHED_BENCH_RUNS", "50000"))
ROUNDS = 5
CONCURRENCIES = (100, 1_000)
PAYLOAD = b'{"customer":4711,"report":"weekly","pages":[1,2,3],"note":"' + b"x" * 100 + b'"}'
CPU = ("CPU of the API", "CPU of the worker")
OURS = "stream"
TARGETS = [
    Target("the API's CPU for a run, in ns", CPU[0], 1_000, None, 20_000),
    Target("the worker's CPU for a run, in ns", CPU[1], 1_000, None, 40_000),
]
ACCEPTED = Reported(is_accepted=True)


class EndlessWork:
    """A `WorkSource` with a given number of runs, all of them due."""

    def __init__(self, tenant_id: UUID) -> None:
        self.tenant_id = tenant_id
        self.left: list[QueueRun] = []
        self.finished = 0
        self.expected = 0
        self.done = asyncio.Event()
        self.take: Callable[[Sequence[QueueRun], int], None] | None = None
        self.credits = 0

    def add(self, runs: list[QueueRun]) -> None:
        self.left = runs
        self.finished, self.expected = 0, len(runs)
        self.done.clear()
        self.hand_out()

    def hand_out(self) -> None:
        count = min(self.credits, len(self.left))
        if count and self.take is not None:
            self.credits -= count
            runs, self.left = self.left[:count], self.left[count:]
            self.take(runs, DELIVERY_LEASE_US)

    def subscribe(
        self,
        tenant_id: UUID,
        queues: Sequence[str],
        take: Callable[[Sequence[QueueRun], int], None],
        cancel: Callable[[Sequence[Attempted]], None],
    ) -> "EndlessWork":
        self.take = take
        self.credits = 0
        return self

    def add_credits(self, count: int) -> None:
        self.credits += count
        self.hand_out()

    async def withdraw(self) -> None:
        self.take = None

    async def finish(self, tenant_id: UUID, outcomes: Sequence[WorkerOutcome]) -> list[Reported]:
        self.finished += len(outcomes)
        if self.finished == self.expected:
            self.done.set()
        return [ACCEPTED] * len(outcomes)

    async def heartbeat(
        self, tenant_id: UUID, attempts: Sequence[Attempted], leases_us: Sequence[int | None]
    ) -> list[Held]:
        return [Held(is_held=True)] * len(attempts)

    def give_back(self, tenant_id: UUID, attempts: Sequence[Attempted]) -> set[Attempted]:
        raise AssertionError("nothing is given back")

    async def queues(self, tenant_id: UUID) -> list[QueueState]:
        return []


_numbers = itertools.count(1)


def make_run(now_us: int) -> QueueRun:
    job_id, token = uuid4(), next(_numbers)
    key = RunKey(job_id, now_us)
    content = (
        f'{{"run_id":"{format_run_id(key)}","job_id":"{job_id}","job_name":"report",'
        f'"queue":"billing","scheduled_at":"{write_instant(now_us)}","attempt":1,'
        f'"fencing_token":{token},"idempotency_key":"{job_id}:{now_us // 1_000_000}",'
        f'"trigger":"schedule","timeout_ms":120000,"payload":'
    ).encode()
    return QueueRun(attempt=Attempted(key, token), queue="billing", content=content + PAYLOAD)


def work(pipe: Connection, url: str, concurrency: int) -> None:
    """The process of the worker: tells its CPU time when asked."""
    worker = Worker()

    @worker.job("report")
    async def handle(payload: dict[str, object]) -> None: ...

    async def serve() -> None:
        running = asyncio.create_task(worker.run(url, queues="billing", concurrency=concurrency))
        while await asyncio.to_thread(pipe.recv):
            pipe.send(time.process_time_ns())
        await worker.stop()
        await running

    uvloop.run(serve())


async def measure(record: Record, concurrency: int) -> None:
    tenant_id = uuid4()
    source = EndlessWork(tenant_id)
    now_us = time.time_ns() // 1_000
    store = MemoryStore(lambda: now_us)
    await store.tenants.create("bench", Tenant(tenant_id=tenant_id, name="a", created_at_us=now_us))
    environment = Environment(
        clock=SystemClock(),
        now_us=lambda: now_us,
        random=Random(1),
        metrics=lambda: "",
        work=source,
    )
    config = ApiConfig(port=0, auth="loopback", loopback_tenant_id=tenant_id)
    async with await ApiServer.start(build_app(store, environment, config), config) as server:
        context = multiprocessing.get_context("spawn")
        pipe, end = context.Pipe()
        process = context.Process(target=work, args=(end, server.url, concurrency))
        process.start()
        rounds: list[tuple[float, float, float]] = []
        for number in range(ROUNDS + 1):
            runs = [make_run(now_us) for _ in range(RUNS)]
            pipe.send(True)
            worker_ns = await asyncio.to_thread(pipe.recv)
            own_ns, begun_ns = time.process_time_ns(), time.perf_counter_ns()
            source.add(runs)
            await source.done.wait()
            took_ns = time.perf_counter_ns() - begun_ns
            own_ns = time.process_time_ns() - own_ns
            pipe.send(True)
            worker_ns = await asyncio.to_thread(pipe.recv) - worker_ns
            if number:  # the first round warms up
                rounds.append((took_ns / RUNS, own_ns / RUNS, worker_ns / RUNS))
        pipe.send(False)
        await asyncio.to_thread(process.join)
    for name, values in zip(("elapsed", *CPU), zip(*rounds, strict=True), strict=True):
        record.add(name, OURS, concurrency, min(values))


@pytest.fixture(scope="module", autouse=True)
def targets(record: Record) -> None:
    record.targets = TARGETS


@pytest.mark.parametrize("concurrency", CONCURRENCIES)
def test_pull(record: Record, concurrency: int) -> None:
    uvloop.run(measure(record, concurrency))
