"""When the fair queue checks an origin or a failing job again.

Invariant: an entry has one pending check, at its `check_at_us`. A check that was moved stays in the
heap, and is ignored when its time comes.
"""

from heapq import heappop, heappush
from itertools import count
from typing import Generic

from wheelsched.fairness.failing_jobs import FailingJob
from wheelsched.fairness.limits import Origin
from wheelsched.fairness.round_robin import Item


class Checks(Generic[Item]):
    """The pending checks, the earliest first."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Origin[Item] | FailingJob[Item]]] = []
        self._order = count()

    @property
    def next_us(self) -> int | None:
        return self.heap[0][0] if self.heap else None

    def schedule(self, entry: Origin[Item] | FailingJob[Item], at_us: int) -> None:
        """Sets the check of an entry, in place of the one it had."""
        if entry.check_at_us != at_us:
            entry.check_at_us = at_us
            heappush(self.heap, (at_us, next(self._order), entry))

    def pop_due(self, now_us: int) -> Origin[Item] | FailingJob[Item] | None:
        """Removes the next check that is due, and returns its entry."""
        while self.heap and self.heap[0][0] <= now_us:
            at_us, _, entry = heappop(self.heap)
            if entry.check_at_us == at_us:
                entry.check_at_us = None
                return entry
        return None
