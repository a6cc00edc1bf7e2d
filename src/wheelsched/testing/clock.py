"""A virtual clock that moves only when a test advances it, so that hours pass in milliseconds.

Invariant: the order of events is deterministic. Alarms ring in the order of their times, and at the
same time in the order in which they were set. Between two alarms, all tasks run until they wait.
"""

import asyncio
import gc
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context

_ITERATIONS_WHEN_BLIND = 100
_MAX_ITERATIONS = 100_000


class VirtualClock:
    """A `Clock` in virtual time, for one loop.

    ```python
    clock = VirtualClock()
    async with AsyncWheel(clock) as wheel:
        wheel.call_later(3600, print, "an hour later")
        await clock.advance(3600 * 10**9)
    ```
    """

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns
        self._alarms_set = 0
        self._alarms: list[tuple[int, int, VirtualAlarm]] = []
        self._advancing = False
        self._loop: asyncio.AbstractEventLoop | None = None  # whose ready callbacks are known
        self._ready: deque[object] | None = None
        self._looking = 0  # calls of `run_ready` at this moment

    def now_ns(self) -> int:
        return self._now_ns

    def wall_us(self) -> int:
        """Wall-clock time: virtual time, counted from 1970."""
        return self._now_ns // 1_000

    def alarm(self, ring: Callable[[], object]) -> "VirtualAlarm":
        return VirtualAlarm(self, ring)

    async def sleep(self, delay_ns: int) -> None:
        if delay_ns <= 0:
            await asyncio.sleep(0)
            return
        slept = asyncio.Event()
        alarm = self.alarm(slept.set)
        alarm.set(self._now_ns + delay_ns)
        try:
            await slept.wait()
        finally:
            alarm.close()

    async def advance(self, delay_ns: int) -> None:
        """Advance by `delay_ns`. See `advance_to`."""
        await self.advance_to(self._now_ns + delay_ns)

    async def advance_to(self, when_ns: int) -> None:
        """Advance to `when_ns`. Each alarm on the way rings at its time, and ready tasks run."""
        with self._advance(when_ns):
            await self.run_ready()
            while self._is_alarm_due(when_ns):
                await self._ring_next()
            self._now_ns = when_ns

    async def advance_to_alarm(self, most_ns: int) -> None:
        """Advance to the next alarm, at most to `most_ns`. The alarms of that time ring.

        Call it when every task waits, as after `run_ready`.
        """
        with self._advance(most_ns):
            alarm_ns = self.next_alarm_ns()
            until_ns = most_ns if alarm_ns is None else min(alarm_ns, most_ns)
            while self._is_alarm_due(until_ns):
                await self._ring_next()
            self._now_ns = max(self._now_ns, until_ns)

    async def leap_to(self, when_ns: int) -> None:
        """Go to `when_ns` in one step, like a machine that was asleep.

        Alarms on the way ring then, in their order. A task that wakes up every second wakes up
        once, so an idle year takes no longer than an idle second.
        """
        with self._advance(when_ns):
            await self.run_ready()
            self._now_ns = when_ns
            while self._is_alarm_due(when_ns):
                await self._ring_next()

    async def _ring_next(self) -> None:
        """Ring the next alarm at its time, or now if that has passed."""
        alarm_ns = self.next_alarm_ns()
        assert alarm_ns is not None
        self._now_ns = max(self._now_ns, alarm_ns)
        self._ring_first()
        await self.run_ready()

    def _is_alarm_due(self, by_ns: int) -> bool:
        alarm_ns = self.next_alarm_ns()
        return alarm_ns is not None and alarm_ns <= by_ns

    @contextmanager
    def _advance(self, when_ns: int) -> Iterator[None]:
        if when_ns < self._now_ns:
            raise ValueError(f"cannot go back from {self._now_ns} to {when_ns}")
        if self._advancing:
            raise RuntimeError("another task is already advancing the virtual clock")
        self._advancing = True
        try:
            yield
        finally:
            self._advancing = False

    def next_alarm_ns(self) -> int | None:
        """When the next alarm rings, or None. An idle simulation continues from there."""
        while self._alarms and not self._alarms[0][2].is_set_as(self._alarms[0][1]):
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    async def run_ready(self) -> None:
        """Run all ready tasks until every task waits.

        This is exact on the loops of asyncio and uvloop. Others do not show what is ready, so
        there it runs a hundred iterations.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._ready = loop, _ready_callbacks(loop)
        ready = self._ready
        iterations = _ITERATIONS_WHEN_BLIND if ready is None else _MAX_ITERATIONS
        others = self._looking  # each is ready itself, and must not wait for this one
        self._looking += 1
        try:
            for _ in range(iterations):
                await asyncio.sleep(0)
                if ready is not None and len(ready) <= others:
                    return
        finally:
            self._looking -= 1
        if ready is not None:
            raise RuntimeError(f"tasks are still ready after {iterations} iterations of the loop")

    def set_alarm(self, alarm: "VirtualAlarm", when_ns: int) -> int:
        """Queue `alarm`, and return the number of this setting."""
        self._alarms_set += 1
        heapq.heappush(self._alarms, (when_ns, self._alarms_set, alarm))
        if when_ns <= self._now_ns:
            asyncio.get_running_loop().call_soon(self._ring_passed)
        return self._alarms_set

    def _ring_passed(self) -> None:
        alarm_ns = self.next_alarm_ns()
        if alarm_ns is not None and alarm_ns <= self._now_ns:
            self._ring_first()

    def _ring_first(self) -> None:
        _, _, alarm = heapq.heappop(self._alarms)
        alarm.ring()


def _ready_callbacks(loop: asyncio.AbstractEventLoop) -> "deque[object] | None":
    """The callbacks that a loop is about to run; None if it does not show them.

    asyncio's loop has them as an attribute. uvloop's does not, but the garbage collector sees them.
    """
    ready: deque[object] | None = getattr(loop, "_ready", None)
    if ready is not None:
        return ready
    handle = loop.call_soon(lambda: None)
    held = [each for each in gc.get_referents(loop) if isinstance(each, deque)]
    return next((each for each in held if handle in each), None)


class VirtualAlarm:
    """An `Alarm` of a `VirtualClock`."""

    def __init__(self, clock: VirtualClock, ring: Callable[[], object]) -> None:
        self._clock = clock
        self._ring = ring
        self._context = copy_context()
        self._set_as: int | None = None

    def set(self, when_ns: int) -> None:
        self._set_as = self._clock.set_alarm(self, when_ns)

    def close(self) -> None:
        self._set_as = None

    def is_set_as(self, number: int) -> bool:
        return self._set_as == number

    def ring(self) -> None:
        self._set_as = None
        self._context.run(self._ring)
