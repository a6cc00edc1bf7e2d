"""Overdue: whether what is due is armed.

Invariant: lateness is that of the database's rows, whatever the shards believe. A timer is moved on
when it is armed, seconds before it is due; one that stays behind is not being armed.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from wheelsched.core.duration import SECOND

TIMER_LATE_US: Final = 30 * SECOND  # more than a takeover takes


class Unarmed(Struct, frozen=True):
    """The earliest of what waits to be armed in a partition: a timer, and a retry."""

    partition: int
    due_us: int | None
    retry_at_us: int | None


class Lateness(Struct, frozen=True):
    """How late the oldest timer is that is due and not armed, and the oldest retry."""

    timer_us: int = 0
    retry_us: int = 0

    @property
    def is_alarming(self) -> bool:
        """Whether jobs do not fire that should.

        Retries do not count: those of a job with a long backlog wait for it, on purpose.
        """
        return self.timer_us > TIMER_LATE_US

    def __str__(self) -> str:
        found = {"timer": self.timer_us // SECOND, "retry": self.retry_us // SECOND}
        late = [
            f"the oldest {name} that is not armed was due {seconds:,} s ago"
            for name, seconds in found.items()
            if seconds
        ]
        return ", ".join(late) or "everything that is due is armed"


def lateness_of(unarmed: Iterable[Unarmed], now_us: int) -> Lateness:
    """How late the oldest of all these is."""
    timer_us = retry_us = 0
    for each in unarmed:
        if each.due_us is not None:
            timer_us = max(timer_us, now_us - each.due_us)
        if each.retry_at_us is not None:
            retry_us = max(retry_us, now_us - each.retry_at_us)
    return Lateness(timer_us, retry_us)
