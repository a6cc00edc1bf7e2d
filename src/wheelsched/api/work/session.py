"""One worker on a stream, whatever its encoding.

Invariant: a run is either handed to the connection, or given back when the session is closed. The
worker never gets more runs than it has given credits. The send queue is bounded.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from wheelsched.errors import InvalidField
from wheelsched.ports.work import Attempted, QueueRun, Subscription, WorkSource
from wheelsched.wire.queue import MAX_CREDITS

WITHDRAW_S: Final = 2.0
MAX_UNSENT_BYTES: Final = 64 << 20  # of runs that wait to be sent; with more, others get them

Batch = tuple[int, Sequence[QueueRun]]  # when the delivery lease expires, and the runs


class Session:
    """The credits of a worker, and what is to be sent to it; `changed` says that there is more."""

    def __init__(self, source: WorkSource, tenant_id: UUID) -> None:
        self.changed = asyncio.Event()
        self._source = source
        self._tenant_id = tenant_id
        self._subscription: Subscription | None = None
        self._batches: deque[Batch] = deque()
        self._cancelled: list[Attempted] = []
        self._credits = 0
        self._unsent_bytes = 0
        self._held_back = 0  # credits that are not used while too much waits to be sent
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """Whether the worker has registered."""
        return self._subscription is not None

    def register(self, queues: Sequence[str], count: int) -> None:
        """Registers the worker for its queues."""
        self._subscription = self._source.subscribe(
            self._tenant_id, queues, self._take, self._cancel
        )
        self.add_credits(count)

    def add_credits(self, count: int) -> None:
        """The worker takes this many more runs."""
        self._credits += count
        if self._credits > MAX_CREDITS:
            raise InvalidField(
                f"a worker may have at most {MAX_CREDITS:,} credits", pointer="/credits"
            )
        if count and self._subscription is not None:
            self._subscription.add_credits(count)

    def take_batch(self) -> Batch | None:
        """Runs to send now, if there are any."""
        if not self._batches:
            return None
        batch = self._batches.popleft()
        self._unsent_bytes -= _size(batch[1])
        self._use_again(2 * len(batch[1]))
        return batch

    def take_cancelled(self) -> list[Attempted]:
        """The runs to cancel now."""
        cancelled, self._cancelled = self._cancelled, []
        return cancelled

    async def withdraw(self) -> None:
        """Takes back all credits. After that no run is added."""
        if self._subscription is not None:
            with suppress(TimeoutError):  # what arrives after that is given back
                async with asyncio.timeout(WITHDRAW_S):
                    await self._subscription.withdraw()
        self._is_closed = True

    async def close(self) -> None:
        """Takes back all credits, and gives back all runs that were not sent."""
        self._is_closed = True
        self._return_unsent()
        await self.withdraw()

    def _give_back(self, runs: Sequence[QueueRun]) -> None:
        self._source.give_back(self._tenant_id, [run.attempt for run in runs])

    def _return_unsent(self) -> None:
        while (batch := self.take_batch()) is not None:
            self._give_back(batch[1])

    def _take(self, runs: Sequence[QueueRun], until_us: int) -> None:
        if self._is_closed:
            self._give_back(runs)
            return
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            self._held_back += len(runs)
            self._give_back(runs)
            return
        self._credits -= len(runs)
        self._unsent_bytes += _size(runs)
        self._batches.append((until_us, runs))
        self.changed.set()

    def _use_again(self, most: int) -> None:
        """Uses credits again that were held back, as fast as the worker reads."""
        count = min(most, self._held_back)
        if count and self._subscription is not None and not self._is_closed:
            self._held_back -= count
            self._subscription.add_credits(count)

    def _cancel(self, attempts: Sequence[Attempted]) -> None:
        self._cancelled += attempts
        self.changed.set()


def _size(runs: Sequence[QueueRun]) -> int:
    return sum([len(run.content) for run in runs])
