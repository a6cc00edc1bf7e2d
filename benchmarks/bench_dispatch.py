"""What does a callback cost? The dispatcher against a plain aiohttp client and a bare protocol.

    make bench ONLY=dispatch

All of them call the same worker, which is a process of its own and does nothing, with as many
requests at once, one after another in each round. The bare protocol is the floor: it writes bytes
to a socket and waits until some come back. Callbacks are prepared before the clock runs, as armed
runs are; `prepare` tells what that takes. Per callback, in batches too: the time until all were
answered, and the CPU time of the caller alone.
"""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
import uvloop

from report import Record, Target
from wheelsched.config import DispatchConfig, EgressConfig
from wheelsched.core.model import HttpTarget as JobTarget
from wheelsched.core.model import RunKey, Trigger
from wheelsched.core.outcome import Succeeded
from wheelsched.core.targets.egress import LOOPBACK
from wheelsched.delivery.http.dispatcher import HttpDispatcher
from wheelsched.ports import Callback, Prepared
from wheelsched.wire.callback import decode_elements, encode_answers

OURS = "dispatcher"
ROUNDS = 7
AT_ONCE = 100
CALLBACKS = 5_000
BATCH = 500
BATCHES = 100
BATCHES_AT_ONCE = 10
TARGETS = [
    Target("single, against aiohttp's rate", "single, elapsed", AT_ONCE, "aiohttp", 3),
    Target("single, against aiohttp's CPU", "single, CPU", AT_ONCE, "aiohttp", 3),
    Target("prepare a single callback, in ns", "prepare, single", 1, None, 10_000),
]

START_US = 1_794_837_600_000_000
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PAYLOAD = b'{"report":"weekly"}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"

Ask = Callable[[int], Awaitable[None]]  # the request of that number
Rival = Callable[[], AbstractAsyncContextManager[Ask]]
Measured = tuple[float, float]  # ns for each request: elapsed, and of CPU


class Answering(asyncio.Protocol):
    """A worker that says yes to whatever it is asked."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = bytes(self._received).partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        if not end or len(body) < length:
            return
        self._received.clear()
        answer = b"null" if body[:1] != b"[" else _agree(body)
        self._transport.write(HEAD % (len(answer), answer))


def _agree(body: bytes) -> bytes:
    return encode_answers([{"run_id": each.run_id, "ok": True} for each in decode_elements(body)])


def serve(ports: Connection) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Answering, "127.0.0.1", 0)
        ports.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(run())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=serve, args=(theirs,), daemon=True)
    worker.start()
    yield f"http://127.0.0.1:{ours.recv()}/hooks/report"
    worker.terminate()
    worker.join()


@pytest.fixture(scope="module", autouse=True)
def targets(record: Record) -> None:
    record.targets = TARGETS


def callback(number: int) -> Callback:
    job_id = uuid4()
    return Callback(
        key=RunKey(job_id, START_US),
        job_name=f"report-{number}",
        payload=PAYLOAD,
        secrets=(SECRET,),
        scheduled_us=START_US,
        send_at_us=START_US,
        timeout_us=60_000_000,
        attempt=1,
        token=(7 << 32) + number,
        trigger=Trigger.SCHEDULE,
        idempotency_key=f"{job_id}:{START_US // 1_000_000}",
    )


def dispatcher() -> HttpDispatcher:
    config = DispatchConfig(egress=EgressConfig(allow=LOOPBACK))
    return HttpDispatcher(config, lambda: START_US)


@asynccontextmanager
async def by_dispatcher(url: str, requests: int, batch: int = 1) -> AsyncIterator[Ask]:
    async with dispatcher() as ours:
        route = ours.route(uuid4(), JobTarget(url=url, batch=batch))
        ready: list[list[Prepared]] = [
            [ours.prepare(route, callback(number)) for number in range(batch)]
            for _ in range(requests)
        ]

        async def ask(number: int) -> None:
            outcomes = await ours.send(route, ready[number], lambda: True)
            assert outcomes == [Succeeded(http_status=200)] * batch

        yield ask


@asynccontextmanager
async def by_aiohttp(url: str, requests: int, body: bytes = PAYLOAD) -> AsyncIterator[Ask]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:

        async def ask(number: int) -> None:
            async with session.post(url, data=body) as response:
                await response.read()
                assert response.status == 200

        yield ask


class Bare(asyncio.Protocol):
    """Takes whatever comes for the answer, until it ends as one does."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.answered: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        if data.endswith((b"null", b"]")) and self.answered is not None:
            self.answered.set_result(None)


@asynccontextmanager
async def by_bare_protocol(url: str, requests: int, body: bytes = PAYLOAD) -> AsyncIterator[Ask]:
    loop = asyncio.get_running_loop()
    port = int(url.split(":")[2].split("/", maxsplit=1)[0])
    opened = [await loop.create_connection(Bare, "127.0.0.1", port) for _ in range(AT_ONCE)]
    free = [protocol for _, protocol in opened]
    request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def ask(number: int) -> None:
        connection = free.pop()
        connection.answered = loop.create_future()
        connection.transport.write(request)
        await connection.answered
        free.append(connection)

    yield ask
    for transport, _ in opened:
        transport.abort()


async def measure(rival: Rival, requests: int, at_once: int) -> Measured:
    async with rival() as ask:
        await asyncio.gather(*map(ask, range(at_once)))  # opens all connections
        numbers = iter(range(requests))

        async def go_on() -> None:
            for number in numbers:
                await ask(number)

        elapsed_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        await asyncio.gather(*(go_on() for _ in range(at_once)))
        return (
            (time.perf_counter_ns() - elapsed_ns) / requests,
            (time.process_time_ns() - cpu_ns) / requests,
        )


def compare(rivals: dict[str, Rival], requests: int, at_once: int) -> dict[str, Measured]:
    """The best of each rival, in rounds: what the machine does meanwhile hits all of them."""
    rounds: dict[str, list[Measured]] = {name: [] for name in rivals}
    for _ in range(ROUNDS):
        for name, rival in rivals.items():
            rounds[name].append(uvloop.run(measure(rival, requests, at_once)))
    return {
        name: (min(elapsed for elapsed, _ in measured), min(cpu for _, cpu in measured))
        for name, measured in rounds.items()
    }


def test_single(benchmark: Any, record: Record, url: str) -> None:
    """5,000 callbacks, 100 at once."""
    rivals = {
        "dispatcher": partial(by_dispatcher, url, CALLBACKS),
        "aiohttp": partial(by_aiohttp, url, CALLBACKS),
        "bare protocol": partial(by_bare_protocol, url, CALLBACKS),
    }
    best = benchmark.pedantic(compare, (rivals, CALLBACKS, AT_ONCE), rounds=1)
    for name, (elapsed_ns, cpu_ns) in best.items():
        record.add("single, elapsed", name, AT_ONCE, elapsed_ns)
        record.add("single, CPU", name, AT_ONCE, cpu_ns)


def test_batched(benchmark: Any, record: Record, url: str) -> None:
    """50,000 callbacks, 500 in a request, 10 requests at once."""
    body = uvloop.run(encoded_batch(url))
    rivals = {
        "dispatcher": partial(by_dispatcher, url, BATCHES, BATCH),
        "aiohttp": partial(by_aiohttp, url, BATCHES, body),
        "bare protocol": partial(by_bare_protocol, url, BATCHES, body),
    }
    best = benchmark.pedantic(compare, (rivals, BATCHES, BATCHES_AT_ONCE), rounds=1)
    for name, (elapsed_ns, cpu_ns) in best.items():
        record.add("batched, elapsed", name, BATCH, elapsed_ns / BATCH)
        record.add("batched, CPU", name, BATCH, cpu_ns / BATCH)


@pytest.mark.parametrize(("kind", "batch"), [("single", 1), ("batched", BATCH)])
def test_prepare(benchmark: Any, record: Record, url: str, kind: str, batch: int) -> None:
    """Encoding and signing, for each callback."""
    callbacks = [callback(number) for number in range(CALLBACKS)]
    cpu_ns: list[float] = []

    async def prepare() -> None:
        async with dispatcher() as ours:
            route = ours.route(uuid4(), JobTarget(url=url, batch=batch))
            begun_ns = time.process_time_ns()
            for each in callbacks:
                ours.prepare(route, each)
            cpu_ns.append((time.process_time_ns() - begun_ns) / CALLBACKS)

    benchmark.pedantic(lambda: uvloop.run(prepare()), rounds=ROUNDS)
    record.add(f"prepare, {kind}", OURS, batch, min(cpu_ns))


async def encoded_batch(url: str) -> bytes:
    async with dispatcher() as ours:
        route = ours.route(uuid4(), JobTarget(url=url, batch=BATCH))
        elements = [ours.prepare(route, callback(number)).content for number in range(BATCH)]
        return b"[%b]" % b",".join(elements)
