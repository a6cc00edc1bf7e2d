"""A simulation: shards, workers, clients and bad luck, on one loop, in virtual time, from one seed.

Invariant: the seed decides everything. What one part draws does not depend on what another has
drawn: each has a source of its own.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from tests.checker.records import Offset
from tests.sim.applications import Applications
from tests.sim.callers import Callers
from tests.sim.clients import Clients
from tests.sim.fates import Fate, Trap, Weather
from tests.sim.former import watch_runs
from tests.sim.logbook import Logbook, run_row
from tests.sim.machine import Machine
from tests.sim.network import Line
from tests.sim.pulling import Pulling
from tests.sim.scene import Scene
from tests.sim.setting import PLAIN, Setting
from tests.sim.workers import Road, Workers

from wheelsched.clock import DatabaseClock
from wheelsched.config import FairnessConfig, ShardConfig
from wheelsched.core.model import RunKey
from wheelsched.core.offset import ClockSample
from wheelsched.core.targets.egress import NO_EXCEPTIONS
from wheelsched.jobs.drafts import judge_draft
from wheelsched.shard.service import Environment, Shard
from wheelsched.testing import MemoryStore, VirtualClock
from wheelsched.testing.leases import MemoryLeases
from wheelsched.testing.tables import RunRow, TablesSnapshot

MS = 1_000_000
SECOND = 1_000 * MS
SECOND_US = 1_000_000
DRIFTS_PPM = (0, 20, -20, 50, -50, 400, -400)  # quartz, and what some call a virtual machine
KNOWN_DEATHS = 0.7  # of those who die, as many close their connections
CALM_S = 75  # after everything was healed: a refresh, and the longest chain of attempts


class ShardClock(DatabaseClock):
    """What a shard knows of the database's clock: it says how far off that may be."""

    def __init__(self, machine: Machine, sample: ClockSample, said: Callable[[int], None]) -> None:
        super().__init__(machine, sample)
        self._said = said

    def add_sample(self, sample: ClockSample) -> bool:
        has_stepped = super().add_sample(sample)
        self._said(self.error_us)
        return has_stepped


class Process(Struct, eq=False):
    """A shard daemon, on its machine."""

    name: str
    machine: Machine
    line: Line
    shard: Shard
    task: "asyncio.Task[None]"


class Snapshot(Struct, frozen=True):
    """What a replica has at an instant."""

    tables: TablesSnapshot
    at_us: int
    overwritten: int  # how many rows had been written over by then


class Simulation:
    """One world."""

    def __init__(self, seed: int, setting: Setting = PLAIN) -> None:
        self.seed = seed
        self._start_us = setting.start_us
        self._config = _config(setting)
        self.clock = VirtualClock(10**15)
        self._began_ns = self.clock.now_ns()
        self.offset_us = 0
        self.store = MemoryStore(self.database_us)
        self.tables = self.store._tables
        self.logbook = Logbook(self.now_us)
        self.logbook.is_narrow = setting.places is not None
        scene = Scene(self.clock, self.store, self.database_us, self.logbook, setting.zone)
        self.workers = Workers(scene, self.source("workers"))
        self.clients = Clients(scene, self.source("clients"))
        self.applications = Applications(scene, self.source("applications"))
        self.callers = Callers(scene, self.source("callers"))
        self.pulling = Pulling(scene, seed)
        self.traps: dict[str, Trap] = {}  # by the name of the statement
        self.struck: set[tuple[str, Fate]] = set()  # which fates statements have had
        self.processes: dict[str, Process] = {}
        self.leaving: set[str] = set()  # of their names
        self.is_down = False  # nobody reaches the database
        self._ended: list[asyncio.Task[None]] = []
        self._late: set[asyncio.Task[None]] = set()
        self._ends = self.source("ends of connections")
        self._names = 0
        self._watch_owners(self.store.leases)
        watch_runs(self.tables, lambda run: self.logbook.overwritten.append(run_row(run)))

    def source(self, name: str) -> Random:
        return Random(f"{self.seed} {name}")

    def now_us(self) -> int:
        """The reference: it never steps."""
        return self._start_us + (self.clock.now_ns() - self._began_ns) // 1_000

    def database_us(self) -> int:
        return self.now_us() + self.offset_us

    def start(self) -> Process:
        """Starts a shard on a machine of its own."""
        self._names += 1
        name = f"shard-{self._names}"
        random = self.source(name)
        drift_ppm = self.source(f"{name} drift").choice(DRIFTS_PPM)
        machine = Machine(self.clock, random.randint(0, 10**14), drift_ppm)
        store = self.store.for_process()
        self._watch_owners(store.leases)
        line = Line(store, self.clock, machine, self.source(f"{name} line"))
        around = Environment(
            stores=line,
            listen=line.listen,
            validate=partial(judge_draft, rules=NO_EXCEPTIONS),
            dispatcher=Road(machine, self.workers),
            machine=machine,
            clock=ShardClock(machine, self._sample(machine), self.logbook.said_of_clock),
            random=random,
        )
        if self.pulling.is_open:
            around = self._with_queues(around, line, machine, name)
        shard = Shard(around, self._config)
        task = asyncio.get_running_loop().create_task(shard.run(), name=name)
        process = Process(name, machine, line, shard, task)
        line.crash = lambda: self.crash(process)
        line.joined = lambda shard_id: self.logbook.joined(name, shard_id)
        line.trap = lambda statement: self._trap(process, statement)
        line.struck = lambda statement, fate: self.struck.add((statement, fate))
        self.processes[name] = process
        self.logbook.born(name)
        if self.is_down:
            line.cut(is_seen=True)
        return process

    def _with_queues(
        self, around: Environment, line: Line, machine: Machine, name: str
    ) -> Environment:
        """The same for a shard with queues."""
        dispatcher, listener = self.pulling.serve(around.dispatcher, line, machine, name)
        return replace(around, dispatcher=dispatcher, on_joining=listener.join, link=listener.link)

    def crash(self, process: Process) -> None:
        """Ends a process at once; what it had sent goes on.

        Mostly its kernel closes its connections; a machine that loses power closes nothing, and the
        server ends what is left of them much later.
        """
        now_us = self.now_us()
        is_known = self._ends.random() < KNOWN_DEATHS
        self.logbook.fault("crash", now_us, now_us, process.name)
        self.logbook.died(process.name, is_killed=True, is_known=is_known)
        process.machine.die()
        self.pulling.network.lose(process.machine, is_known=is_known)
        if is_known:
            process.line.disconnect()
        else:
            self._disconnect_later(process, self._ends.uniform(1, 30))
        process.task.cancel()
        self._bury(process)

    async def leave(self, process: Process) -> None:
        """Asks a process to stop, and sees it go."""
        process.shard.stop()
        self.logbook.died(process.name, is_killed=False)
        from_us = self.now_us()
        while not process.task.done() and not process.machine.is_dead:
            await self.clock.sleep(50 * MS)
        self.logbook.fault("leave", from_us, self.now_us(), process.name)
        self._bury(process)

    async def lay_trap(self, statement: str, fate: Fate) -> Process:
        """Lets the next statement of a name have a fate, and gives whose it was."""
        trap = Trap(fate, asyncio.get_running_loop().create_future())
        self.traps.setdefault(statement, trap)
        return await trap.sprung

    def draw_cut(self) -> bool:
        """Whether those whose connections are cut see that; a black hole shows nobody anything."""
        return self._ends.random() < 0.5

    def lose_server(self) -> None:
        """The server ends all connections, and whatever is open on them."""
        for process in self.processes.values():
            process.line.lose_server()
        self.applications.lose_server()
        self.tables.locked.clear()

    async def certify_death(self, process: Process) -> None:
        """What a parent does that has waited for a process: or believes to have."""
        for shard_id in self.logbook.lives[process.name].shards[-1:]:
            await self.store.leases.certify_death(UUID(shard_id))

    def snapshot(self) -> Snapshot:
        return Snapshot(self.store.snapshot(), self.now_us(), len(self.logbook.overwritten))

    def go_back(self, snapshot: Snapshot) -> None:
        """The database is what it was at an instant, on another server."""
        before: dict[RunKey, RunRow] = snapshot.tables["runs"]
        self.logbook.forgotten += [
            run_row(row.run)
            for key, row in self.tables.runs.items()
            if key not in before or before[key].run != row.run
        ]
        self.logbook.forgotten += self.logbook.overwritten[snapshot.overwritten :]
        del self.logbook.overwritten[snapshot.overwritten :]
        self.store.go_back(snapshot.tables)
        self.lose_server()
        self.logbook.went_back(self.tables, snapshot.at_us)

    def step_clock(self, by_us: int) -> None:
        """Sets the database's clock to another time; back, it prolongs the leases of the dead."""
        self.offset_us += by_us
        now_us = self.now_us()
        self.logbook.offsets.append(Offset(from_us=now_us, offset_us=self.offset_us))
        prolonged_us = -by_us if by_us < 0 and self._has_left_leases() else 0
        self.logbook.fault("clock", now_us, now_us + max(prolonged_us, 5 * SECOND_US))

    def heal(self) -> None:
        """Nothing is broken any more, and somebody is there who stays."""
        self.is_down = False
        for process in self.processes.values():
            process.line.weather = Weather()
            process.line.mend()
            if process.machine.is_frozen:
                process.machine.thaw()
        self.traps.clear()
        self.fare(Weather(), loss=0.0)
        self.workers.is_calm = True
        self.pulling.heal()
        if self.processes.keys() <= self.leaving:
            self.start()

    def fare(self, weather: Weather, loss: float) -> None:
        """What becomes of what clients and applications ask for, from now on."""
        self.clients.fare(weather, loss)
        self.callers.api.fare(weather, loss)
        self.applications.loss = loss

    def check_alive(self) -> None:
        """Raises what a process has died of by itself."""
        for process in (*self.processes.values(),):
            if process.task.done():
                process.task.result()
                self._bury(process)
        self.pulling.check_alive()

    async def finish(self) -> None:
        for process in tuple(self.processes.values()):
            process.machine.die()
            process.task.cancel()
            self._bury(process)
        await self.clock.run_ready()
        for task in self._ended:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await self.clock.run_ready()

    def _trap(self, process: Process, statement: str) -> Fate | None:
        trap = self.traps.pop(statement, None)
        if trap is None:
            return None
        trap.sprung.set_result(process)
        return trap.fate

    def _bury(self, process: Process) -> None:
        if self.processes.pop(process.name, None) is not None:
            self._ended.append(process.task)
        if not process.machine.is_dead:
            process.line.disconnect()
            self.pulling.network.lose(process.machine, is_known=True)

    def _disconnect_later(self, process: Process, seconds: float) -> None:
        async def disconnect() -> None:
            await self.clock.sleep(int(seconds * SECOND))
            process.line.disconnect()

        task = asyncio.get_running_loop().create_task(disconnect())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def _has_left_leases(self) -> bool:
        """Whether somebody has died whose lease is still there."""
        living = {one for name in self.processes for one in self.logbook.lives[name].shards}
        return any(str(shard_id) not in living for shard_id in self.tables.shards)

    def _sample(self, machine: Machine) -> ClockSample:
        now_ns = machine.now_ns()
        return ClockSample(sent_ns=now_ns, database_us=self.database_us(), received_ns=now_ns)

    def _watch_owners(self, leases: MemoryLeases) -> None:
        """Notes every change of an owner at the statement that makes it."""
        tables = self.tables
        for name, ended in (
            ("acquire", "released"),
            ("release", "released"),
            ("take_over", "taken_over"),
            ("take_over_gone", "taken_over"),
            ("certify_death", "taken_over"),
            ("leave", "left"),
        ):

            async def noted(*arguments, _name=name, _ended=ended, **named):  # type: ignore[no-untyped-def] # as whatever it wraps
                try:
                    return await getattr(type(leases), _name)(leases, *arguments, **named)
                finally:
                    self.logbook.owners_changed(tables, _ended)

            setattr(leases, name, noted)


def _config(setting: Setting) -> ShardConfig:
    fairness = FairnessConfig()
    if setting.places is not None:
        fairness = FairnessConfig(in_flight_per_origin=setting.places)
    return ShardConfig(refresh_us=setting.refresh_us, fairness=fairness)
