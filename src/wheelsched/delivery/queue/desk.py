"""The desk of one process that hands the runs of this shard to workers.

Invariant: a desk that is closed has no credits, and its receiver is not called any more.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from wheelsched.core.outcome import Outcome
from wheelsched.delivery.queue.lines import DeskPool, Lines
from wheelsched.ports import RunOwner
from wheelsched.ports.work import Attempted, Pool, Receipt, Receiver, Waiting


class QueueDesk:
    """A `Desk`. `owner` returns the shard that owns the runs, if it has a lease."""

    def __init__(
        self,
        receiver: Receiver,
        lines: Lines,
        owner: Callable[[], RunOwner | None],
        on_close: Callable[["QueueDesk"], None],
    ) -> None:
        self.receiver = receiver
        self.tenants: set[UUID] = set()  # whose runs its workers have, or had
        self._lines = lines
        self._owner = owner
        self._on_close = on_close
        self._pools: dict[Pool, DeskPool] = {}
        self._is_paused = False
        self._is_closed = False

    def lend(self, pool: Pool, count: int) -> None:
        if self._is_closed:
            return
        known = self._pools.get(pool)
        if known is None:
            known = self._add(pool)
        known.add(count)

    def _add(self, pool: Pool) -> DeskPool:
        lines = [self._lines.get(pool.tenant_id, queue) for queue in dict.fromkeys(pool.queues)]
        added = self._pools[pool] = DeskPool(pool, self.receiver, lines)
        added.is_paused = self._is_paused
        self.tenants.add(pool.tenant_id)
        for line in lines:
            is_known = any(other.receiver is self.receiver for other in line.pools)
            line.pools[added] = None
            if line.told and not is_known:
                self.receiver.wait(pool.tenant_id, line.queue, line.told)
        return added

    def recall(self, pool: Pool, count: int, returned: Callable[[int], None]) -> None:
        if self._is_closed:
            return
        known = self._pools.get(pool)
        taken = 0 if known is None else min(count, known.credits)
        if known is not None:
            known.add(-taken)
        returned(taken)

    def forget(self, pool: Pool) -> None:
        known = self._pools.pop(pool, None)
        if known is not None:
            known.add(-known.credits)
            for line in known.lines:
                del line.pools[known]

    async def finish(self, outcomes: Sequence[tuple[Attempted, Outcome]]) -> list[Receipt]:
        owner = self._owner()
        if owner is None:
            return [Receipt.UNKNOWN] * len(outcomes)
        return await owner.finish(outcomes)

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        if (owner := self._owner()) is not None:
            owner.give_back(attempts)

    async def waiting(self, tenant_id: UUID) -> list[Waiting]:
        owner = self._owner()
        return [] if owner is None else owner.waiting(tenant_id)

    def pause(self) -> None:
        self._pause(is_paused=True)

    def resume(self) -> None:
        self._pause(is_paused=False)

    def _pause(self, *, is_paused: bool) -> None:
        self._is_paused = is_paused
        for pool in self._pools.values():
            pool.pause(is_paused=is_paused)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            for pool in tuple(self._pools):
                self.forget(pool)
            self._on_close(self)
