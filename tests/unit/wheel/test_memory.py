"""What a wheel takes, and what it does when there is none left."""

from __future__ import annotations

import _testcapi  # type: ignore[import-not-found] # CPython's own, without stubs
import gc
import random
import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from wheelsched import KeyedWheel, ObjectWheel, UUIDWheel, Wheel

TICK = 1 << 20
BLOCK = 256 * TICK
TIMERS = 1_000_000


def spread(count: int) -> array[int]:
    shuffled = random.Random(1)
    return array("q", [shuffled.randrange(600_000_000_000) for _ in range(count)])


def allocated_by(fill: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        kept = fill()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        del kept
        return taken
    finally:
        tracemalloc.stop()


@pytest.mark.proof
def test_bytes_for_each_timer() -> None:
    deadlines = spread(TIMERS)
    keys = array("q", range(TIMERS))
    wide = bytes(array("q", [word for key in keys for word in (key, ~key)]))

    def by_handle() -> Wheel:
        wheel = Wheel()
        wheel.add_many(deadlines, keys)
        return wheel

    def by_key() -> KeyedWheel:
        wheel = KeyedWheel()
        wheel.upsert_many(keys, deadlines)
        return wheel

    def by_uuid() -> UUIDWheel:
        wheel = UUIDWheel()
        wheel.upsert_many(wide, deadlines)
        return wheel

    assert allocated_by(by_handle) / TIMERS <= 40
    assert allocated_by(by_key) / TIMERS <= 64
    assert allocated_by(by_uuid) / TIMERS <= 64
    assert by_handle().stats().bytes / TIMERS <= 40


@pytest.mark.proof
@pytest.mark.parametrize("kind", [Wheel, KeyedWheel])
def test_memory_is_steady_over_a_hundred_fills_and_drains(kind: Any) -> None:
    wheel = kind()
    add = wheel.add_many if kind is Wheel else wheel.upsert_many
    shuffled = random.Random(2)
    keys = array("q", range(20_000))
    sizes = set()
    for cycle in range(100):
        deadlines = array(
            "q", [wheel.now_ns + shuffled.randrange(1, 2_000 * BLOCK) for _ in range(20_000)]
        )
        add(deadlines, keys)
        assert len(wheel.advance(wheel.now_ns + 2_001 * BLOCK)) == 20_000
        if cycle >= 10:
            sizes.add(wheel.stats().bytes)
    assert len(sizes) == 1
    wheel.check()


def test_capacity_is_there_from_the_beginning() -> None:
    wheel = Wheel(capacity=100_000)
    before = wheel.stats()
    assert before.capacity >= 100_000
    wheel.add_many(spread(100_000), array("q", range(100_000)))
    assert wheel.stats().bytes == before.bytes


def survive_every_failing_allocation(
    prepare: Callable[[], Any], operate: Callable[[Any], object], observe: Callable[[Any], object]
) -> int:
    """Let the first, second, third … allocation of an operation fail, until none does.

    After each failure the wheel must be whole and as it was, or, when it was the answer that
    could not be made, as it should be. How many failed.
    """
    wheel = prepare()
    operate(wheel)
    after = observe(wheel)
    for failures in range(1_000):
        wheel = prepare()
        before = observe(wheel)
        _testcapi.set_nomemory(failures, failures + 1)
        try:
            operate(wheel)
            failed = False
        except MemoryError:
            failed = True
        finally:
            _testcapi.remove_mem_hooks()
        wheel.check()
        if not failed:
            return failures
        assert observe(wheel) in (before, after)
    raise AssertionError("it never succeeded")


def timers(wheel: Any) -> tuple[int, list[int]]:
    return len(wheel), wheel.counts(0, 4_000 * BLOCK, BLOCK)


def half_full() -> Wheel:
    wheel = Wheel()
    wheel.add_many(spread(5_000), array("q", range(5_000)))
    return wheel


def test_an_allocation_that_fails_in_add_many_leaves_the_wheel_as_it_was() -> None:
    deadlines = spread(60_000)
    assert survive_every_failing_allocation(
        half_full, lambda wheel: wheel.add_many(deadlines, deadlines), timers
    )


@pytest.mark.parametrize("kind", [Wheel, ObjectWheel])
def test_an_allocation_that_fails_in_add_adds_no_timer(kind: Any) -> None:
    for failures in range(20):
        wheel = kind()
        _testcapi.set_nomemory(failures, failures + 1)
        try:
            wheel.add(BLOCK * 3, 1)
            added = 1
        except MemoryError:
            added = 0
        finally:
            _testcapi.remove_mem_hooks()
        wheel.check()
        assert len(wheel) == added
    assert added == 1


def test_an_allocation_that_fails_in_reschedule_many_leaves_the_wheel_as_it_was() -> None:
    deadlines = spread(5_000)
    handles: array[int] = array("q")

    def prepare() -> Wheel:
        nonlocal handles
        wheel = Wheel()
        handles = wheel.add_many(array("q", [3_000 * BLOCK] * 5_000), array("q", range(5_000)))
        return wheel

    assert survive_every_failing_allocation(
        prepare, lambda wheel: wheel.reschedule_many(handles, deadlines), timers
    )


def test_an_allocation_that_fails_in_upsert_many_leaves_the_wheel_as_it_was() -> None:
    keys, deadlines = array("q", range(30_000)), spread(30_000)
    assert survive_every_failing_allocation(
        KeyedWheel, lambda wheel: wheel.upsert_many(keys, deadlines), timers
    )


@pytest.mark.parametrize("kind", [Wheel, KeyedWheel, ObjectWheel])
def test_an_allocation_that_fails_in_advance_loses_no_timer(kind: Any) -> None:
    """What could not be handed over comes first at the next advance, in the same order."""
    deadlines = spread(4_000)
    expected = None
    for failures in range(0, 12_000, 37):
        wheel = kind()
        if kind is KeyedWheel:
            wheel.upsert_many(array("q", range(4_000)), deadlines)
        else:
            wheel.add_many(deadlines, array("q", range(4_000)))
        now = 300_000_000_000
        if expected is None:
            expected = wheel.advance(now)
            continue
        _testcapi.set_nomemory(failures, failures + 1)
        try:
            taken = wheel.advance(now)
        except MemoryError:
            taken = []
        finally:
            _testcapi.remove_mem_hooks()
        wheel.check()
        taken += wheel.advance(now)
        assert taken == expected


def test_what_could_not_be_handed_over_comes_before_what_a_limit_left_behind() -> None:
    wheel = Wheel(10 * TICK)
    handles = [wheel.add(key, 1_000 + key) for key in range(1, 5)]
    for failures in range(10):
        _testcapi.set_nomemory(failures, failures + 1)
        try:
            taken = wheel.advance(10 * TICK, 2)
        except MemoryError:
            taken = []
        finally:
            _testcapi.remove_mem_hooks()
        if taken:
            break
        wheel.check()
        assert [wheel.deadline(handle) for handle in handles] == [1, 2, 3, 4]
    assert failures > 0
    assert taken + wheel.advance(10 * TICK) == [1_001, 1_002, 1_003, 1_004]


def test_advance_into_without_memory_for_its_answer_loses_no_timer() -> None:
    for failures in range(5):
        wheel = Wheel()
        wheel.add_many(array("q", [TICK]) * 500, array("q", range(500)))
        keys = array("q", bytes(8 * 500))
        _testcapi.set_nomemory(failures, failures + 1)
        try:
            count = wheel.advance_into(TICK, keys)
        except MemoryError:
            count = 0
        finally:
            _testcapi.remove_mem_hooks()
        wheel.check()
        assert len(wheel) == 500 - count
        assert keys[:count].tolist() + wheel.advance(TICK) == list(range(500))
