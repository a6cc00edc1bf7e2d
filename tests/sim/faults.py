"""The faults of a simulation: what can be done to its shards, each for a while.

Invariant: what a fault breaks is whole again, and noted, before the calm begins; and what was sent
meanwhile has arrived by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from msgspec.structs import replace
from tests.sim.fates import CRASHES, STATEMENTS, Fate, Weather
from tests.sim.network import LATEST_MS
from tests.sim.simulation import MS, SECOND_US, Process, Simulation

SLOW_OUTCOME_S = 15
TRAPPED = (*CRASHES, Fate.AMBIGUOUS, Fate.AMBIGUOUS, Fate.LATE)

Fault = Callable[[Process], Awaitable[None]]


class Faults:
    """Breaks things in one world, by one luck, until it is calm."""

    def __init__(self, world: Simulation, random: Random, calm_us: int) -> None:
        self._world = world
        self._random = random
        self._calm_us = calm_us

    async def befall(self, fault: Fault) -> None:
        """Lets a fault befall somebody."""
        if not self._world.processes:
            self._world.start()
        await fault(self._random.choice(list(self._world.processes.values())))

    async def crash(self, process: Process) -> None:
        self._world.crash(process)
        await self._restart()

    async def crash_at_statement(self, process: Process) -> None:
        def is_over() -> bool:
            return process.task.done() or process.line.weather.crash_in is None  # gone, or healed

        process.line.weather.crash_in = self._random.randint(1, 40)
        while not is_over():
            await self._world.clock.sleep(100 * MS)
        if process.machine.is_dead:
            await self._restart()

    async def crash_planning(self, _: Process) -> None:
        """Somebody dies at the next statement by which it would plan, or clear away."""
        statement = self._random.choice(("plans.plan", "plans.plan", "plans.clear"))
        await self._world.lay_trap(statement, self._random.choice(CRASHES))
        await self._restart()

    async def trap(self) -> None:
        """Somebody dies, or hears nothing, at the next statement of a kind: each is as likely."""
        statement, fate = self._random.choice(STATEMENTS), self._random.choice(TRAPPED)
        process = await self._world.lay_trap(statement, fate)
        if fate in CRASHES:
            await self._restart()
        else:
            from_us = self._world.now_us()
            await self._last(LATEST_MS / 1_000)
            self._note("store", from_us, process)

    async def freeze(self, process: Process) -> None:
        await self._freeze_for(process, self._random.choice((2, 4, 5, 6, 8, 20)))

    async def freeze_long(self, process: Process) -> None:
        """Just long enough to be taken over, and to wake while the next owner is at it."""
        await self._freeze_for(process, self._random.uniform(7, 11))

    async def _freeze_for(self, process: Process, seconds: float) -> None:
        from_us = self._world.now_us()
        process.machine.freeze()
        await self._last(seconds)
        if process.machine.is_frozen and not process.machine.is_dead:
            process.machine.thaw()
        self._note("freeze", from_us, process)

    async def cut(self, process: Process) -> None:
        await self._cut_for(process, self._random.choice((0.3, 2, 4.4, 6, 12)))

    async def cut_long(self, process: Process) -> None:
        await self._cut_for(process, self._random.uniform(7, 11))

    async def _cut_for(self, process: Process, seconds: float) -> None:
        from_us = self._world.now_us()
        process.line.cut(is_seen=self._world.draw_cut())
        await self._last(seconds)
        process.line.mend()
        self._note("store", from_us, process)

    async def cut_everybody(self, _: Process) -> None:
        from_us = self._world.now_us()
        lines = [process.line for process in self._world.processes.values()]
        is_seen = self._world.draw_cut()
        for line in lines:
            line.cut(is_seen=is_seen)
        await self._last(self._random.choice((1, 3, 7, 15)))
        for line in lines:
            line.mend()
        self._note("store", from_us, None)

    async def storm(self, _: Process) -> None:
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
            process.line.weather = replace(weather)  # whose else is cut meanwhile is its own matter
        self._world.fare(weather, loss=0.3)
        await self._last(self._random.choice((3, 8, 15)), rest_s=LATEST_MS / 1_000)
        for process in processes:
            process.line.weather = Weather()
        self._world.fare(Weather(), loss=0.0)
        self._note("store", from_us, None)

    async def slow_outcomes(self, _: Process) -> None:
        """Some take fifteen seconds until they are written; nothing else is slow."""
        from_us = self._world.now_us()
        lines = [process.line for process in self._world.processes.values()]
        for _second in range(self._random.choice((5, 20))):
            is_slow = self._random.random() < 0.5
            for line in lines:
                line.weather.outcomes_ms = SLOW_OUTCOME_S * 1_000 if is_slow else 0
            await self._last(1, rest_s=SLOW_OUTCOME_S)
        for line in lines:
            line.weather.outcomes_ms = 0
        await self._last(SLOW_OUTCOME_S)
        self._note("store", from_us, None)

    async def deafen(self, process: Process) -> None:
        from_us = self._world.now_us()
        process.line.weather.is_deaf = True
        await self._last(self._random.choice((1, 5, 20)))
        process.line.weather.is_deaf = False
        self._note("deaf", from_us, process)

    async def join(self, _: Process) -> None:
        from_us = self._world.now_us()
        if len(self._world.processes) < 4:
            process = self._world.start()
            self._note("join", from_us, process)

    async def leave(self, process: Process) -> None:
        await self._let_somebody_stay(process)
        if not process.machine.is_dead:
            await self._world.leave(process)

    async def leave_and_crash(self, process: Process) -> None:
        """Is asked to leave, and dies of something else while it still carries runs."""
        await self._let_somebody_stay(process)
        if process.machine.is_dead:
            return
        leaving = asyncio.get_running_loop().create_task(self._world.leave(process))
        await self._last(self._random.choice((0.1, 0.5, 1, 2, 4)))
        if process.name in self._world.processes:
            self._world.crash(process)
            await self._restart()
        await leaving

    async def _let_somebody_stay(self, process: Process) -> None:
        self._world.leaving.add(process.name)
        if self._world.processes.keys() <= self._world.leaving:
            self._world.start()
            await self._last(self._random.choice((0.5, 3)))

    async def step(self, _: Process) -> None:
        """Sets the clock, but not back while a failover has left an epoch that is to be passed."""
        by_us = self._random.choice((50, 300, 2_000, 30_000)) * 1_000
        by_us *= self._random.choice((1, -1))
        if by_us > 0 or not self._world.logbook.has_forgotten_epochs(self._world.tables):
            self._world.step_clock(by_us)

    async def _restart(self) -> None:
        await self._world.clock.sleep(int(self._random.choice((0.2, 1, 4, 9)) * 1_000) * MS)
        if not self._world.workers.is_calm and (
            not self._world.processes or self._random.random() < 0.7
        ):
            self._world.start()

    def _note(self, kind: str, from_us: int, process: Process | None) -> None:
        name = None if process is None else process.name
        self._world.logbook.fault(kind, from_us, self._world.now_us(), name)

    async def _last(self, seconds: float, rest_s: float = 0) -> None:
        """Waits, but leaves so much time before the calm."""
        left_us = self._calm_us - self._world.now_us() - int(rest_s * SECOND_US)
        await self._world.clock.sleep(min(int(seconds * 1_000) * MS, left_us * 1_000))
