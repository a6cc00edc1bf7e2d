"""How late does a loop wake up? Its own call_at against the alarms, on asyncio and uvloop.

    python benchmarks/bench_wakeup.py --wakeups 1000

Every rival wakes up for the same delays, one wake-up each in turn, so that what the machine does
meanwhile hits all of them alike.
"""

import argparse
import asyncio
import random
from collections.abc import Awaitable, Callable
from statistics import quantiles

import uvloop

from wheelsched.clock import SystemClock

Wake = Callable[[int], Awaitable[int]]

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
now_ns = SystemClock.now_ns


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


async def measure(wakeups: int, seed: int) -> dict[str, list[int]]:
    rivals: dict[str, Wake] = {
        "call_at": by_call_at,
        "alarm without timerfd": ByAlarm(SystemClock(timerfd=False)),
        "alarm": ByAlarm(SystemClock()),
        "alarm, spin 100 µs": ByAlarm(SystemClock(spin_us=100)),
    }
    late_ns: dict[str, list[int]] = {name: [] for name in rivals}
    source = random.Random(seed)
    for _ in range(wakeups):
        delay_ns = source.randrange(500_000, 5_000_000)
        for name, wake in rivals.items():
            late_ns[name].append(await wake(delay_ns))
    return late_ns


def row(loop: str, name: str, late_ns: list[int]) -> str:
    cuts_ns = quantiles(late_ns, n=1000, method="inclusive")
    cuts = "".join(f"{cuts_ns[cut] / 1000:>9,.0f}" for cut in (499, 989, 998))
    early = sum(late < 0 for late in late_ns) / len(late_ns)
    return f"{loop:<8} {name:<22}{cuts}{max(late_ns) / 1000:>9,.0f}{early:>8.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--wakeups", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"lateness in µs of {options.wakeups} wake-ups, 0.5 to 5 ms ahead")
    print(f"{'loop':<8} {'wake-up by':<22}{'p50':>9}{'p99':>9}{'p99.9':>9}{'max':>9}{'early':>8}")
    for loop, factory in LOOPS.items():
        with asyncio.Runner(loop_factory=factory) as runner:
            results = runner.run(measure(options.wakeups, options.seed))
        for name, late_ns in results.items():
            print(row(loop, name, late_ns))


if __name__ == "__main__":
    main()
