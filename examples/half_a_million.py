"""Half a million timers within one second on a live loop, and how late each of them was.

    python examples/half_a_million.py --timers 500000

Twice: as callbacks, each called by the loop, and as items, taken out in batches. Ends with 0 only
if every timer came and none came early. Lateness counts from the timer's own nanosecond, so up
to a tick of it (1.05 ms) is the wheel's resolution.
"""

import argparse
import asyncio
import gc
import math
import random
import sys
from collections.abc import Iterator
from statistics import quantiles

import uvloop

from wheelsched.aio import AsyncWheel
from wheelsched.clock import SystemClock

SECOND_NS = 1_000_000_000
PATIENCE_S = 60
ADDING_NS = 5_000
BAR_WIDTH = 50
FIRST_EDGE_MS = 0.25

now_ns = SystemClock.now_ns


def times_ns(timers: int, source: random.Random) -> Iterator[int]:
    """Yield random times within one second, which begins when all of them have been added."""
    delays_ns = [source.randrange(SECOND_NS) for _ in range(timers)]
    start_ns = now_ns() + SECOND_NS // 10 + timers * ADDING_NS
    yield from (start_ns + delay_ns for delay_ns in delays_ns)
    if now_ns() > start_ns:
        print("adding them took too long: the first ones were late before they were added")


async def by_callbacks(timers: int, source: random.Random) -> list[int]:
    late_ns: list[int] = []
    all_came = asyncio.Event()

    def came(when_ns: int) -> None:
        late_ns.append(now_ns() - when_ns)
        if len(late_ns) == timers:
            all_came.set()

    async with AsyncWheel[int]() as wheel:
        for when_ns in times_ns(timers, source):
            wheel.call_at(when_ns, came, when_ns)
        await wait(all_came)
    return late_ns


async def by_batches(timers: int, source: random.Random) -> list[int]:
    late_ns: list[int] = []
    all_came = asyncio.Event()

    async def consume() -> None:
        async for batch in wheel.batches():
            came_ns = now_ns()
            late_ns.extend(came_ns - when_ns for when_ns in batch)
            if len(late_ns) == timers:
                all_came.set()

    async with AsyncWheel[int]() as wheel:
        for when_ns in times_ns(timers, source):
            wheel.add(when_ns, when_ns)
        consumer = asyncio.create_task(consume())
        await wait(all_came)
    await consumer
    return late_ns


async def wait(all_came: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(all_came.wait(), PATIENCE_S)
    except TimeoutError:
        print(f"gave up after {PATIENCE_S} s", file=sys.stderr)


def show(title: str, late_ns: list[int], timers: int) -> bool:
    """Draw the histogram; return whether every timer came and none came early."""
    lost = timers - len(late_ns)
    early = sum(late < 0 for late in late_ns)
    print(f"\n{title}: {timers:,} timers in one second")
    draw([late / 1e6 for late in late_ns])
    if len(late_ns) > 1:
        cuts_ns = quantiles(late_ns, n=100, method="inclusive")
        print(
            f"  late p50 {cuts_ns[49] / 1e6:.2f} ms, p99 {cuts_ns[98] / 1e6:.2f} ms, "
            f"max {max(late_ns) / 1e6:.2f} ms; lost {lost}, early {early}"
        )
    return lost == 0 and early == 0


def draw(late_ms: list[float]) -> None:
    """Draw one bar for each doubling of the lateness."""
    counts: dict[int, int] = {}
    for late in late_ms:
        step = max(0, math.ceil(math.log2(max(late, FIRST_EDGE_MS) / FIRST_EDGE_MS)))
        counts[step] = counts.get(step, 0) + 1
    fullest = max(counts.values(), default=1)
    for step in range(min(counts, default=0), max(counts, default=-1) + 1):
        count = counts.get(step, 0)
        bar = "█" * math.ceil(BAR_WIDTH * count / fullest)
        print(f"  ≤ {FIRST_EDGE_MS * 2**step:>7.2f} ms {count:>9,} {bar}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--timers", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    good = True
    for title, way in (("callbacks", by_callbacks), ("batches", by_batches)):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            late_ns = runner.run(way(options.timers, random.Random(options.seed)))
        good &= show(title, late_ns, options.timers)
        gc.collect()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
