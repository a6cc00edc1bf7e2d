"""Faults of workers that pull, of the processes of the API, and of the links to the shards.

Invariant: as of other faults.
"""

from random import Random

from tests.sim.pull_workers import PullWorker
from tests.sim.simulation import MS, Simulation

KNOWN_DEATHS = 0.7  # of those who die, as many close their connections


class QueueFaults:
    """Breaks things around queues, by one luck, until it is calm."""

    def __init__(self, world: Simulation, random: Random, calm_us: int) -> None:
        self._world = world
        self._pulling = world.pulling
        self._random = random
        self._calm_us = calm_us

    async def befall(self, name: str) -> None:
        """Lets a fault happen."""
        await getattr(self, name)()

    async def kill_worker(self) -> None:
        """Dies with whatever it has in hand."""
        if (worker := self._worker()) is None:
            return
        from_us = self._world.now_us()
        worker.die(is_known=self._random.random() < KNOWN_DEATHS)
        await self._last(self._random.choice((0.1, 1, 6)))
        self._pulling.start_worker(worker.manner.tenant_id)
        self._note("worker", from_us)

    async def freeze_worker(self) -> None:
        """Sleeps past its leases, and then goes on as if nothing had happened."""
        if (worker := self._worker()) is None:
            return
        from_us = self._world.now_us()
        worker.freeze()
        await self._last(self._random.choice((2, 6, 9, 15)))
        if not worker.machine.is_dead:
            worker.machine.thaw()
        self._note("worker", from_us)

    async def drain_worker(self) -> None:
        """Is asked to leave; another comes later."""
        if (worker := self._worker()) is None:
            return
        from_us = self._world.now_us()
        worker.leave()
        await self._last(self._random.choice((0.5, 4, 10)))
        self._pulling.start_worker(worker.manner.tenant_id)
        self._note("worker", from_us)

    async def lose_workers(self) -> None:
        """For a while there are no workers at all."""
        from_us = self._world.now_us()
        workers = [worker for worker in self._pulling.workers if not worker.machine.is_dead]
        for worker in workers:
            if self._random.random() < 0.5:
                worker.leave()
            else:
                worker.die(is_known=self._random.random() < KNOWN_DEATHS)
        await self._last(self._random.choice((3, 8, 20)))
        for worker in workers:
            self._pulling.start_worker(worker.manner.tenant_id)
        self._note("worker", from_us)

    async def kill_api(self) -> None:
        """Dies with runs in hand; another is started."""
        apis = [api for api in self._pulling.apis if api.is_alive]
        if not apis:
            return
        from_us = self._world.now_us()
        self._random.choice(apis).die(is_known=self._random.random() < KNOWN_DEATHS)
        await self._last(self._random.choice((0.1, 1, 4)))
        self._pulling.start_api()
        self._note("api", from_us)

    async def freeze_api(self) -> None:
        """Sleeps: longer than its links wait for it, or not."""
        apis = [api for api in self._pulling.apis if api.is_alive]
        if not apis:
            return
        from_us = self._world.now_us()
        api = self._random.choice(apis)
        api.machine.freeze()
        await self._last(self._random.choice((1, 3, 5, 9)))
        if api.is_alive:
            api.machine.thaw()
        self._note("api", from_us)

    async def cut_api(self) -> None:
        """A process of the API does not reach the database."""
        apis = [api for api in self._pulling.apis if api.is_alive]
        if not apis:
            return
        from_us = self._world.now_us()
        api = self._random.choice(apis)
        api.line.cut(is_seen=True)
        await self._last(self._random.choice((1, 4, 9)))
        api.line.mend()
        self._note("api", from_us)

    async def cut_links(self) -> None:
        """All links end, a few times."""
        from_us = self._world.now_us()
        for _ in range(self._random.randint(1, 4)):
            self._pulling.network.cut()
            await self._last(self._random.choice((0.001, 0.1, 0.7, 3)))
        self._note("link", from_us)

    async def refuse_links(self) -> None:
        """All links end, and for a while there can be no others."""
        from_us = self._world.now_us()
        self._pulling.network.is_refusing = True
        self._pulling.network.cut()
        await self._last(self._random.choice((1, 4, 8)))
        self._pulling.network.is_refusing = False
        self._note("link", from_us)

    async def hold_links(self) -> None:
        """A black hole: for so long that both ends notice, or not."""
        from_us = self._world.now_us()
        self._pulling.network.hold()
        await self._last(self._random.choice((0.5, 2, 3.5, 5, 8)))
        self._pulling.network.heal()
        self._note("link", from_us)

    async def hold_streams(self) -> None:
        """A black hole between workers and the API."""
        from_us = self._world.now_us()
        streams = [stream for api in self._pulling.apis for stream in api.streams.values()]
        for stream in streams:
            stream.hold()
        await self._last(self._random.choice((1, 4, 7)))
        for stream in streams:
            stream.let_go()
        self._note("worker", from_us)

    async def lose_answers(self) -> None:
        """Requests of workers, and answers to them, get lost."""
        from_us = self._world.now_us()
        for api in self._pulling.apis:
            api.loss = 0.4
        await self._last(self._random.choice((3, 8, 15)))
        for api in self._pulling.apis:
            api.loss = 0.0
        self._note("worker", from_us)

    def _worker(self) -> PullWorker | None:
        workers = [
            worker
            for worker in self._pulling.workers
            if not worker.machine.is_dead and not worker.machine.is_frozen and not worker.is_leaving
        ]
        return self._random.choice(workers) if workers else None

    def _note(self, kind: str, from_us: int) -> None:
        self._world.logbook.fault(kind, from_us, self._world.now_us())

    async def _last(self, seconds: float) -> None:
        left_us = self._calm_us - self._world.now_us()
        await self._world.clock.sleep(min(int(seconds * 1_000) * MS, left_us * 1_000))


KINDS = tuple(name for name in vars(QueueFaults) if name[0] != "_" and name != "befall")
