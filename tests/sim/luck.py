"""What a seed has in store for its world: how large it is, and what breaks when.

Invariant: whatever is broken is healed before the calm begins.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from msgspec import Struct
from tests.checker.records import History
from tests.sim.faults import Fault, Faults
from tests.sim.simulation import CALM_S, SECOND, SECOND_US, Simulation


class Wanted(Struct, frozen=True, kw_only=True):
    """What is not left to the seed: so much of these kinds, or these `faults` and no others.

    What applications do, and the traps, come from sources of their own each: in a world without
    them everything is as if there were none. So a seed that was kept finds its old world.
    """

    faults: tuple[str, ...] = ()
    requests: int | None = None
    transactions: int | None = None
    traps: int | None = None


class Luck:
    """Drives one simulation."""

    def __init__(self, simulation: Simulation, wanted: Wanted) -> None:
        self._world = simulation
        self._wanted = wanted
        self._random: Random = simulation.source("luck")
        self._tasks: list[asyncio.Task[None]] = []

    async def live(self) -> History:
        """The whole life of a world."""
        world, random = self._world, self._random
        shards, jobs = random.randint(1, 3), random.randint(3, 8)
        active_s = random.randint(40, 80)
        calm_us = world.now_us() + active_s * SECOND_US
        faults = len(self._wanted.faults) or random.choice((0, 1, 1, 2, 2, 3, 4))
        requests = self._wanted.requests or random.choice((0, 3, 6, 10))
        self._spawn(world.clients.begin(jobs))
        for _ in range(shards):
            world.start()
        befall = self._faults(calm_us)
        for _ in range(faults):
            self._later(random.uniform(3, active_s - 15), befall)
        for _ in range(requests):
            self._later(random.uniform(1, active_s), world.clients.act)
        self._let_applications_live(active_s, calm_us)
        self._lay_traps(active_s, calm_us)
        await self._advance(active_s)
        world.heal()
        healed_us = world.now_us()
        await self._advance(CALM_S)
        for task in self._tasks:
            if task.done():
                task.result()
        history = world.logbook.close(world.tables, healed_us)
        await world.finish()
        return history

    def _faults(self, calm_us: int) -> Callable[[], Awaitable[None]]:
        """Breaks something, for a while, whenever it is called."""
        random = self._random
        faults = Faults(self._world, random, calm_us)
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
