"""What a seed has in store for its world: how large it is, and what breaks when.

Invariant: whatever is broken is healed before the calm begins.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from msgspec import Struct
from tests.checker.records import History
from tests.sim.failovers import Failovers
from tests.sim.faults import Fault, Faults
from tests.sim.queue_faults import KINDS, QueueFaults
from tests.sim.simulation import CALM_S, SECOND, SECOND_US, Simulation


class Wanted(Struct, frozen=True, kw_only=True):
    """What is not left to the seed: so much of these kinds, or these `faults` and no others.

    What applications do, the traps, the calls, the failovers and the queues come from sources of
    their own each: in a world without them everything is as if there were none. So a seed that was
    kept finds its old world.
    """

    faults: tuple[str, ...] = ()
    requests: int | None = None
    transactions: int | None = None
    traps: int | None = None
    calls: int | None = None
    failovers: int | None = None
    queues: int | None = None  # jobs with queues
    queue_faults: tuple[str, ...] = ()


class Luck:
    """Drives one simulation."""

    def __init__(self, simulation: Simulation, wanted: Wanted) -> None:
        self._world = simulation
        self._wanted = wanted
        self._random: Random = simulation.source("luck")
        self._tasks: list[asyncio.Task[None]] = []

    async def live(self) -> History:
        """The whole life of a world."""
        try:
            return await self._live()
        finally:
            self._world.pulling.end()

    async def _live(self) -> History:
        world, random = self._world, self._random
        shards, jobs = random.randint(1, 3), random.randint(3, 8)
        active_s = random.randint(40, 80)
        calm_us = world.now_us() + active_s * SECOND_US
        faults = len(self._wanted.faults) or random.choice((0, 1, 1, 2, 2, 3, 4))
        requests = self._wanted.requests or random.choice((0, 3, 6, 10))
        self._spawn(world.clients.begin(jobs))
        self._let_workers_pull(active_s, calm_us)
        for _ in range(shards):
            world.start()
        befall = self._faults(calm_us)
        for _ in range(faults):
            self._later(random.uniform(3, active_s - 15), befall)
        for _ in range(requests):
            self._later(random.uniform(1, active_s), world.clients.act)
        self._let_applications_live(active_s, calm_us)
        self._lay_traps(active_s, calm_us)
        self._let_callers_live(active_s, calm_us)
        self._let_connections_end(active_s, calm_us)
        await self._advance(active_s)
        world.heal()
        healed_us = world.now_us()
        await self._advance(CALM_S)
        for task in self._tasks:
            if task.done():
                task.result()
        world.pulling.note_offers()
        history = world.logbook.close(world.tables, healed_us)
        await world.finish()
        return history

    def _faults(self, calm_us: int) -> Callable[[], Awaitable[None]]:
        """Breaks something, for a while, whenever it is called."""
        random = self._random
        faults = Failovers(self._world, random, calm_us)
        wanted: list[Fault] = [getattr(faults, name) for name in self._wanted.faults]
        usual: list[Fault] = [
            faults.crash,
            faults.crash_at_statement,
            faults.crash_at_statement,
            faults.freeze,
            faults.cut,
            faults.cut_everybody,
            faults.storm,
            faults.storm,
            faults.slow_outcomes,
            faults.deafen,
            faults.join,
            faults.leave,
            faults.leave,
            faults.step,
        ]

        async def befall() -> None:
            await faults.befall(wanted.pop() if wanted else random.choice(usual))

        return befall

    def _let_applications_live(self, active_s: int, calm_us: int) -> None:
        world, random = self._world, self._world.source("luck of applications")
        transactions = random.choice((0, 0, 8, 20))
        if self._wanted.transactions is not None:
            transactions = self._wanted.transactions
        if not transactions:
            return
        self._spawn(world.applications.begin())
        for _ in range(transactions):
            self._later(random.uniform(1, active_s - 1), world.applications.act)
        if not self._wanted.faults and random.random() < 0.3:
            faults = Faults(world, random, calm_us)
            crash = partial(faults.befall, faults.crash_planning)
            self._later(random.uniform(1, active_s - 15), crash)

    def _lay_traps(self, active_s: int, calm_us: int) -> None:
        """For statements, by name; and lets happen what some of them are needed for only."""
        random = self._world.source("luck of traps")
        traps = random.choice((0, 3, 6, 9)) if self._wanted.traps is None else self._wanted.traps
        faults = Faults(self._world, random, calm_us)
        for _ in range(traps):
            self._later(random.uniform(0, active_s - 5), faults.trap)
        for _ in range(traps // 2):
            moves = (faults.crash, faults.join, faults.leave, faults.leave_and_crash)
            move = partial(faults.befall, random.choice(moves))
            self._later(random.uniform(3, active_s - 5), move)

    def _let_callers_live(self, active_s: int, calm_us: int) -> None:
        callers, random = self._world.callers, self._world.source("luck of callers")
        calls = random.choice((0, 0, 12, 30)) if self._wanted.calls is None else self._wanted.calls
        if not calls:
            return
        callers.until_us = calm_us
        self._spawn(callers.begin(random.randint(2, 4)))
        for _ in range(calls):
            self._later(random.uniform(2, active_s - 6), callers.act)

    def _let_connections_end(self, active_s: int, calm_us: int) -> None:
        """One by one, all at once, or with the server that knew of them."""
        random = self._world.source("luck of failovers")
        count = random.choice((0, 0, 1, 2))
        if self._wanted.failovers is not None:
            count = self._wanted.failovers
        faults = Failovers(self._world, random, calm_us)
        kinds = (
            faults.cut_lease,
            faults.cut_lease,
            faults.end_frozen,
            faults.end_frozen,
            faults.reuse_pid,
            faults.certify_falsely,
            faults.crash_backends,
            faults.restart_server,
            faults.go_back,
            faults.go_back,
            faults.go_back_over_a_takeover,
        )
        for _ in range(count):
            befall = partial(faults.befall, random.choice(kinds))
            self._later(random.uniform(3, active_s - 20), befall)

    def _let_workers_pull(self, active_s: int, calm_us: int) -> None:
        """Opens queues before the first shard starts, and breaks things around them."""
        world, random = self._world, self._world.source("luck of queues")
        jobs = random.choice((0, 0, 3, 6)) if self._wanted.queues is None else self._wanted.queues
        if not jobs:
            return
        world.pulling.open()
        self._spawn(world.pulling.clients.begin(jobs))
        requests = random.choice((0, 4, 8))
        if self._wanted.requests is not None:
            requests = self._wanted.requests
        for _ in range(requests):
            self._later(random.uniform(1, active_s), world.pulling.clients.act)
        faults = QueueFaults(world, random, calm_us)
        kinds = self._wanted.queue_faults
        if not kinds and not self._wanted.faults:
            kinds = tuple(random.choices(KINDS, k=random.choice((0, 1, 2, 4, 6))))
        for kind in kinds:
            self._later(random.uniform(3, active_s - 10), partial(faults.befall, kind))

    async def _advance(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            await self._world.clock.advance(SECOND)
            self._world.check_alive()

    def _later(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        async def wait_and_act() -> None:
            await self._world.clock.sleep(int(seconds * SECOND))
            await act()

        self._spawn(wait_and_act())

    def _spawn(self, what: Awaitable[None]) -> None:
        async def run() -> None:
            await what

        self._tasks.append(asyncio.get_running_loop().create_task(run()))
