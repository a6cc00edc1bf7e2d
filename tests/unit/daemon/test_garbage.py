"""Garbage is collected in small steps: on a virtual clock, and for real."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from wheelsched.clock import SystemClock
from wheelsched.daemon.garbage import ALL, NEW, REST, STEP_NS, Collector
from wheelsched.testing import VirtualClock

SECOND = 1_000_000_000


class Knot:
    """Refers to itself, so that no count of references ever frees it."""

    def __init__(self) -> None:
        self.itself = self


class Process(VirtualClock):
    """A clock that goes on while all is collected, a size, and what was collected when."""

    def __init__(self, took_ns: int = 0) -> None:
        super().__init__()
        self._took_ns = took_ns
        self._spent_ns = 0
        self.size = 100
        self.seen: list[tuple[int, int]] = []
        self.running = asyncio.create_task(Collector(self, self.collect, lambda: self.size).run())

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


async def test_what_is_new_is_looked_at_in_every_step() -> None:
    process = Process()
    await process.advance(60 * SECOND)
    await process.stop()
    assert len(process.times_of(NEW)) == 60 * SECOND // STEP_NS
    assert process.times_of(ALL) == [0]


async def test_what_is_old_is_looked_at_when_the_process_has_grown() -> None:
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


async def test_what_was_looked_at_is_not_looked_at_again() -> None:
    process = Process()
    await process.advance(SECOND)
    grown = [[number] for number in range(10_000)]
    before = gc.get_freeze_count()
    process.size = 126
    await process.advance(SECOND)
    await process.stop()
    assert gc.get_freeze_count() >= before + len(grown)


async def test_after_what_took_long_comes_a_long_rest() -> None:
    process = Process(took_ns=SECOND // 5)
    for second in range(600):
        process.size = 100 * 2**second
        await process.advance(SECOND)
    await process.stop()
    times_ns = process.times_of(ALL)
    gaps_ns = [later - sooner for sooner, later in pairwise(times_ns)]
    assert len(gaps_ns) == 3
    assert min(gaps_ns) >= REST * SECOND // 5
    assert len(process.times_of(NEW)) > 595 * SECOND // STEP_NS


async def test_what_no_count_frees_is_freed() -> None:
    """And nothing is, until its step comes: not by the interpreter, on an allocation of anybody."""
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
