"""Collects cyclic garbage in small steps.

Invariant: automatic collection is off while this runs. Each step collects the young generation
while it is small. All objects are collected only when the process has grown by a quarter over its
peak, and then frozen. That waits while the process is busy, but not for long. Frozen objects that
become garbage later are not freed; they are less than what the process already used.

Automatic collection runs when many more objects were created than freed. At a steady load that is
rare, and then it stops the event loop for hundreds of milliseconds.
"""

import gc
import resource
from collections.abc import Callable
from typing import Final

from wheelsched.ports import Clock

STEP_NS: Final = 50_000_000
GROWTH: Final = 1.25
PAUSE_FACTOR: Final = 1_000  # full collections pause for this many times their duration
LONGEST_DELAY_NS: Final = 10_000_000_000  # of a full collection, because the process is busy
NEW, ALL = 0, 2  # generations


def largest() -> int:
    """The peak memory of the process, in the system's unit."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Collector:
    """Collects garbage, a little at a time."""

    def __init__(
        self,
        clock: Clock,
        collect: Callable[[int], int] = gc.collect,
        size: Callable[[], int] = largest,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock
        self._collect = collect
        self._size = size
        self._is_busy = is_busy
        self._busy_since_ns: int | None = None  # while a full collection is delayed
        self._collected_size = 0
        self._paused_until_ns = 0

    async def run(self) -> None:
        """Collects until cancelled."""
        self._collect_all()
        gc.disable()
        try:
            while True:
                await self._clock.sleep(STEP_NS)
                self._step()
        finally:
            gc.enable()

    def _step(self) -> None:
        has_grown = self._size() > self._collected_size * GROWTH
        now_ns = self._clock.now_ns()
        if has_grown and now_ns >= self._paused_until_ns and not self._is_delayed(now_ns):
            self._collect_all()
        else:
            self._collect(NEW)

    def _is_delayed(self, now_ns: int) -> bool:
        if not self._is_busy():
            return False
        if self._busy_since_ns is None:
            self._busy_since_ns = now_ns
        return now_ns - self._busy_since_ns < LONGEST_DELAY_NS

    def _collect_all(self) -> None:
        """Collects everything that is not frozen, so it takes as long as the process has grown."""
        began_ns = self._clock.now_ns()
        self._collect(ALL)
        self._busy_since_ns = None
        gc.freeze()
        ended_ns = self._clock.now_ns()
        self._paused_until_ns = ended_ns + PAUSE_FACTOR * (ended_ns - began_ns)
        self._collected_size = self._size()
