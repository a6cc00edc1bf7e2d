"""Tests for every `Deduplication`, and then for the one in memory."""

import asyncio
from collections.abc import Callable

import pytest

from wheelsched.errors import RunInProgress
from wheelsched.testing import VirtualClock
from wheelsched.worker import Deduplication, MemoryOnce, PostgresOnce

Patient = Callable[[int], Deduplication]  # by how long a duplicate waits, in milliseconds


@pytest.fixture(params=["memory", "postgres"])
def make(request: pytest.FixtureRequest) -> Patient:
    if request.param == "memory":
        return lambda wait_ms: MemoryOnce(wait_ms=wait_ms)
    pool = request.getfixturevalue("pool")
    return lambda wait_ms: PostgresOnce(pool, wait_ms=wait_ms)


async def claim(once: Deduplication, key: str = "key") -> bool:
    async with once.once(key) as claim:
        return claim.is_first


async def test_a_key_is_done_once(make: Patient) -> None:
    once = make(60_000)
    assert [await claim(once), await claim(once), await claim(once, "other")] == [True, False, True]


async def test_a_failure_gives_the_key_back(make: Patient) -> None:
    once = make(60_000)
    with pytest.raises(ValueError, match="no"):
        async with once.once("key"):
            raise ValueError("no")
    assert await claim(once)


@pytest.mark.parametrize("fails", [True, False])
async def test_a_duplicate_waits_for_the_first(make: Patient, fails: bool) -> None:
    once = make(60_000)
    first, end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with once.once("key"):
            first.set()
            await end.wait()
            if fails:
                raise ValueError

    working = asyncio.create_task(work())
    await first.wait()
    duplicates = [asyncio.create_task(claim(once)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in duplicates)
    end.set()
    assert sorted(await asyncio.gather(*duplicates)) == [False, False, fails]
    await asyncio.gather(working, return_exceptions=True)


async def test_a_duplicate_does_not_wait_forever(make: Patient) -> None:
    once = make(300)
    async with once.once("key"):
        with pytest.raises(RunInProgress):
            await claim(once)
    assert not await claim(once)


async def test_a_key_is_forgotten_after_its_time() -> None:
    clock = VirtualClock(1)
    once = MemoryOnce(keep_ms=1_000, clock=clock)
    assert await claim(once)
    await clock.advance(999_000_000)
    assert not await claim(once)
    await clock.advance(1_000_000)
    assert await claim(once)


async def test_keys_are_bounded_and_the_oldest_goes_first() -> None:
    once = MemoryOnce(capacity=2)
    for key in ("one", "two", "three"):
        assert await claim(once, key)
    assert not await claim(once, "two")
    assert await claim(once, "one")
