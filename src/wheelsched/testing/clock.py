"""A clock that stands still until it is told to advance: hours of timers in milliseconds.

Invariant: one program, one sequence. Alarms ring in the order of their times, and those of one
time in the order in which they were set; between two of them everything that is ready to run
runs, until it waits. So what happened depends on what was asked for and on nothing else.
"""

import asyncio
import heapq
from collections.abc import Callable
from contextvars import copy_context

_TURNS_WHEN_BLIND = 100
_TURNS_AT_MOST = 100_000


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

    def now_ns(self) -> int:
        return self._now_ns

    def wall_us(self) -> int:
        """The time of day: that of a clock which began with 1970."""
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
        """Let `delay_ns` pass: see `advance_to`."""
        await self.advance_to(self._now_ns + delay_ns)

    async def advance_to(self, when_ns: int) -> None:
        """Stop at each alarm on the way to `when_ns`, ring it, and run what it made ready."""
        if when_ns < self._now_ns:
            raise ValueError(f"a clock never goes back: it is {self._now_ns}, not {when_ns}")
        if self._advancing:
            raise RuntimeError("the virtual clock is being advanced by somebody else")
        self._advancing = True
        try:
            await self.run_ready()
            while (alarm_ns := self.next_alarm_ns()) is not None and alarm_ns <= when_ns:
                self._now_ns = max(self._now_ns, alarm_ns)
                self._ring_first()
                await self.run_ready()
            self._now_ns = when_ns
        finally:
            self._advancing = False

    def next_alarm_ns(self) -> int | None:
        """Return when the next alarm rings: a simulation without input goes on from there."""
        while self._alarms and not self._alarms[0][2].is_set_as(self._alarms[0][1]):
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    async def run_ready(self) -> None:
        """Run everything that is ready, and what that makes ready, until all of it waits.

        asyncio's loop shows what is ready, and this is exact. Other loops do not: there it is
        a hundred turns of the loop, so a longer chain of wake-ups needs asyncio's.
        """
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        turns = _TURNS_WHEN_BLIND if ready is None else _TURNS_AT_MOST
        for _ in range(turns):
            await asyncio.sleep(0)
            if ready is not None and not ready:
                return
        if ready is not None:
            raise RuntimeError(f"something is still ready to run after {turns} turns of the loop")

    def set_alarm(self, alarm: "VirtualAlarm", when_ns: int) -> int:
        """Queue `alarm`, and return the number under which it was set."""
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
