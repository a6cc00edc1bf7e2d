"""A process and a shard at both ends of a link, over sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from tests.desks import TENANT, UNTIL_US, MemoryShard, queue_run
from tests.waiting import until

from wheelsched.clock import SystemClock
from wheelsched.config import LinkConfig
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.delivery.link.client import LinkClient, ShardAddress
from wheelsched.delivery.link.handshake import Identity, new_key
from wheelsched.delivery.link.messages import Greeting, encode
from wheelsched.delivery.link.server import LinkServer
from wheelsched.errors import LinkLost, LinkRefused
from wheelsched.ports.work import Attempted, Desk, Desks, Pool, QueueRun, Receipt, Waiting

SHARD = Identity(uuid4(), new_key())
PROCESS = Identity(uuid4(), new_key())
POOL = Pool(TENANT, ("billing",))
CONFIG = LinkConfig(tick_ns=200_000_000, silent_ticks=25, backoff_ns=1_000_000)


class Process:
    """The process at one end: a `Receiver`, and the desk that it has now."""

    def __init__(self) -> None:
        self.runs: list[QueueRun] = []
        self.cancelled: list[Attempted] = []
        self.waits: list[tuple[UUID, str, int]] = []
        self.desk: Desk | None = None
        self.attached = 0

    def attach(self, desks: Desks) -> Callable[[], None]:
        self.desk = desks.open(self)
        self.attached += 1

        def detach() -> None:
            self.desk = None

        return detach

    def hand_out(self, pool: Pool, runs: Any, until_us: int) -> None:
        assert pool == POOL
        assert until_us == UNTIL_US
        self.runs += runs

    def cancel(self, attempts: Any) -> None:
        self.cancelled += attempts

    def wait(self, tenant_id: UUID, queue: str, count: int) -> None:
        self.waits.append((tenant_id, queue, count))

    async def opened(self) -> Desk:
        await so(lambda: self.desk is not None)
        assert self.desk is not None
        return self.desk


async def so(condition: Callable[[], object]) -> None:
    async def ask() -> object:
        return condition()

    await until(ask)


async def find_process(process_id: UUID) -> Identity:
    if process_id != PROCESS.id:
        raise LinkRefused(f"process {process_id} is not in the database")
    return PROCESS


@asynccontextmanager
async def serving(
    shard: MemoryShard,
    config: LinkConfig = CONFIG,
    find: Callable[[UUID], Awaitable[Identity]] = find_process,
) -> AsyncIterator[LinkServer]:
    async with LinkServer(shard, find, SystemClock(), config) as server:
        server.identify(SHARD)
        yield server


@asynccontextmanager
async def dialling(
    address: str, process: Process, config: LinkConfig = CONFIG, shard: Identity = SHARD
) -> AsyncIterator[LinkClient]:
    host, port = address.split(":")
    place = ShardAddress(shard, host, int(port))
    client = LinkClient(PROCESS, place, process.attach, SystemClock(), config)
    running = asyncio.ensure_future(client.run())
    try:
        yield client
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_runs_and_outcomes_pass_the_link() -> None:
    shard, process = MemoryShard(), Process()
    run, content = queue_run(content=b"\xff" * 100), b"\xff" * 100
    async with serving(shard) as server, dialling(await server.start(), process):
        desk = await process.opened()
        desk.lend(POOL, 2)
        await so(lambda: shard.desks and shard.desks[0].credits[POOL] == 2)
        shard.add(run)
        await so(lambda: process.runs)
        assert process.runs == [run]
        assert process.runs[0].content == content
        outcomes: list[tuple[Attempted, Outcome]] = [
            (run.attempt, Failed(error="no", retry_after_us=3)),
            (run.attempt, Succeeded()),
            (queue_run().attempt, Succeeded()),
        ]
        receipts = await desk.finish(outcomes)
        assert receipts == [Receipt.WRITTEN, Receipt.STALE, Receipt.UNKNOWN]
        assert shard.finished == {run.attempt: Failed(error="no", retry_after_us=3)}


async def test_credits_waits_cancels_and_returned_runs_pass_the_link() -> None:
    shard, process = MemoryShard(), Process()
    first, second = queue_run(), queue_run()
    async with serving(shard) as server, dialling(await server.start(), process):
        desk = await process.opened()
        desk.lend(POOL, 0)
        shard.add(first, second)
        await so(lambda: (TENANT, "billing", 2) in process.waits)
        assert await desk.waiting(TENANT) == [Waiting("billing", 2, 1_000)]
        assert await desk.waiting(UUID(int=2)) == []
        desk.lend(POOL, 1)
        await so(lambda: process.runs)
        assert process.runs == [first]
        shard.desks[0].receiver.cancel([first.attempt])
        await so(lambda: process.cancelled == [first.attempt])
        desk.give_back([first.attempt])
        desk.lend(POOL, 5)
        await so(lambda: len(process.runs) == 3)
        returned: list[int] = []
        desk.recall(POOL, 10, returned.append)
        await so(lambda: returned)
        assert returned == [3]
        desk.forget(POOL)
        await so(lambda: not shard.desks[0].pools)


async def test_a_link_that_is_lost_is_opened_again() -> None:
    shard, process = MemoryShard(), Process()
    async with serving(shard) as server, dialling(await server.start(), process):
        desk = await process.opened()
        desk.lend(POOL, 1)
        await so(lambda: shard.desks and shard.desks[0].credits[POOL])
        server.identify(SHARD)  # a new lease ends all links
        await so(lambda: process.attached == 2)
        assert not any(desk.credits[POOL] for desk in shard.desks)
        with pytest.raises(LinkLost):
            await desk.finish([(queue_run().attempt, Succeeded())])
        await so(lambda: len(shard.desks) == 1 and server.links == 1)


async def test_an_answer_that_is_lost_with_the_link_raises() -> None:
    shard, process = MemoryShard(), Process()
    is_asked, never = asyncio.Event(), asyncio.Event()

    async def finish(_: object) -> list[Receipt]:
        is_asked.set()
        await never.wait()
        return []

    async with serving(shard) as server, dialling(await server.start(), process):
        desk = await process.opened()
        await so(lambda: shard.desks)
        shard.desks[0].finish = finish  # type: ignore[method-assign, assignment]
        finishing = asyncio.ensure_future(desk.finish([(queue_run().attempt, Succeeded())]))
        await is_asked.wait()
        server.identify(None)
        with pytest.raises(LinkLost):
            await finishing


async def test_a_shard_with_another_key_gets_no_credit() -> None:
    shard, process = MemoryShard(), Process()
    async with serving(shard) as server:
        address = await server.start()
        async with dialling(address, process, shard=replace(SHARD, key=new_key())):
            await asyncio.sleep(0.3)
        assert not process.attached
        assert not shard.desks


async def test_an_unknown_process_gets_no_desk() -> None:
    shard, process = MemoryShard(), Process()
    looked_up = asyncio.Event()

    async def find(process_id: UUID) -> Identity:
        looked_up.set()
        raise LinkRefused(f"process {process_id} is not in the database")

    async with serving(shard, find=find) as server, dialling(await server.start(), process):
        await looked_up.wait()
        await asyncio.sleep(0.1)
        assert not process.attached
        assert not shard.desks


async def test_connections_in_the_handshake_are_bounded_in_number_and_time() -> None:
    config = LinkConfig(tick_ns=50_000_000, silent_ticks=4, max_unproven=2, backoff_ns=1_000_000)
    shard, process = MemoryShard(), Process()
    async with serving(shard, config) as server:
        address = await server.start()
        host, port = address.split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        for reader, _ in silent:
            await reader.readexactly(4)  # the greeting: both are in the handshake
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await refused(reader)
        for held, _ in silent:
            assert await refused(held)  # after the time for the handshake
        async with dialling(address, process, config):
            await process.opened()
        for _, open_writer in (*silent, (reader, writer)):
            open_writer.close()


@pytest.mark.parametrize("sent", [b"\xff" * 8, b"GET / HTTP/1.1\r\n\r\n", encode(Greeting(1, b""))])
async def test_a_stranger_is_cut_at_once(sent: bytes) -> None:
    async with serving(MemoryShard()) as server:
        host, port = (await server.start()).split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        assert await refused(reader)
        writer.close()


async def test_a_process_that_connects_again_loses_its_earlier_link() -> None:
    shard, first, second = MemoryShard(), Process(), Process()
    async with serving(shard) as server:
        address = await server.start()
        hour_ns = 3_600_000_000_000
        async with dialling(
            address, first, replace(CONFIG, backoff_ns=hour_ns, max_backoff_ns=hour_ns)
        ):
            await first.opened()
            async with dialling(address, second):
                await second.opened()
                await so(lambda: first.desk is None and len(shard.desks) == 1)


async def test_a_silent_shard_is_noticed() -> None:
    """It accepts the connection and proves its key, and then nothing comes any more."""
    config = LinkConfig(tick_ns=50_000_000, silent_ticks=4, backoff_ns=1_000_000)
    shard, process = MemoryShard(), Process()
    frozen = replace(CONFIG, tick_ns=600_000_000_000)  # it sends no keep-alive
    async with serving(shard, frozen) as server, dialling(await server.start(), process, config):
        await process.opened()
        await so(lambda: process.attached >= 2)


async def test_a_silent_process_is_noticed() -> None:
    config = LinkConfig(tick_ns=50_000_000, silent_ticks=4, backoff_ns=1_000_000)
    shard, process = MemoryShard(), Process()
    frozen = replace(CONFIG, tick_ns=600_000_000_000)
    async with serving(shard, config) as server, dialling(await server.start(), process, frozen):
        await process.opened()
        await so(lambda: process.attached >= 2)


async def test_a_process_that_does_not_read_holds_the_desk_and_is_cut() -> None:
    config = LinkConfig(tick_ns=50_000_000, silent_ticks=10, full_bytes=100_000)
    shard, process = MemoryShard(), Process()
    async with serving(shard, config) as server, dialling(await server.start(), process, config):
        desk = await process.opened()
        desk.lend(POOL, 1_000)
        await so(lambda: shard.desks and shard.desks[0].credits[POOL] == 1_000)
        held = shard.desks[0]
        desk.pause()
        for _ in range(1_000):
            shard.add(queue_run(content=b"x" * 100_000))
            if held.is_paused:
                await asyncio.sleep(0)  # the kernel may take it
        assert held.is_paused
        assert shard.waiting  # more than 100,000 bytes were not handed out
        await so(lambda: held not in shard.desks)


async def test_a_process_that_reads_again_gets_the_rest() -> None:
    config = replace(CONFIG, full_bytes=100_000)
    shard, process = MemoryShard(), Process()
    async with serving(shard, config) as server, dialling(await server.start(), process, config):
        desk = await process.opened()
        desk.lend(POOL, 300)
        await so(lambda: shard.desks and shard.desks[0].credits[POOL] == 300)
        desk.pause()
        for _ in range(300):
            shard.add(queue_run(content=b"x" * 100_000))
            await asyncio.sleep(0)
        assert shard.desks[0].is_paused
        desk.resume()
        await so(lambda: len(process.runs) == 300)


async def refused(reader: asyncio.StreamReader) -> bool:
    """Whether the peer ends the connection."""
    try:
        while await reader.read(1_000):
            pass
    except ConnectionError:
        pass
    return True
