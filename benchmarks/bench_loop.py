"""How late is a live loop? Its own call_at against the alarms and the wheel.

    make bench ONLY=loop

For the wake-ups every rival gets the same delays, one each in turn, so that what the machine does
meanwhile hits all of them alike. Lateness counts from the timer's own nanosecond: with a wheel, up
to a tick (1.05 ms) of it is its resolution.
"""

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from statistics import quantiles
from typing import Any

import pytest
import uvloop

from report import Record, Target
from wheelsched.aio import AsyncWheel
from wheelsched.clock import SystemClock

Wake = Callable[[int], Awaitable[int]]
Come = Callable[[list[int], Callable[[int], None], AsyncExitStack], None]

ADDING_NS = 8_000  # enough for each rival to add a timer
TARGETS = [
    Target("500,000 callbacks in a second, p99 in µs", "hot second, p99", 500_000, None, 5_000),
]

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
now_ns = SystemClock.now_ns


@pytest.fixture(scope="module", autouse=True)
def targets(record: Record) -> None:
    record.targets = TARGETS


async def by_call_at(delay_ns: int) -> int:
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[int] = loop.create_future()
    when_ns = now_ns() + delay_ns
    loop.call_at(loop.time() + delay_ns / 1e9, lambda: woken.set_result(now_ns() - when_ns))
    return await woken


class ByAlarm:
    """Wakes up by one alarm, set anew for each wake-up, as a wheel does."""

    def __init__(self, clock: SystemClock) -> None:
        self._alarm = clock.alarm(self._ring)
        self._when_ns = 0

    async def __call__(self, delay_ns: int) -> int:
        self._woken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._when_ns = now_ns() + delay_ns
        self._alarm.set(self._when_ns)
        return await self._woken

    def _ring(self) -> None:
        self._woken.set_result(now_ns() - self._when_ns)


async def wakeups(count: int) -> dict[str, list[int]]:
    rivals: dict[str, Wake] = {
        "call_at": by_call_at,
        "alarm without timerfd": ByAlarm(SystemClock(timerfd=False)),
        "alarm": ByAlarm(SystemClock()),
        "alarm, spin 100 µs": ByAlarm(SystemClock(spin_us=100)),
    }
    late_ns: dict[str, list[int]] = {name: [] for name in rivals}
    source = random.Random(count)
    for _ in range(count):
        delay_ns = source.randrange(500_000, 5_000_000)
        for name, wake in rivals.items():
            late_ns[name].append(await wake(delay_ns))
    return late_ns


@pytest.mark.parametrize("loop", LOOPS)
def test_wakeups(benchmark: Any, record: Record, loop: str) -> None:
    """1,000 wake-ups, half a millisecond to five ahead."""
    late_ns: dict[str, list[int]] = {}

    def wake_up() -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            late_ns.update(runner.run(wakeups(1_000)))

    benchmark.pedantic(wake_up, rounds=1)
    for rival, late in late_ns.items():
        record_lateness(record, f"wake-up, {loop}", rival, late)
        record.add(f"wake-up, {loop}, early", rival, len(late), 100 * early(late), "%")


def come_by_wheel(whens_ns: list[int], came: Callable[[int], None], stack: AsyncExitStack) -> None:
    wheel = AsyncWheel[int]()
    stack.push_async_exit(wheel)
    for when_ns in whens_ns:
        wheel.call_at(when_ns, came, when_ns)


def come_by_loop(whens_ns: list[int], came: Callable[[int], None], stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    offset_ns = now_ns() - int(loop.time() * 1e9)
    for when_ns in whens_ns:
        loop.call_at((when_ns - offset_ns) / 1e9, came, when_ns)


async def hot_second(timers: int, come: Come) -> list[int]:
    """Timers at random times of one second: how late each was called."""
    late_ns: list[int] = []
    all_came = asyncio.Event()

    def came(when_ns: int) -> None:
        late_ns.append(now_ns() - when_ns)
        if len(late_ns) == timers:
            all_came.set()

    chance = random.Random(timers)
    start_ns = now_ns() + timers * ADDING_NS
    async with AsyncExitStack() as stack:
        come([start_ns + chance.randrange(1_000_000_000) for _ in range(timers)], came, stack)
        assert now_ns() < start_ns, "adding them took too long"
        gc.collect()
        gc.freeze()
        try:
            await asyncio.wait_for(all_came.wait(), 120)
        finally:
            gc.unfreeze()
    return late_ns


HOT_SECONDS: list[tuple[str, str, Come]] = [
    ("wheel", "uvloop", come_by_wheel),
    ("call_at", "uvloop", come_by_loop),
    ("call_at, asyncio", "asyncio", come_by_loop),
]


@pytest.mark.parametrize(("rival", "loop", "come"), HOT_SECONDS, ids=str)
def test_hot_second(benchmark: Any, record: Record, rival: str, loop: str, come: Come) -> None:
    """500,000 callbacks within one real second; the quietest of three rounds.

    What was there before the second is frozen for the garbage collector, for every rival: asyncio
    alone would spend a third of the second on looking at its timers.
    """
    rounds: list[list[int]] = []

    def run() -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            rounds.append(runner.run(hot_second(500_000, come)))

    benchmark.pedantic(run, rounds=3)
    best = min(rounds, key=lambda late: quantiles(late, n=100)[98])
    record_lateness(record, "hot second", rival, best)
    if rival == "wheel":
        assert not any(early(late) for late in rounds)


def record_lateness(record: Record, workload: str, rival: str, late_ns: list[int]) -> None:
    cuts_ns = quantiles(late_ns, n=100, method="inclusive")
    record.add(f"{workload}, p50", rival, len(late_ns), cuts_ns[49] / 1_000, "µs")
    record.add(f"{workload}, p99", rival, len(late_ns), cuts_ns[98] / 1_000, "µs")


def early(late_ns: list[int]) -> float:
    """The share that came before its time."""
    return sum(late < 0 for late in late_ns) / len(late_ns)
