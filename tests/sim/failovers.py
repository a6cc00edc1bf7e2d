"""Faults of connections and of the database itself: what others take for a death, and failovers.

Invariant: as of other faults. After a failover it takes more than a second until anybody reaches
the database, and its clock is not behind the epochs that it has forgotten: epochs are seconds, at
least.
"""

from tests.sim.faults import Faults
from tests.sim.simulation import SECOND_US, Process, Snapshot

from wheelsched.core.token import next_epoch

LIE_US = 5 * SECOND_US  # within which a shard has noticed that its lease is gone


class Failovers(Faults):
    """Ends connections, certifies deaths, restarts the server, and lets it go back in time."""

    async def cut_lease(self, process: Process) -> None:
        """The lease connection of a living shard ends, a few times: nobody is robbed."""
        from_us = self._world.now_us()
        for _ in range(self._random.randint(1, 4)):
            process.line.disconnect()
            await self._last(self._random.choice((0.001, 0.05, 0.4, 0.6, 2)))
        self._note("disconnect", from_us, process)

    async def end_frozen(self, process: Process) -> None:
        """The lease connection of a frozen shard ends; it wakes while its lease would still hold.

        By then another may be the owner.
        """
        from_us = self._world.now_us()
        process.machine.freeze()
        await self._last(self._random.uniform(0, 1.5))
        process.line.disconnect()
        await self._last(self._random.choice((0.3, 0.7, 1, 2, 4, 9)))
        if process.machine.is_frozen and not process.machine.is_dead:
            process.machine.thaw()
        self._note("freeze", from_us, process)

    async def reuse_pid(self, process: Process) -> None:
        """A shard dies, and the next connection of another gets the pid of its backend."""
        connection = process.line.connection
        self._world.crash(process)
        if connection is not None:
            self._world.store.server.reuse_pid(connection.backend.pid)
        for other in list(self._world.processes.values())[:1]:
            other.line.disconnect()
            self._note("disconnect", self._world.now_us(), other)
        await self._restart()

    async def certify_falsely(self, process: Process) -> None:
        """The parent of a shard says that it is dead, and it lives."""
        now_us = self._world.now_us()
        self._world.logbook.fault("false_death", now_us, now_us + LIE_US, process.name)
        await self._world.certify_death(process)

    async def crash_backends(self, _: Process) -> None:
        """One backend crashes, and the server ends all others: in one lifetime of its."""
        self._world.store.server.end_all()
        await self._lose_server_for(self._random.choice((0.05, 0.3, 0.8)), apart_s=1.2)

    async def restart_server(self, _: Process) -> None:
        self._world.store.server.restart()
        await self._lose_server_for(self._random.choice((0.05, 0.3, 0.8)), apart_s=1.2)

    async def go_back(self, _: Process) -> None:
        """The primary is gone, and with it the last seconds: a replica that lagged goes on."""
        snapshot = self._world.snapshot()
        await self._last(self._random.choice((0.1, 1, 3, 7)))
        self._go_back(snapshot)
        await self._lose_server_for(self._random.choice((1.2, 2, 5, 8)))

    async def go_back_over_a_takeover(self, process: Process) -> None:
        """A frozen shard is taken over, the database forgets that, and the shard wakes."""
        from_us = self._world.now_us()
        process.machine.freeze()
        await self._last(self._random.uniform(0, 2))
        snapshot = self._world.snapshot()
        if self._random.random() < 0.5:
            process.line.disconnect()
        await self._last(self._random.uniform(2, 9))
        self._go_back(snapshot)
        await self._lose_server_for(self._random.choice((1.2, 3)))
        if self._random.random() < 0.5:
            await self._last(self._random.uniform(0, 3))
        if not process.machine.is_dead:
            process.machine.thaw()
        self._note("freeze", from_us, process)

    def _go_back(self, snapshot: Snapshot) -> None:
        """Another server goes on; it has lost nothing if the clock is behind what it would lose."""
        if self._is_clock_behind(snapshot):
            self._world.store.server.restart()
        else:
            self._world.go_back(snapshot)

    def _is_clock_behind(self, snapshot: Snapshot) -> bool:
        """Whether the clock was set back behind an epoch that began since then."""
        world = self._world
        offsets_us = [0, *(offset.offset_us for offset in world.logbook.offsets)]
        if offsets_us == sorted(offsets_us):
            return False
        now = next_epoch(0, 0, world.database_us())
        pairs = zip(snapshot.tables["partitions"], world.tables.partitions, strict=True)
        return any(before.epoch < row.epoch > now for before, row in pairs)

    async def _lose_server_for(self, seconds: float, apart_s: float = 0) -> None:
        """Nobody reaches the server, and what was under way is over; then all do, or one by one."""
        world, from_us = self._world, self._world.now_us()
        world.lose_server()
        world.is_down = True
        for process in world.processes.values():
            process.line.cut(is_seen=True)
        await self._last(seconds)
        world.is_down = False
        for process in tuple(world.processes.values()):
            await self._last(self._random.uniform(0, apart_s))
            process.line.mend()
        self._note("store", from_us, None)
