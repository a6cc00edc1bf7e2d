"""A shard in memory that hands out runs, with the desks of the processes that lend it credits."""

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

from wheelsched.core.model import RunKey
from wheelsched.core.outcome import Outcome
from wheelsched.errors import LinkLost
from wheelsched.ports.work import Attempted, Pool, QueueRun, Receipt, Receiver, Waiting

TENANT = UUID(int=1)
UNTIL_US = 1_800_000_005_000_000


class MemoryDesk:
    """`Desk` of a `MemoryShard`."""

    def __init__(self, shard: "MemoryShard", receiver: Receiver) -> None:
        self.shard = shard
        self.receiver = receiver
        self.credits: Counter[Pool] = Counter()
        self.pools: dict[Pool, None] = {}
        self.is_paused = False
        self.told: dict[tuple[UUID, str], int] = {}

    def lend(self, pool: Pool, count: int) -> None:
        self.pools[pool] = None
        self.credits[pool] += count
        self.shard.hand_out()

    def recall(self, pool: Pool, count: int, returned: Callable[[int], None]) -> None:
        found = min(self.credits[pool], count)
        self.credits[pool] -= found
        returned(found)

    def forget(self, pool: Pool) -> None:
        self.pools.pop(pool, None)
        self.credits.pop(pool, None)

    async def finish(self, outcomes: Sequence[tuple[Attempted, Outcome]]) -> list[Receipt]:
        if self not in self.shard.desks:
            raise LinkLost
        return [self.shard.finish(attempt, outcome) for attempt, outcome in outcomes]

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        self.shard.give_back(attempts)

    async def waiting(self, tenant_id: UUID) -> list[Waiting]:
        counts = Counter(run.queue for tenant, run in self.shard.waiting if tenant == tenant_id)
        return [Waiting(queue, number, 1_000) for queue, number in counts.items()]

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.shard.hand_out()

    def close(self) -> None:
        if self in self.shard.desks:
            self.shard.desks.remove(self)

    def pool_for(self, tenant_id: UUID, queue: str) -> Pool | None:
        for pool in self.pools:
            if pool.tenant_id == tenant_id and queue in pool.queues and self.credits[pool]:
                return None if self.is_paused else pool
        return None


class MemoryShard:
    """`Desks` of one shard. If it is lazy, it tells what waits only when `tell` is called."""

    def __init__(self, *, is_lazy: bool = False) -> None:
        self.is_lazy = is_lazy
        self.desks: list[MemoryDesk] = []
        self.waiting: list[tuple[UUID, QueueRun]] = []
        self.handed_out: dict[Attempted, tuple[UUID, QueueRun]] = {}
        self.finished: dict[Attempted, Outcome] = {}
        self.given_back = 0

    def open(self, receiver: Receiver) -> MemoryDesk:
        desk = MemoryDesk(self, receiver)
        self.desks.append(desk)
        return desk

    def add(self, *runs: QueueRun, tenant_id: UUID = TENANT) -> None:
        """Runs that are due."""
        self.waiting += [(tenant_id, run) for run in runs]
        self.hand_out()

    def hand_out(self) -> None:
        given: dict[tuple[MemoryDesk, Pool], list[QueueRun]] = {}
        rest = []
        for tenant_id, run in self.waiting:
            for desk in self.desks:
                if (pool := desk.pool_for(tenant_id, run.queue)) is not None:
                    desk.credits[pool] -= 1
                    self.handed_out[run.attempt] = tenant_id, run
                    given.setdefault((desk, pool), []).append(run)
                    break
            else:
                rest.append((tenant_id, run))
        self.waiting = rest
        for (desk, pool), runs in given.items():
            desk.receiver.hand_out(pool, runs, UNTIL_US)
        if not self.is_lazy:
            self.tell()

    def finish(self, attempt: Attempted, outcome: Outcome) -> Receipt:
        if self.handed_out.pop(attempt, None) is None:
            return Receipt.STALE if attempt in self.finished else Receipt.UNKNOWN
        self.finished[attempt] = outcome
        return Receipt.WRITTEN

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        for attempt in attempts:
            if (known := self.handed_out.pop(attempt, None)) is not None:
                self.given_back += 1
                self.waiting.append(known)
        self.hand_out()

    def tell(self) -> None:
        """Tells the receivers how many runs wait, if they know another number."""
        counts = Counter((tenant_id, run.queue) for tenant_id, run in self.waiting)
        for desk in tuple(self.desks):
            queues = {(pool.tenant_id, queue) for pool in desk.pools for queue in pool.queues}
            for place in queues:
                if desk.told.get(place, 0) != counts[place]:
                    desk.told[place] = counts[place]
                    desk.receiver.wait(*place, counts[place])


def queue_run(queue: str = "billing", content: bytes = b'{"run_id": "x"') -> QueueRun:
    """A run with a key of its own."""
    return QueueRun(attempt=Attempted(RunKey(uuid4(), 1_000), 7), queue=queue, content=content)
