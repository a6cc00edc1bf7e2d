"""Syncing with a database clock, on a virtual machine clock."""

import asyncio
from collections.abc import Callable

import pytest

from wheelsched.clock import DatabaseClock
from wheelsched.core.offset import STEP_SAMPLES, ClockSample
from wheelsched.daemon.clock_sync import FRESH_NS, MAX_SAMPLES, SAMPLE_NS, ClockSync
from wheelsched.errors import StoreUnavailable
from wheelsched.testing import VirtualClock
from wheelsched.testing.leases import MemoryLeases
from wheelsched.testing.tables import MemoryTables

SECOND_US = 1_000_000
STEP_US = 30 * SECOND_US
WAITING = 2


class Leases(MemoryLeases):
    """A database clock that can be stepped, delayed and unavailable."""

    def __init__(self, machine: VirtualClock) -> None:
        self.offset_us = 1_800_000_000 * SECOND_US
        super().__init__(MemoryTables(lambda: machine.now_ns() // 1_000 + self.offset_us))
        self.readings = 0
        self.is_away = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def read_clock(self, now_ns: Callable[[], int]) -> ClockSample:
        self.readings += 1
        await self.answers.wait()
        if self.is_away:
            raise StoreUnavailable
        return await super().read_clock(now_ns)


class World:
    """A machine clock, a database clock, and the sync between them."""

    def __init__(self) -> None:
        self.machine = VirtualClock()
        self.leases = Leases(self.machine)
        known = ClockSample(0, self.leases.offset_us, 0)
        self.clock = DatabaseClock(self.machine, known)
        self.readings = ClockSync(self.machine, self.clock, self.leases)

    @property
    def error_us(self) -> int:
        return self.clock.now_us() - self.machine.now_ns() // 1_000 - self.leases.offset_us


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_clock_step_is_detected_by_the_first_reading(world: World) -> None:
    for step_us in (-STEP_US, STEP_US):
        world.leases.offset_us += step_us
        assert world.error_us == -step_us
        await world.readings.refresh()
        assert world.error_us == 0
        await world.machine.advance(FRESH_NS)
    assert world.leases.readings == 2 * STEP_SAMPLES


async def test_a_second_clock_step_is_followed(world: World) -> None:
    world.leases.offset_us -= STEP_US
    await world.readings.refresh()
    await world.machine.advance(FRESH_NS)
    world.leases.offset_us += 2 * STEP_US
    world.clock.add_sample(await world.leases.read_clock(world.machine.now_ns))
    world.leases.offset_us += STEP_US
    await world.readings.refresh()
    assert world.error_us == 0


async def test_an_unstable_clock_does_not_block_callers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_clock = world.leases.read_clock

    async def read_and_set(now_ns: Callable[[], int]) -> ClockSample:
        world.leases.offset_us -= STEP_US
        return await read_clock(now_ns)

    monkeypatch.setattr(world.leases, "read_clock", read_and_set)
    await world.readings.refresh()
    assert world.leases.readings == MAX_SAMPLES
    await world.readings.refresh()  # nothing was learnt, and nothing is taken for fresh
    assert world.leases.readings == 2 * MAX_SAMPLES


async def test_a_fresh_reading_is_not_repeated(world: World) -> None:
    await world.readings.refresh()
    await world.machine.advance(FRESH_NS - 1)
    await world.readings.refresh()
    assert world.leases.readings == 1
    await world.machine.advance(1)
    await world.readings.refresh()
    assert world.leases.readings == 2


async def test_a_reading_ages_from_when_it_was_sent(world: World) -> None:
    """The database may have read its clock right after the request was sent."""
    read_clock = world.leases.read_clock

    async def read_slowly(now_ns: Callable[[], int]) -> ClockSample:
        sample = await read_clock(now_ns)
        await world.machine.sleep(FRESH_NS)
        return sample._replace(received_ns=now_ns())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.leases, "read_clock", read_slowly)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(world.readings.refresh())
            await world.machine.advance(FRESH_NS)
    await world.readings.refresh()
    assert world.leases.readings == 2


async def begin_waiting(world: World) -> list[asyncio.Task[None]]:
    """Concurrent callers of `refresh`, while the database does not respond yet."""
    world.leases.answers.clear()
    waiting = [asyncio.create_task(world.readings.refresh()) for _ in range(WAITING)]
    await world.machine.run_ready()
    return waiting


async def test_concurrent_callers_share_a_reading(world: World) -> None:
    waiting = await begin_waiting(world)
    assert not any(one.done() for one in waiting)
    world.leases.answers.set()
    await asyncio.gather(*waiting)
    assert world.leases.readings == 1


async def test_a_caller_that_joined_an_old_reading_gets_another(world: World) -> None:
    """The database may have read its clock before it was stepped back."""
    read_clock = world.leases.read_clock

    async def read_slowly(now_ns: Callable[[], int]) -> ClockSample:
        sample = await read_clock(now_ns)
        await world.machine.sleep(4 * FRESH_NS)
        return sample._replace(received_ns=now_ns())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.leases, "read_clock", read_slowly)
        first = asyncio.create_task(world.readings.refresh())
        await world.machine.advance(2 * FRESH_NS)
        world.leases.offset_us -= STEP_US
        second = asyncio.create_task(world.readings.refresh())
        await world.machine.advance(2 * FRESH_NS)
    await world.machine.advance(20 * FRESH_NS)
    await asyncio.gather(first, second)
    assert world.error_us == 0


async def test_a_cancelled_caller_does_not_cancel_the_reading(world: World) -> None:
    first, second = await begin_waiting(world)
    first.cancel()
    world.leases.answers.set()
    await second
    assert first.cancelled()
    assert world.leases.readings == 1


async def test_a_failed_reading_fails_its_waiters_only(world: World) -> None:
    waiting = await begin_waiting(world)
    world.leases.is_away = True
    world.leases.answers.set()
    failures = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in failures] == [StoreUnavailable] * WAITING
    assert world.leases.readings == 1
    world.leases.is_away = False
    await world.readings.refresh()
    assert world.leases.readings == 2


async def test_it_continues_after_steps_and_failures(world: World) -> None:
    keeping_up = asyncio.create_task(world.readings.run())
    await world.machine.run_ready()
    world.leases.is_away = True
    await world.machine.advance(SAMPLE_NS)
    world.leases.is_away = False
    world.leases.offset_us -= STEP_US
    await world.machine.advance(SAMPLE_NS)
    assert world.error_us == 0
    keeping_up.cancel()
    await asyncio.wait([keeping_up], timeout=60)


async def test_close_cancels_the_reading(world: World) -> None:
    waiting = await begin_waiting(world)
    world.readings.close()
    await asyncio.wait(waiting, timeout=60)
    assert all(one.cancelled() for one in waiting)
