"""The clock and its alarms.

Invariant: a clock never goes back, and no alarm rings before its time.
"""

from collections.abc import Callable
from typing import Protocol


class Alarm(Protocol):
    """Rings on its loop once for each time it was set: at or after that time, never before."""

    def set(self, when_ns: int) -> None:
        """Ring at `when_ns`, which replaces the time that was set before.

        If that time has passed, the alarm rings in the loop's next iteration, never in this call.
        """

    def close(self) -> None:
        """Never ring again, and release the resources of the alarm."""


class Clock(Protocol):
    """A monotonic clock, in integer nanoseconds since an instant of its own choice."""

    def now_ns(self) -> int:
        """The current time."""

    def alarm(self, ring: Callable[[], object]) -> Alarm:
        """Create an alarm that calls `ring` on the running loop, in a copy of this context."""

    async def sleep(self, delay_ns: int) -> None:
        """Return after `delay_ns`. With 0, return after one iteration of the loop."""
