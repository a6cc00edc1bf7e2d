"""The clocks. This is the only module of wheelsched that reads the machine's time.

Invariant: the system clock never goes back. On Linux it also counts suspended time, so that a
machine that slept knows how late it is. The database clock on top of it goes back only at a step,
which is reported. A shard never reads the wall clock. A worker reads it only to check the age of a
signed request.
"""

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from wheelsched.alarm import CallAtAlarm, TimerfdAlarm
from wheelsched.core.offset import NS_PER_US, STEP_NS, ClockSample, OffsetEstimate, Slew

if TYPE_CHECKING:
    from wheelsched.ports import Alarm, Clock

_now_ns: Callable[[], int]
if sys.platform == "linux":
    _now_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
else:
    _now_ns = time.monotonic_ns


class SystemClock:
    """The system's monotonic clock, with alarms on the running loop.

    `spin_us`: wake up this early and spin until the exact time. This saves the latency of the
    wake-up, but blocks the loop and uses the CPU meanwhile. `timerfd=False`: use the loop's own
    timers even if the kernel has more precise ones.
    """

    now_ns = staticmethod(_now_ns)

    @staticmethod
    def wall_us() -> int:
        """Wall-clock time in microseconds since 1970. It may jump, and may be wrong."""
        return time.time_ns() // 1_000

    def __init__(self, *, spin_us: int = 0, timerfd: bool = True) -> None:
        if not 0 <= spin_us <= 1_000:
            raise ValueError(f"spin_us must be between 0 and 1000, not {spin_us}")
        self._spin_ns = spin_us * 1_000
        self._timerfd = timerfd
        self._turns: RoundRobin | None = None

    def alarm(self, ring: Callable[[], object]) -> "Alarm":
        if self._timerfd:
            # A sandbox may forbid timerfd, and some loops cannot watch descriptors. Then use the
            # loop's own timers, which are less precise.
            with contextlib.suppress(OSError, NotImplementedError):
                return TimerfdAlarm(ring, now_ns=self.now_ns, spin_ns=self._spin_ns)
        return CallAtAlarm(ring, now_ns=self.now_ns, spin_ns=self._spin_ns)

    async def sleep(self, delay_ns: int) -> None:
        if not delay_ns:
            await self._next_turn()
            return
        when_ns = self.now_ns() + delay_ns
        left_ns = delay_ns
        while True:
            await asyncio.sleep(left_ns / 1_000_000_000)
            # The loop may wake early, and its clock may not count suspended time.
            left_ns = when_ns - self.now_ns()
            if left_ns <= 0:
                return

    async def _next_turn(self) -> None:
        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns.loop is not loop:
            self._turns = RoundRobin(loop)
        await self._turns.next()


class RoundRobin:
    """Gives each iteration of a loop to one of the waiting tasks.

    A task with much work does a part of it per iteration. If all such tasks ran in the same
    iteration, due runs would wait for all of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False  # the next iteration

    async def next(self) -> None:
        """Return in the next iteration, or in a later one if others wait already."""
        if self._is_taken:
            granted = self.loop.create_future()
            self._waiting.append(granted)
            await granted
        else:
            self._is_taken = True
            self.loop.call_soon(self._grant)
            await asyncio.sleep(0)

    def _grant(self) -> None:
        """At the beginning of a taken iteration, give the next one to the first waiting task."""
        while self._waiting:
            granted = self._waiting.popleft()
            if not granted.done():
                granted.set_result(None)
                self.loop.call_soon(self._grant)
                return
        self._is_taken = False


class DatabaseClock:
    """Unix time by the database's clock, interpolated with another clock between readings.

    It is a `Clock` that goes back only at a step. When `add_sample` reports a step, everything
    planned by `now_ns` must be planned again; its own alarms do so by themselves. Smaller
    corrections are slewed, and `error_us` bounds the error meanwhile.

    ```python
    clock = DatabaseClock(inner, await leases.read_clock(inner.now_ns))
    has_stepped = clock.add_sample(await leases.read_clock(inner.now_ns))
    ```
    """

    def __init__(self, inner: "Clock", sample: ClockSample) -> None:
        self._inner = inner
        self._inner_now_ns = inner.now_ns
        self._estimate = OffsetEstimate.of(sample.bounds)
        self._alarms: dict[DatabaseAlarm, None] = {}  # in order of creation
        self._follow(Slew.level(self._estimate.offset_ns))

    def now_ns(self) -> int:
        """Unix time in nanoseconds by the database's clock, within `error_us`."""
        inner_ns = self._inner_now_ns()
        if inner_ns >= self._level_from_ns:
            return inner_ns + self._level_offset_ns
        return inner_ns + self._slew.offset_at(inner_ns)

    def now_us(self) -> int:
        return self.now_ns() // NS_PER_US

    @property
    def offset_us(self) -> int:
        """The time of this clock minus that of the inner clock."""
        return self._slew.offset_at(self._inner_now_ns()) // NS_PER_US

    @property
    def error_us(self) -> int:
        """The maximum distance to the database's clock, rounded up."""
        inner_ns = self._inner_now_ns()
        error_ns = self._estimate.error_ns(inner_ns) + self._slew.left_ns(inner_ns)
        return -(-error_ns // NS_PER_US)

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last reading contradicts the estimate, so that more readings are needed."""
        return bool(self._estimate.contradicting)

    def add_sample(self, sample: ClockSample) -> bool:
        """Add a reading, and return whether the time has stepped.

        The instants of the sample are of the inner clock.
        """
        self._estimate = self._estimate.after(sample)
        inner_ns = self._inner_now_ns()
        offset_ns = self._estimate.offset_ns
        has_stepped = abs(offset_ns - self._slew.offset_at(inner_ns)) > STEP_NS
        if has_stepped:
            self._follow(Slew.level(offset_ns))
        elif offset_ns != self._slew.offset_ns:
            self._follow(self._slew.toward(offset_ns, inner_ns))
        return has_stepped

    def alarm(self, ring: Callable[[], object]) -> "DatabaseAlarm":
        alarm = DatabaseAlarm(self, self._inner, ring)
        self._alarms[alarm] = None
        return alarm

    async def sleep(self, delay_ns: int) -> None:
        """Return after `delay_ns` of the inner clock. A step does not prolong a sleep."""
        await self._inner.sleep(delay_ns)

    def inner_ns(self, when_ns: int) -> int:
        """The instant of the inner clock at which this clock shows `when_ns`, as of now."""
        return self._slew.instant_of(when_ns)

    def forget_alarm(self, alarm: "DatabaseAlarm") -> None:
        self._alarms.pop(alarm, None)

    def _follow(self, slew: Slew) -> None:
        self._slew = slew
        # Cached beside the slew, because `now_ns` is the hottest function.
        self._level_offset_ns = slew.offset_ns
        self._level_from_ns = slew.until_ns
        for alarm in self._alarms:
            alarm.plan()


class DatabaseAlarm:
    """An `Alarm` of a `DatabaseClock`: an inner alarm, set again whenever the offset changes."""

    def __init__(self, clock: DatabaseClock, inner: "Clock", ring: Callable[[], object]) -> None:
        self._clock = clock
        self._ring = ring
        self._when_ns = 0
        self._is_set = False
        self._alarm = inner.alarm(self._wake)

    def set(self, when_ns: int) -> None:
        self._when_ns = when_ns
        self._is_set = True
        self.plan()

    def close(self) -> None:
        self._is_set = False
        self._clock.forget_alarm(self)
        self._alarm.close()

    def plan(self) -> None:
        """Set the inner alarm according to the current offset."""
        if self._is_set:
            self._alarm.set(self._clock.inner_ns(self._when_ns))

    def _wake(self) -> None:
        # The inner clock may be coarser than its alarm. If it rings early, wait again.
        if self._clock.now_ns() < self._when_ns:
            self.plan()
            return
        self._is_set = False
        self._ring()
