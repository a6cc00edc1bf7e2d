"""The workers of one pool, the shards that borrow its credits, and how runs are spread.

Invariant: a worker never gets more runs than it has credits.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeAlias
from uuid import UUID

from wheelsched.delivery.queue.loans import Loan
from wheelsched.ports.work import Attempted, Desk, Pool, QueueRun

Take: TypeAlias = Callable[[Sequence[QueueRun], int], None]
CancelRuns: TypeAlias = Callable[[Sequence[Attempted]], None]


class Borrower:
    """One shard that credits are lent to."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.is_open = True
        self.waiting: dict[tuple[UUID, str], int] = {}  # runs without a credit, by queue


class Worker:
    """One subscription: its credits and its callbacks."""

    __slots__ = ("cancel", "credits", "is_leaving", "pool", "take")

    def __init__(self, pool: "Workers", take: Take, cancel: CancelRuns) -> None:
        self.pool = pool
        self.take = take
        self.cancel = cancel
        self.credits = 0
        self.is_leaving = False


class Workers:
    """The workers of one pool, and the loans of its credits to the shards."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.members: set[Worker] = set()
        self.loans: dict[Borrower, Loan] = {}
        self.total = 0  # credits of the workers that stay
        self.turn = 0
        self.idle_ticks = 0
        # Those with credits, the next one first. With 10,000 workers, removing one must be cheap.
        self._rotation: OrderedDict[Worker, None] = OrderedDict()
        self._leaving: OrderedDict[Worker, None] = OrderedDict()

    @property
    def lent(self) -> int:
        return sum(loan.lent for loan in self.loans.values())

    @property
    def is_overlent(self) -> bool:
        return self.lent > self.total

    def add_credits(self, worker: Worker, count: int) -> None:
        if worker.is_leaving or count <= 0:
            return
        if not worker.credits:
            self._rotation[worker] = None
        worker.credits += count
        self.total += count

    def leave(self, worker: Worker) -> None:
        """The worker takes only what the shards have handed out already."""
        if worker.is_leaving:
            return
        worker.is_leaving = True
        if worker.credits:
            del self._rotation[worker]
            self._leaving[worker] = None
            self.total -= worker.credits

    def remove(self, worker: Worker) -> None:
        """The worker takes nothing any more."""
        self.leave(worker)
        if worker.credits:
            del self._leaving[worker]
            worker.credits = 0
        self.members.discard(worker)

    def assign(self, runs: Sequence[QueueRun]) -> list[tuple[Worker, Sequence[QueueRun]]]:
        """Spreads runs over the workers with credits, in turn. There may be more than they take."""
        assigned: list[tuple[Worker, Sequence[QueueRun]]] = []
        start, in_turn, share = 0, 0, 0
        while start < len(runs) and self._rotation:
            if not in_turn:  # a new round
                in_turn = len(self._rotation)
                share = max(1, (len(runs) - start) // in_turn)
            in_turn -= 1
            worker, _ = self._rotation.popitem(last=False)
            part = min(worker.credits, share)
            assigned.append((worker, runs if part == len(runs) else runs[start : start + part]))
            start += part
            worker.credits -= part
            self.total -= part
            if worker.credits:
                self._rotation[worker] = None
        while start < len(runs) and self._leaving:
            worker = next(iter(self._leaving))
            part = min(worker.credits, len(runs) - start)
            assigned.append((worker, runs[start : start + part]))
            start += part
            worker.credits -= part
            if not worker.credits:
                del self._leaving[worker]
        return assigned
