"""What does the link between a shard and the API cost? Runs through it, against a bare socket.

    make bench ONLY=link

The shard is a process of its own. *Hop* is the time from the hand-out in the shard to the worker's
callback in this process, for single runs, 1,000 a second; the bare socket sends as many bytes and
is the floor. *Batches*: 100,000 runs of 200 bytes, 500 in each hand-out, until the last one is at a
worker; and their outcomes back, 500 in each report, until the last receipt. The shard writes
nothing: receipts come at once.
"""

import asyncio
import gc
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection as Pipe
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
import uvloop

from report import Record, Target
from wheelsched.clock import SystemClock
from wheelsched.config import LinkConfig
from wheelsched.core.model import RunKey
from wheelsched.core.outcome import Outcome, Succeeded
from wheelsched.delivery.link.client import LinkClient, ShardAddress
from wheelsched.delivery.link.handshake import Identity
from wheelsched.delivery.link.server import LinkServer
from wheelsched.delivery.queue.distributor import Distributor
from wheelsched.ports.work import (
    DELIVERY_LEASE_US,
    Attempted,
    Held,
    Pool,
    QueueRun,
    Receipt,
    Receiver,
    Reported,
    Waiting,
    WorkerOutcome,
)

OURS = "link"
BARE = "bare socket"
RATE = 1_000
HOPS = 10_000
BATCH = 500
RUNS = 100_000
ROUNDS = 5
SIZE = 200
TARGETS = [
    Target("hop, median, in µs", "hop, p50", RATE, None, 1_000),
    Target("hop, p99, in µs", "hop, p99", RATE, None, 5_000),
    Target("runs in batches, in ns for each", "batches out", BATCH, None, 5_000),
]

TENANT = UUID(int=1)
SINGLE, MANY = ("single",), ("many",)  # the queues of the two workloads
SHARD = Identity(UUID(int=2), b"s" * 32)
PROCESS = Identity(UUID(int=3), b"p" * 32)


def run(number: int) -> QueueRun:
    content = time.monotonic_ns().to_bytes(8, "big") + b"x" * (SIZE - 8)
    return QueueRun(attempt=Attempted(RunKey(uuid4(), number), 7), queue="", content=content)


class BusyDesk:
    """`Desk` that uses its credits: one each millisecond, or all at once, by the queue."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_flowing = asyncio.Event()
        self._is_flowing.set()

    def lend(self, pool: Pool, count: int) -> None:
        if count:
            hand_out = self._singles if pool.queues == SINGLE else self._batches
            task = asyncio.ensure_future(hand_out(pool, count))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _singles(self, pool: Pool, count: int) -> None:
        start_ns = time.monotonic_ns()
        for number in range(count):
            due_ns = start_ns + number * 1_000_000_000 // RATE
            await asyncio.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
            self._receiver.hand_out(pool, [run(number)], DELIVERY_LEASE_US)

    async def _batches(self, pool: Pool, count: int) -> None:
        runs = [run(number) for number in range(count)]  # armed ahead of their time
        begun = time.monotonic_ns().to_bytes(8, "big") + b"x" * (SIZE - 8)
        runs[0] = QueueRun(attempt=runs[0].attempt, queue="", content=begun)
        for start in range(0, count, BATCH):
            await self._is_flowing.wait()
            self._receiver.hand_out(pool, runs[start : start + BATCH], DELIVERY_LEASE_US)
            await asyncio.sleep(0)

    def recall(self, pool: Pool, count: int, returned: Callable[[int], None]) -> None:
        returned(0)

    def forget(self, pool: Pool) -> None:
        pass

    async def finish(self, outcomes: Sequence[tuple[Attempted, Outcome]]) -> list[Receipt]:
        return [Receipt.WRITTEN] * len(outcomes)

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        raise NotImplementedError

    async def waiting(self, tenant_id: UUID) -> list[Waiting]:
        return []

    def pause(self) -> None:
        self._is_flowing.clear()

    def resume(self) -> None:
        self._is_flowing.set()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


class BusyDesks:
    def open(self, receiver: Receiver) -> BusyDesk:
        return BusyDesk(receiver)


class BareSender(asyncio.Protocol):
    """Sends the time, 1,000 times a second, as soon as anything comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        start_ns = time.monotonic_ns()
        for number in range(HOPS):
            due_ns = start_ns + number * 1_000_000_000 // RATE
            await asyncio.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
            self._transport.write(time.monotonic_ns().to_bytes(8, "big") + b"x" * (SIZE - 8))


def serve(ports: Pipe) -> None:
    async def find(_: UUID) -> Identity:
        return PROCESS

    async def serve_both() -> None:
        async with LinkServer(BusyDesks(), find, SystemClock(), LinkConfig()) as server:
            server.identify(SHARD)
            link = await server.start()
            bare = await asyncio.get_running_loop().create_server(BareSender, "127.0.0.1", 0)
            ports.send((int(link.rpartition(":")[2]), bare.sockets[0].getsockname()[1]))
            await bare.serve_forever()

    gc.freeze()  # a collection would go through all imports; the daemons prevent that, too
    uvloop.run(serve_both())


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    shard = context.Process(target=serve, args=(theirs,), daemon=True)
    shard.start()
    yield ours.recv()
    shard.terminate()
    shard.join()


@pytest.fixture(scope="module", autouse=True)
def targets(record: Record) -> None:
    record.targets = TARGETS


class NoReports:
    """Nothing goes to a database here."""

    async def finish(self, _: UUID, outcomes: Sequence[WorkerOutcome]) -> list[Reported]:
        raise NotImplementedError

    async def heartbeat(
        self, _: UUID, attempts: Sequence[Attempted], __: Sequence[int | None]
    ) -> list[Held]:
        raise NotImplementedError


@asynccontextmanager
async def linked(port: int) -> AsyncIterator[Distributor]:
    clock = SystemClock()
    distributor = Distributor(NoReports(), clock)
    address = ShardAddress(SHARD, "127.0.0.1", port)
    client = LinkClient(PROCESS, address, distributor.attach, clock, LinkConfig())
    running = asyncio.ensure_future(client.run())
    async with asyncio.timeout(60):
        while not distributor.shards:
            await asyncio.sleep(0.01)
    yield distributor
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def hops_of_link(port: int) -> list[int]:
    hops: list[int] = []

    def take(runs: Sequence[QueueRun], _: int) -> None:
        now_ns = time.monotonic_ns()
        hops.extend(now_ns - int.from_bytes(each.content[:8], "big") for each in runs)

    async with linked(port) as distributor:
        distributor.subscribe(TENANT, SINGLE, take, lambda _: None).add_credits(HOPS)
        async with asyncio.timeout(10 * HOPS / RATE):
            while len(hops) < HOPS:
                await asyncio.sleep(0.1)
    return hops


class BareReceiver(asyncio.Protocol):
    def __init__(self) -> None:
        self.hops: list[int] = []
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(b"go")

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        self._rest += data
        while len(self._rest) >= SIZE:
            self.hops.append(now_ns - int.from_bytes(self._rest[:8], "big"))
            self._rest = self._rest[SIZE:]


async def hops_of_socket(port: int) -> list[int]:
    loop = asyncio.get_running_loop()
    receiver = BareReceiver()
    await loop.create_connection(lambda: receiver, "127.0.0.1", port)
    async with asyncio.timeout(10 * HOPS / RATE):
        while len(receiver.hops) < HOPS:
            await asyncio.sleep(0.1)
    receiver.transport.abort()
    return receiver.hops


async def batches(port: int) -> tuple[float, float, float, float]:
    """Out and back: ns for each run, and ns of CPU of this process."""
    taken: list[QueueRun] = []
    is_all = asyncio.Event()

    def take(runs: Sequence[QueueRun], _: int) -> None:
        taken.extend(runs)
        if len(taken) == RUNS:
            is_all.set()

    async with linked(port) as distributor, asyncio.timeout(120):
        cpu_ns = time.process_time_ns()
        distributor.subscribe(TENANT, MANY, take, lambda _: None).add_credits(RUNS)
        await is_all.wait()
        out_ns = time.monotonic_ns() - int.from_bytes(taken[0].content[:8], "big")
        out_cpu_ns = time.process_time_ns() - cpu_ns
        begun_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        ended = [WorkerOutcome(attempt=each.attempt, outcome=Succeeded()) for each in taken]
        await asyncio.gather(
            *(
                distributor.finish(TENANT, ended[start : start + BATCH])
                for start in range(0, RUNS, BATCH)
            )
        )
        back_ns = time.monotonic_ns() - begun_ns
        back_cpu_ns = time.process_time_ns() - cpu_ns
    return out_ns / RUNS, out_cpu_ns / RUNS, back_ns / RUNS, back_cpu_ns / RUNS


def test_hop(benchmark: Any, record: Record, ports: tuple[int, int]) -> None:
    """10,000 single runs, 1,000 a second."""

    def measure() -> dict[str, list[int]]:
        gc.freeze()
        return {
            OURS: uvloop.run(hops_of_link(ports[0])),
            BARE: uvloop.run(hops_of_socket(ports[1])),
        }

    for name, hops in benchmark.pedantic(measure, rounds=1).items():
        in_order = sorted(hops)
        record.samples["hop", name] = [hop / 1_000 for hop in in_order]
        for share in (50, 99):
            value = in_order[len(in_order) * share // 100] / 1_000
            record.add(f"hop, p{share}", name, RATE, value, "µs")


def test_batches(benchmark: Any, record: Record, ports: tuple[int, int]) -> None:
    """100,000 runs and their outcomes, 500 at once."""
    measured = benchmark.pedantic(
        lambda: [uvloop.run(batches(ports[0])) for _ in range(ROUNDS)], rounds=1
    )
    names = ["batches out", "batches out, CPU", "batches back", "batches back, CPU"]
    for name, values in zip(names, zip(*measured, strict=True), strict=True):
        record.add(name, OURS, BATCH, min(values))
