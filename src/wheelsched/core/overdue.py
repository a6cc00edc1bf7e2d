"""Detects timers and retries that are due but not armed.

Invariant: the lateness comes from the rows of the database, not from what the shards report.
Arming a timer moves it to its next due time, seconds before it is due. A timer that stays in the
past is not being armed.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from wheelsched.values.duration import SECOND

TIMER_LATE_US: Final = 30 * SECOND  # more than a takeover takes


class Unarmed(Struct, frozen=True):
    """The earliest timer and the earliest retry of a partition that are not armed."""

    partition: int
    due_us: int | None
    retry_at_us: int | None


class Lateness(Struct, frozen=True):
    """The lateness of the oldest timer and of the oldest retry that are due but not armed."""

    timer_us: int = 0
    retry_us: int = 0

    @property
    def is_alarming(self) -> bool:
        """Whether jobs that should fire do not.

        Retries do not count, because those of a job with a long backlog wait on purpose.
        """
        return self.timer_us > TIMER_LATE_US

    def __str__(self) -> str:
        found = {"timer": self.timer_us // SECOND, "retry": self.retry_us // SECOND}
        late = [
            f"the oldest unarmed {name} was due {seconds:,} s ago"
            for name, seconds in found.items()
            if seconds
        ]
        return ", ".join(late) or "everything that is due is armed"


def lateness_of(unarmed: Iterable[Unarmed], now_us: int) -> Lateness:
    """The lateness over all partitions."""
    timer_us = retry_us = 0
    for each in unarmed:
        if each.due_us is not None:
            timer_us = max(timer_us, now_us - each.due_us)
        if each.retry_at_us is not None:
            retry_us = max(retry_us, now_us - each.retry_at_us)
    return Lateness(timer_us, retry_us)
