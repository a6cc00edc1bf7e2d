"""The clock, and the alarms that it rings.

Invariant: a clock never goes back, and no alarm rings before its time.
"""

from collections.abc import Callable
from typing import Protocol


class Alarm(Protocol):
    """Rings once for each time it was set: on its loop, at or after that time, never before."""

    def set(self, when_ns: int) -> None:
        """Ring at `when_ns` instead of whenever it was set for before.

        A time that has passed rings at the loop's next turn, never inside this call.
        """

    def close(self) -> None:
        """Never ring again, and give back what the alarm holds."""


class Clock(Protocol):
    """The time, in integer nanoseconds since an instant of the clock's own: it never goes back."""

    def now_ns(self) -> int:
        """Return the time."""

    def alarm(self, ring: Callable[[], object]) -> Alarm:
        """Make an alarm that calls `ring` on the running loop, in a copy of the context of now."""

    async def sleep(self, delay_ns: int) -> None:
        """Return when `delay_ns` have passed; with 0, when the loop has had one turn."""
