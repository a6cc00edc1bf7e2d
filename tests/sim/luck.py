"""What a seed has in store for its world: how large it is, and what breaks when.

Invariant: whatever is broken is healed before the calm begins.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from tests.checker.records import History
from tests.sim.network import Weather
from tests.sim.simulation import CALM_S, MS, SECOND, Process, Simulation

SLOW_OUTCOME_S = 15


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
        self._wanted = [getattr(self, f"_{name}") for name in faults]
        self._requests = requests
        self._random: Random = simulation.source("luck")
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: set[str] = set()

    async def live(self) -> History:
        """The whole life of a world."""
        world, random = self._world, self._random
        shards, jobs = random.randint(1, 3), random.randint(3, 8)
        active_s = random.randint(40, 80)
        faults = len(self._wanted) or random.choice((0, 1, 1, 2, 2, 3, 4))
        requests = self._requests or random.choice((0, 3, 6, 10))
        self._spawn(world.clients.begin(jobs))
        for _ in range(shards):
            world.start()
        for _ in range(faults):
            self._later(random.uniform(3, active_s - 15), self._fault)
        for _ in range(requests):
            self._later(random.uniform(1, active_s), world.clients.act)
        self._let_applications_live(active_s)
        await self._advance(active_s)
        await self._heal()
        healed_us = world.now_us()
        await self._advance(CALM_S)
        for task in self._tasks:
            if task.done():
                task.result()
        history = world.logbook.close(world.tables, healed_us)
        await world.finish()
        return history

    def _let_applications_live(self, active_s: int) -> None:
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
            self._later(random.uniform(1, active_s - 15), self._crash_some_planner)

    async def _crash_some_planner(self) -> None:
        if self._world.processes:
            processes = list(self._world.processes.values())
            await self._crash_planning(self._of_applications.choice(processes))

    async def _crash_planning(self, process: Process) -> None:
        """Dies at the next statement by which it would plan, or clear away."""
        statements = ("plans.plan", "plans.plan", "plans.clear")
        process.line.weather.crash_at = self._of_applications.choice(statements)
        while not process.task.done() and process.line.weather.crash_at is not None:
            await self._sleep(0.1)
        if process.machine.is_dead:
            await self._restart()

    async def _heal(self) -> None:
        world = self._world
        world.heal()
        if not world.processes:
            world.start()

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

    async def _fault(self) -> None:
        """Breaks something, for a while."""
        faults: list[Callable[[Process], Awaitable[None]]] = [
            self._crash,
            self._crash_at_statement,
            self._crash_at_statement,
            self._freeze,
            self._cut,
            self._cut_everybody,
            self._storm,
            self._storm,
            self._slow_outcomes,
            self._deafen,
            self._join,
            self._leave,
            self._leave,
            self._step,
        ]
        fault = self._wanted.pop() if self._wanted else self._random.choice(faults)
        if not self._world.processes:
            self._world.start()
        process = self._random.choice(list(self._world.processes.values()))
        await fault(process)

    async def _crash(self, process: Process) -> None:
        self._world.crash(process)
        await self._restart()

    async def _crash_at_statement(self, process: Process) -> None:
        def is_over() -> bool:
            return process.task.done() or process.line.weather.crash_in is None  # gone, or healed

        process.line.weather.crash_in = self._random.randint(1, 40)
        while not is_over():
            await self._sleep(0.1)
        if process.machine.is_dead:
            await self._restart()

    async def _restart(self) -> None:
        await self._sleep(self._random.choice((0.2, 1, 4, 9)))
        if not self._world.workers.is_calm and (
            not self._world.processes or self._random.random() < 0.7
        ):
            self._world.start()

    async def _freeze(self, process: Process) -> None:
        await self._freeze_for(process, self._random.choice((2, 4, 5, 6, 8, 20)))

    async def _freeze_long(self, process: Process) -> None:
        """Just long enough to be taken over, and to wake while the next owner is at it."""
        await self._freeze_for(process, self._random.uniform(7, 11))

    async def _freeze_for(self, process: Process, seconds: float) -> None:
        from_us = self._world.now_us()
        process.machine.freeze()
        await self._sleep(seconds)
        if process.machine.is_frozen and not process.machine.is_dead:
            process.machine.thaw()
        self._note("freeze", from_us, process)

    async def _cut(self, process: Process) -> None:
        await self._cut_for(process, self._random.choice((0.3, 2, 4.4, 6, 12)))

    async def _cut_long(self, process: Process) -> None:
        await self._cut_for(process, self._random.uniform(7, 11))

    async def _cut_for(self, process: Process, seconds: float) -> None:
        from_us = self._world.now_us()
        process.line.weather.is_cut = True
        await self._sleep(seconds)
        process.line.weather.is_cut = False
        self._note("store", from_us, process)

    async def _cut_everybody(self, _: Process) -> None:
        from_us = self._world.now_us()
        lines = [process.line for process in self._world.processes.values()]
        for line in lines:
            line.weather.is_cut = True
        await self._sleep(self._random.choice((1, 3, 7, 15)))
        for line in lines:
            line.weather.is_cut = False
        self._note("store", from_us, None)

    async def _storm(self, _: Process) -> None:
        """Statements get lost, answers get lost, some arrive late, and all take long."""
        from_us = self._world.now_us()
        weather = Weather(
            undone=self._random.choice((0.0, 0.05, 0.3)),
            ambiguous=self._random.choice((0.0, 0.1, 0.3)),
            late=self._random.choice((0.0, 0.0, 0.1)),
            slowest_ms=self._random.choice((20, 100, 400)),
        )
        processes = list(self._world.processes.values())
        for process in processes:
            process.line.weather = weather
        self._world.fare(weather, loss=0.3)
        await self._sleep(self._random.choice((3, 8, 15)))
        for process in processes:
            process.line.weather = Weather()
        self._world.fare(Weather(), loss=0.0)
        self._note("store", from_us, None)

    async def _slow_outcomes(self, _: Process) -> None:
        """Some take fifteen seconds until they are written; nothing else is slow."""
        from_us = self._world.now_us()
        lines = [process.line for process in self._world.processes.values()]
        for _second in range(self._random.choice((5, 20))):
            is_slow = self._random.random() < 0.5
            for line in lines:
                line.weather.outcomes_ms = SLOW_OUTCOME_S * 1_000 if is_slow else 0
            await self._sleep(1)
        for line in lines:
            line.weather.outcomes_ms = 0
        await self._sleep(SLOW_OUTCOME_S)
        self._note("store", from_us, None)

    async def _deafen(self, process: Process) -> None:
        from_us = self._world.now_us()
        process.line.weather.is_deaf = True
        await self._sleep(self._random.choice((1, 5, 20)))
        process.line.weather.is_deaf = False
        self._note("deaf", from_us, process)

    async def _join(self, _: Process) -> None:
        from_us = self._world.now_us()
        if len(self._world.processes) < 4:
            process = self._world.start()
            self._note("join", from_us, process)

    async def _leave(self, process: Process) -> None:
        self._leaving.add(process.name)
        if self._world.processes.keys() <= self._leaving:  # somebody stays
            self._world.start()
            await self._sleep(self._random.choice((0.5, 3)))
        if not process.machine.is_dead:
            await self._world.leave(process)

    async def _step(self, _: Process) -> None:
        by_us = self._random.choice((50, 300, 2_000, 30_000)) * 1_000
        self._world.step_clock(by_us * self._random.choice((1, -1)))

    def _note(self, kind: str, from_us: int, process: Process | None) -> None:
        name = None if process is None else process.name
        self._world.logbook.fault(kind, from_us, self._world.now_us(), name)

    async def _sleep(self, seconds: float) -> None:
        await self._world.clock.sleep(int(seconds * 1_000) * MS)
