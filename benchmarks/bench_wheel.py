"""The wheel against its rivals, every figure of one table from one run.

make bench ONLY=wheel
"""

from __future__ import annotations

import gc
import random
import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from report import Record, Target
from rivals import (
    Firing,
    HeapRival,
    LoopRival,
    Rival,
    SortedRival,
    UvloopRival,
    WheelRival,
    fire,
    worst_step,
)

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
TEN_MINUTES = 10 * MINUTE
MILLION = 1_000_000
SIZES = [10_000, 167_000, MILLION]

# The slow ones are not asked to be slow at every size.
FIRING: list[tuple[type[Firing], int]] = [
    *((kind, size) for kind in (WheelRival, HeapRival) for size in SIZES),
    *((SortedRival, size) for size in SIZES[:2]),
]
ALL: list[tuple[type[Rival], int]] = [
    *FIRING,
    *((kind, size) for kind in (LoopRival, UvloopRival) for size in (SIZES[0], MILLION)),
]

TARGETS = [
    Target("batch insert, reserved, vs heapq", "insert, reserved", MILLION, "heapq", 8),
    Target("batch insert, hot second, vs heapq", "insert, hot second", MILLION, "heapq", 20),
    Target("batch insert, growing cold, vs heapq", "insert, cold", MILLION, "heapq", 2),
    Target("batch insert vs asyncio call_at", "insert, reserved", MILLION, "asyncio", 100),
    Target("batch insert vs uvloop call_at", "insert, reserved", MILLION, "uvloop", 100),
    Target("batch reschedule vs heapq", "reschedule", MILLION, "heapq", 20),
    Target("fire in 1 ms steps vs heapq", "fire, 1 ms steps", MILLION, "heapq", 30),
    Target("fire a hot second vs heapq", "fire, hot second", MILLION, "heapq", 100),
    Target("single add + cancel vs heapq", "add + cancel", MILLION, "heapq", 2.5),
    Target("single add + cancel vs uvloop", "add + cancel", MILLION, "uvloop", 20),
    Target("single add + cancel vs asyncio", "add + cancel", MILLION, "asyncio", 30),
    Target("worst tick of a 500,000-timer hot second, µs", "worst tick", 500_000, None, 150),
    Target("bytes per timer", "memory", MILLION, None, 40),
]


@pytest.fixture(scope="module", autouse=True)
def targets(record: Record) -> None:
    record.targets = TARGETS


def spread(size: int, start: int = 0, length: int = TEN_MINUTES) -> array[int]:
    chance = random.Random(size)
    return array("q", [start + int(chance.random() * length) for _ in range(size)])


def measure(
    benchmark: Any,
    kind: type[Rival],
    prepare: Callable[[], tuple[Rival, tuple[Any, ...]]],
    operate: Callable[..., object],
    operations: int,
) -> float:
    """The best time of a few rounds, in nanoseconds for each operation."""
    made: list[Rival] = []

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        while made:
            made.pop().close()
        rival, arguments = prepare()
        made.append(rival)
        gc.collect()
        return (rival, *arguments), {}

    rounds = 5 if kind.name == "wheel" else 2
    benchmark.pedantic(operate, setup=setup, rounds=rounds)
    made.pop().close()
    return float(benchmark.stats.stats.min) / operations * 1e9


def add_many(rival: Rival, deadlines: array[int], keys: array[int]) -> None:
    rival.add_many(deadlines, keys)


@pytest.mark.parametrize(("kind", "size"), ALL, ids=str)
def test_insert_reserved(benchmark: Any, record: Record, kind: type[Rival], size: int) -> None:
    deadlines, keys = spread(size), array("q", range(size))
    value = measure(
        benchmark, kind, lambda: (kind(capacity=size), (deadlines, keys)), add_many, size
    )
    record.add("insert, reserved", kind.name, size, value)


@pytest.mark.parametrize(("kind", "size"), FIRING, ids=str)
def test_insert_cold(benchmark: Any, record: Record, kind: type[Rival], size: int) -> None:
    deadlines, keys = spread(size), array("q", range(size))
    value = measure(benchmark, kind, lambda: (kind(), (deadlines, keys)), add_many, size)
    record.add("insert, cold", kind.name, size, value)


@pytest.mark.parametrize(("kind", "size"), FIRING, ids=str)
def test_insert_hot_second(benchmark: Any, record: Record, kind: type[Rival], size: int) -> None:
    deadlines, keys = spread(size, MINUTE, SECOND), array("q", range(size))
    value = measure(
        benchmark, kind, lambda: (kind(capacity=size), (deadlines, keys)), add_many, size
    )
    record.add("insert, hot second", kind.name, size, value)


@pytest.mark.parametrize(("kind", "size"), FIRING, ids=str)
def test_reschedule(benchmark: Any, record: Record, kind: type[Firing], size: int) -> None:
    """To random times, half of them earlier."""
    deadlines, others, keys = spread(size), spread(size + 1)[:size], array("q", range(size))

    def prepare() -> tuple[Firing, tuple[Any, ...]]:
        rival = kind(capacity=size)
        return rival, (rival.add_many(deadlines, keys), others)

    def operate(rival: Firing, handles: Any, others: array[int]) -> None:
        rival.reschedule_many(handles, others)

    record.add("reschedule", kind.name, size, measure(benchmark, kind, prepare, operate, size))


@pytest.mark.parametrize(("kind", "size"), ALL, ids=str)
def test_add_and_cancel(benchmark: Any, record: Record, kind: type[Rival], size: int) -> None:
    """One by one, beside `size` timers that stay."""
    deadlines, keys = spread(size), array("q", range(size))
    others = spread(20_000)

    def prepare() -> tuple[Rival, tuple[Any, ...]]:
        rival = kind(capacity=size)
        rival.add_many(deadlines, keys)
        return rival, (others,)

    def operate(rival: Rival, others: array[int]) -> None:
        rival.add_and_cancel(others)

    record.add(
        "add + cancel", kind.name, size, measure(benchmark, kind, prepare, operate, len(others))
    )


@pytest.mark.parametrize(("kind", "size"), FIRING, ids=str)
def test_fire_in_steps(benchmark: Any, record: Record, kind: type[Firing], size: int) -> None:
    """A minute of timers, a millisecond at a time."""
    deadlines, keys = spread(size, length=MINUTE), array("q", range(size))

    def prepare() -> tuple[Firing, tuple[Any, ...]]:
        rival = kind(capacity=size)
        rival.add_many(deadlines, keys)
        return rival, ()

    def operate(rival: Firing) -> None:
        assert fire(rival, 0, MINUTE + SECOND, 1_000_000) == size

    record.add(
        "fire, 1 ms steps", kind.name, size, measure(benchmark, kind, prepare, operate, size)
    )


@pytest.mark.parametrize(("kind", "size"), FIRING, ids=str)
def test_fire_hot_second(benchmark: Any, record: Record, kind: type[Firing], size: int) -> None:
    deadlines, keys = spread(size, MINUTE, SECOND), array("q", range(size))

    def prepare() -> tuple[Firing, tuple[Any, ...]]:
        rival = kind(capacity=size)
        rival.add_many(deadlines, keys)
        fire(rival, MINUTE - SECOND, MINUTE, 1_000_000)
        return rival, ()

    def operate(rival: Firing) -> None:
        assert fire(rival, MINUTE, MINUTE + SECOND + 2_000_000, 1_000_000) == size

    record.add(
        "fire, hot second", kind.name, size, measure(benchmark, kind, prepare, operate, size)
    )


@pytest.mark.parametrize("kind", [WheelRival, HeapRival], ids=str)
def test_worst_tick(benchmark: Any, record: Record, kind: type[Firing]) -> None:
    """The longest step of the half minute around a hot second of 500,000; the best of rounds."""
    size = 500_000
    deadlines, keys = spread(size, MINUTE, SECOND), array("q", range(size))
    worst: list[int] = []

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        rival = kind(capacity=size)
        rival.add_many(deadlines, keys)
        gc.collect()
        return (rival,), {}

    def operate(rival: Firing) -> None:
        gc.disable()
        try:
            worst.append(worst_step(rival, MINUTE - 15 * SECOND, MINUTE + 15 * SECOND, 1_048_576))
        finally:
            gc.enable()

    benchmark.pedantic(operate, setup=setup, rounds=7 if kind.name == "wheel" else 3)
    record.add("worst tick", kind.name, size, min(worst) / 1_000, "µs")


@pytest.mark.parametrize(("kind", "size"), ALL, ids=str)
def test_memory(benchmark: Any, record: Record, kind: type[Rival], size: int) -> None:
    """What a timer takes, with its key and whatever is needed to cancel it.

    uvloop allocates outside Python's sight: its figure is what Python sees of it.
    """
    deadlines, keys = spread(size), array("q", range(size))
    taken: list[int] = []

    def operate() -> None:
        gc.collect()
        tracemalloc.start()
        rival = kind()
        handles = rival.add_many(deadlines, keys)
        taken.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        if isinstance(handles, array):
            taken[-1] -= len(handles) * handles.itemsize
        rival.close()

    benchmark.pedantic(operate, rounds=1)
    record.add("memory", kind.name, size, taken[0] / size, "bytes")
