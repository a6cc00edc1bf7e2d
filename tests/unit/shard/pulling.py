"""A process with workers that pull, for the pipeline's world."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import msgspec
from tests.unit.shard.world import World

from wheelsched.core.outcome import Outcome, Succeeded
from wheelsched.ports.work import Attempted, Desk, Pool, QueueRun, Receipt

QUEUE = "work"


class Process:
    """Keeps what it is given. Times are those of the world."""

    def __init__(self, world: World, *queues: str) -> None:
        self.world = world
        self.pool = Pool(world.tenant_id, tuple(sorted(queues or (QUEUE,))))
        self.desks: dict[str, Desk] = {}
        self.runs: list[QueueRun] = []
        self.times: list[float] = []
        self.sizes: list[int] = []  # of the hand-outs
        self.until_us: list[int] = []  # when their delivery leases end
        self.cancelled: list[Attempted] = []
        self.waits: list[tuple[str, int]] = []

    def connect(self, name: str = "a") -> Desk:
        """Opens a desk at a shard."""
        desk = self.desks[name] = self.world.queues[name].open(self)
        return desk

    def lend(self, count: int, name: str = "a") -> None:
        if name not in self.desks:
            self.connect(name)
        self.desks[name].lend(self.pool, count)

    def hand_out(self, pool: Pool, runs: Sequence[QueueRun], until_us: int) -> None:
        assert pool == self.pool
        self.runs += runs
        self.times += [round(self.world.now_s, 3)] * len(runs)
        self.sizes.append(len(runs))
        self.until_us.append(until_us)

    def cancel(self, attempts: Sequence[Attempted]) -> None:
        self.cancelled += attempts

    def wait(self, tenant_id: UUID, queue: str, count: int) -> None:
        assert tenant_id == self.world.tenant_id
        self.waits.append((queue, count))

    async def finish(
        self, *runs: QueueRun, outcome: Outcome | None = None, name: str = "a"
    ) -> list[Receipt]:
        """Reports the same outcome for runs, and waits for the receipts."""
        reported = [(run.attempt, outcome or Succeeded()) for run in runs]
        receipts = asyncio.ensure_future(self.desks[name].finish(reported))
        while not receipts.done():
            await self.world.advance(0.1)
        return receipts.result()

    async def beat(self, *runs: QueueRun, lease_us: int | None = None) -> None:
        """Sends a heartbeat for runs, as the API writes it."""
        attempts = [run.attempt for run in runs]
        leases_us = [lease_us] * len(attempts)
        await self.world.store.history.heartbeats(self.world.caller, attempts, leases_us)

    @property
    def attempts(self) -> list[int]:
        """The numbers of the attempts that arrived."""
        return [msgspec.json.decode(run.content + b"}")["attempt"] for run in self.runs]
