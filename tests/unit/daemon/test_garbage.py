"""Collecting garbage in small steps, on a virtual clock and for real."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from wheelsched.clock import SystemClock
from wheelsched.daemon.garbage import ALL, LONGEST_DELAY_NS, NEW, PAUSE_FACTOR, STEP_NS, Collector
from wheelsched.testing import VirtualClock

pytestmark = pytest.mark.proof  # real time: each waits for collections

SECOND = 1_000_000_000


class Knot:
    """A reference cycle, which reference counting never frees."""

    def __init__(self) -> None:
        self.itself = self


class Process(VirtualClock):
    """A clock that advances during full collections, a process size, and a log of collections."""

    def __init__(self, took_ns: int = 0) -> None:
        super().__init__()
        self._took_ns = took_ns
        self._spent_ns = 0
        self.size = 100
        self.seen: list[tuple[int, int]] = []
        self.is_busy = False
        collector = Collector(self, self.collect, lambda: self.size, lambda: self.is_busy)
        self.running = asyncio.create_task(collector.run())

    def now_ns(self) -> int:
        return super().now_ns() + self._spent_ns

    def collect(self, generation: int) -> int:
        self.seen.append((self.now_ns(), generation))
        if generation == ALL:
            self._spent_ns += self._took_ns
        return 0

    def times_of(self, generation: int) -> list[int]:
        return [at_ns for at_ns, seen in self.seen if seen == generation]

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running], timeout=60)


@pytest.fixture(autouse=True)
async def unfrozen() -> AsyncIterator[None]:
    yield
    gc.unfreeze()
    assert gc.isenabled()


async def test_young_objects_are_collected_in_every_step() -> None:
    process = Process()
    await process.advance(60 * SECOND)
    await process.stop()
    assert len(process.times_of(NEW)) == 60 * SECOND // STEP_NS
    assert process.times_of(ALL) == [0]


async def test_all_objects_are_collected_when_the_process_has_grown() -> None:
    process = Process()
    await process.advance(SECOND)
    process.size = 125
    await process.advance(SECOND)
    assert len(process.times_of(ALL)) == 1
    process.size = 126
    await process.advance(SECOND)
    assert process.times_of(ALL) == [0, 2 * SECOND + STEP_NS]
    process.size = 157
    await process.advance(SECOND)
    await process.stop()
    assert len(process.times_of(ALL)) == 2


async def test_a_full_collection_waits_while_the_process_is_busy() -> None:
    process = Process()
    await process.advance(SECOND)
    process.size, process.is_busy = 126, True
    await process.advance(3 * SECOND)
    assert process.times_of(ALL) == [0]
    process.is_busy = False
    await process.advance(STEP_NS)
    await process.stop()
    assert process.times_of(ALL) == [0, 4 * SECOND + STEP_NS]


async def test_a_full_collection_does_not_wait_for_long() -> None:
    process = Process()
    await process.advance(SECOND)
    for size in (126, 158):  # the second delay begins anew
        process.size, process.is_busy = size, True
        await process.advance(LONGEST_DELAY_NS)
        await process.advance(SECOND)
    await process.stop()
    first_ns = SECOND + STEP_NS + LONGEST_DELAY_NS
    assert process.times_of(ALL) == [0, first_ns, first_ns + SECOND + LONGEST_DELAY_NS]


async def test_collected_objects_are_frozen() -> None:
    process = Process()
    await process.advance(SECOND)
    grown = [[number] for number in range(10_000)]
    before = gc.get_freeze_count()
    process.size = 126
    await process.advance(SECOND)
    await process.stop()
    assert gc.get_freeze_count() >= before + len(grown)


async def test_a_slow_collection_is_followed_by_a_long_pause() -> None:
    process = Process(took_ns=SECOND // 5)
    for second in range(600):
        process.size = 100 * 2**second
        await process.advance(SECOND)
    await process.stop()
    times_ns = process.times_of(ALL)
    gaps_ns = [later - sooner for sooner, later in pairwise(times_ns)]
    assert len(gaps_ns) == 3
    assert min(gaps_ns) >= PAUSE_FACTOR * SECOND // 5
    assert len(process.times_of(NEW)) > 595 * SECOND // STEP_NS


async def test_cyclic_garbage_is_freed() -> None:
    """And only in its step, never by the interpreter on an allocation."""
    machine = SystemClock()
    running = asyncio.create_task(Collector(machine).run())
    async with asyncio.timeout(60):
        while gc.isenabled():
            await machine.sleep(0)
        knot = weakref.ref(Knot())
        many = [[] for _ in range(100_000)]  # type: ignore[var-annotated]
        assert knot() is not None
        assert many
        while knot() is not None:
            await machine.sleep(STEP_NS)
    running.cancel()
    await asyncio.wait([running], timeout=60)
