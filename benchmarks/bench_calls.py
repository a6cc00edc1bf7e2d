"""What does a timer cost, one by one? AsyncWheel against the loop that it runs on.

    make bench ONLY=calls

The rivals take turns, so that whatever else the machine does hits both alike; the best of several
rounds counts.
"""

import asyncio
import gc
import random
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import pytest
import uvloop

from report import Record, Target
from wheelsched.aio import AsyncWheel

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
LIVE = (1_000, 100_000)  # timers that are pending meanwhile
OPERATIONS = 100_000
BLOCKS = 20_000
ROUNDS = 5

TARGETS = [
    Target(f"{workload}, {loop}, {live:,} pending", f"{workload}, {loop}", live, "loop", 1)
    for workload in ("call_later + cancel", "call_later + call", "timeout of a block")
    for loop in LOOPS
    for live in LIVE
]


@pytest.fixture(scope="module", autouse=True)
def targets(record: Record) -> None:
    record.targets = TARGETS


def delays(count: int) -> list[float]:
    chance = random.Random(count)
    return [chance.uniform(60, 600) for _ in range(count)]


async def cancelling(call_later: Callable[..., Any], live: int) -> float:
    """As many timers stay pending: each new one comes with the end of the oldest."""
    pending = deque(call_later(delay_s, int) for delay_s in delays(live))
    new = delays(OPERATIONS)
    begin_ns = perf_counter_ns()
    for delay_s in new:
        pending.append(call_later(delay_s, int))
        pending.popleft().cancel()
    elapsed_ns = perf_counter_ns() - begin_ns
    for timer in pending:
        timer.cancel()
    return elapsed_ns / OPERATIONS


async def calling(call_later: Callable[..., Any], live: int) -> float:
    """Timers that come due at once, while others are pending."""
    pending = [call_later(delay_s, int) for delay_s in delays(live)]
    came = asyncio.Event()
    begin_ns = perf_counter_ns()
    for _ in range(OPERATIONS - 1):
        call_later(0, int)
    call_later(0, came.set)
    await came.wait()
    elapsed_ns = perf_counter_ns() - begin_ns
    for timer in pending:
        timer.cancel()
    return elapsed_ns / OPERATIONS


async def entering(
    call_later: Callable[..., Any], live: int, limit: Callable[[float], Any]
) -> float:
    pending = [call_later(delay_s, int) for delay_s in delays(live)]
    begin_ns = perf_counter_ns()
    for _ in range(BLOCKS):
        async with limit(30):
            pass
    elapsed_ns = perf_counter_ns() - begin_ns
    for timer in pending:
        timer.cancel()
    return elapsed_ns / BLOCKS


async def compare(workload: str, live: int) -> dict[str, float]:
    """Nanoseconds for each, the best of all rounds."""
    best = {"wheel": float("inf"), "loop": float("inf")}
    loop = asyncio.get_running_loop()
    for _ in range(ROUNDS):
        async with AsyncWheel[int]() as wheel:
            measures: dict[str, tuple[Callable[..., Any], Callable[[float], Any]]] = {
                "wheel": (wheel.call_later, wheel.timeout),
                "loop": (loop.call_later, asyncio.timeout),
            }
            for rival, (call_later, timeout) in measures.items():
                gc.collect()
                match workload:
                    case "call_later + cancel":
                        took_ns = await cancelling(call_later, live)
                    case "call_later + call":
                        took_ns = await calling(call_later, live)
                    case _:
                        took_ns = await entering(call_later, live, timeout)
                best[rival] = min(best[rival], took_ns)
    return best


@pytest.mark.parametrize("live", LIVE)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "workload", ["call_later + cancel", "call_later + call", "timeout of a block"]
)
def test_calls(benchmark: Any, record: Record, workload: str, loop: str, live: int) -> None:
    best: dict[str, float] = {}

    def run() -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            best.update(runner.run(compare(workload, live)))

    benchmark.pedantic(run, rounds=1)
    for rival, took_ns in best.items():
        record.add(f"{workload}, {loop}", rival, live, took_ns)
