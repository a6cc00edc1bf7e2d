"""What a seed has in store for its world: how large it is, and what breaks when.

Invariant: whatever is broken is healed before the calm begins.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from tests.checker.records import History
from tests.sim.faults import Fault, Faults
from tests.sim.simulation import CALM_S, SECOND, SECOND_US, Simulation


class Luck:
    """Drives one simulation. `faults` and `requests`: so much of these kinds, and nothing else.

    `transactions` is how many of applications there are; None leaves it to the seed. All about them
    comes from a source of its own: in a world without them everything is as if there were none.
    """

    def __init__(
        self,
        simulation: Simulation,
        faults: Sequence[str] = (),
        requests: int | None = None,
        transactions: int | None = None,
    ) -> None:
        self._world = simulation
        self._of_applications: Random = simulation.source("luck of applications")
        self._transactions = transactions
        self._wanted = faults
        self._requests = requests
        self._random: Random = simulation.source("luck")
        self._tasks: list[asyncio.Task[None]] = []

    async def live(self) -> History:
        """The whole life of a world."""
        world, random = self._world, self._random
        shards, jobs = random.randint(1, 3), random.randint(3, 8)
        active_s = random.randint(40, 80)
        calm_us = world.now_us() + active_s * SECOND_US
        faults = len(self._wanted) or random.choice((0, 1, 1, 2, 2, 3, 4))
        requests = self._requests or random.choice((0, 3, 6, 10))
        self._spawn(world.clients.begin(jobs))
        for _ in range(shards):
            world.start()
        befall = self._faults(calm_us)
        for _ in range(faults):
            self._later(random.uniform(3, active_s - 15), befall)
        for _ in range(requests):
            self._later(random.uniform(1, active_s), world.clients.act)
        self._let_applications_live(active_s, calm_us)
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
        wanted: list[Fault] = [getattr(faults, name) for name in self._wanted]
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
        world, random = self._world, self._of_applications
        transactions = random.choice((0, 0, 8, 20))
        if self._transactions is not None:
            transactions = self._transactions
        if not transactions:
            return
        self._spawn(world.applications.begin())
        for _ in range(transactions):
            self._later(random.uniform(1, active_s - 1), world.applications.act)
        if not self._wanted and random.random() < 0.3:
            faults = Faults(world, random, calm_us)
            self._later(
                random.uniform(1, active_s - 15), lambda: faults.befall(faults.crash_planning)
            )

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
