"""The system's clock: the only module of wheelsched that reads the time of the machine.

Invariant: this clock never goes back, and on Linux it counts suspended time too, so that a
machine that slept knows how late it is. The wall clock is not read, here or anywhere.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from wheelsched.alarm import CallAtAlarm, TimerfdAlarm

if TYPE_CHECKING:
    from wheelsched.ports import Alarm

_now_ns: Callable[[], int]
if sys.platform == "linux":
    _now_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
else:
    _now_ns = time.monotonic_ns


class SystemClock:
    """The real time, with alarms on the running loop.

    `spin_us`: wake up this much ahead and spin until the very time. It buys the microseconds
    that a wake-up takes, for that much of a core; meanwhile the loop does nothing else.
    `timerfd=False`: wake up by the loop's own timers even where the kernel offers better.
    """

    now_ns = staticmethod(_now_ns)

    def __init__(self, *, spin_us: int = 0, timerfd: bool = True) -> None:
        if not 0 <= spin_us <= 1_000:
            raise ValueError(f"spin_us must lie between 0 and 1000, not {spin_us}")
        self._spin_ns = spin_us * 1_000
        self._timerfd = timerfd

    def alarm(self, ring: Callable[[], object]) -> "Alarm":
        if self._timerfd:
            # A sandbox may forbid it, and some loops watch no descriptors: then the loop's own
            # timers do, less precisely.
            with contextlib.suppress(OSError, NotImplementedError):
                return TimerfdAlarm(ring, now_ns=self.now_ns, spin_ns=self._spin_ns)
        return CallAtAlarm(ring, now_ns=self.now_ns, spin_ns=self._spin_ns)

    async def sleep(self, delay_ns: int) -> None:
        when_ns = self.now_ns() + delay_ns
        left_ns = delay_ns
        while True:
            await asyncio.sleep(left_ns / 1_000_000_000)
            # The loop may wake early, and its clock may not count suspended time.
            left_ns = when_ns - self.now_ns()
            if left_ns <= 0:
                return
