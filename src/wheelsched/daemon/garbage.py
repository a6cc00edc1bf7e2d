"""Garbage that reference counts do not free, collected in small steps.

Invariant: while this runs nothing is collected behind our back. What is new is looked at in every
step, while it is little. What has grown old is looked at once, when the process has become larger
than it ever was, by a quarter, and then not for long: what of that becomes garbage later stays, and
is less than the process had already.

Left alone the interpreter collects when many more objects were made than dropped. In a steady flow
that comes seldom, and then it looks at everything that was made since: the loop stands still for
hundreds of milliseconds.
"""

import gc
import resource
from collections.abc import Callable
from typing import Final

from wheelsched.ports import Clock

STEP_NS: Final = 50_000_000
GROWTH: Final = 1.25
REST: Final = 1_000  # what is old is not looked at for so many times what it took
NEW, ALL = 0, 2  # generations


def largest() -> int:
    """How much memory the process has had at most. The unit is the system's."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Collector:
    """Collects garbage, a little at a time."""

    def __init__(
        self,
        clock: Clock,
        collect: Callable[[int], int] = gc.collect,
        size: Callable[[], int] = largest,
    ) -> None:
        self._clock = clock
        self._collect = collect
        self._size = size
        self._collected_size = 0
        self._rests_until_ns = 0

    async def run(self) -> None:
        """Collects until it is cancelled."""
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
        if has_grown and self._clock.now_ns() >= self._rests_until_ns:
            self._collect_all()
        else:
            self._collect(NEW)

    def _collect_all(self) -> None:
        """Looks at everything that was not looked at so before: so it takes as long as it grew."""
        began_ns = self._clock.now_ns()
        self._collect(ALL)
        gc.freeze()
        ended_ns = self._clock.now_ns()
        self._rests_until_ns = ended_ns + REST * (ended_ns - began_ns)
        self._collected_size = self._size()
