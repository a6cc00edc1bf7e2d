"""The line between a shard and the store: slow, and with bad days.

Invariant: every statement is done once, or not at all, and what its sender hears may be wrong: an
error for what was done, an error for what is done later, or nothing because it died meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any
from uuid import UUID

from tests.sim.fates import LOCAL, Fate, Weather
from tests.sim.machine import Machine

from wheelsched.core.offset import ClockSample
from wheelsched.errors import StoreTimeout, StoreUnavailable
from wheelsched.ports import Hint, HintSource
from wheelsched.testing import MemoryStore, VirtualClock
from wheelsched.testing.server import MemoryConnection

MS = 1_000_000
SLOWEST_HANDSHAKE_MS = 250  # of a lease connection, after one that has ended
LATEST_MS = 1_500  # until a statement that is believed lost arrives


class Part:
    """One part of the store, at the other end of the line."""

    def __init__(self, line: "Line", name: str, part: object) -> None:
        self._line = line
        self._name = name
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in LOCAL:
            return self._line.local(getattr(self._part, name))

        async def call(*given: object, **named: object) -> object:
            method = getattr(self._part, name)
            # What arrives late is what was sent, whatever has become of it meanwhile.
            arguments = [dict(one) if isinstance(one, dict) else one for one in given]
            if name == "join":
                self._line.joined(arguments[0])  # type: ignore[arg-type] # its first is the name
            sent_ns = self._line.now_ns()
            answer = await self._line.send(
                f"{self._name}.{name}", lambda: method(*arguments, **named)
            )
            if isinstance(answer, ClockSample):  # read at the other end of the line
                return ClockSample(sent_ns, answer.database_us, self._line.now_ns())
            return answer

        return call


class Line:
    """`Stores` for one process."""

    def __init__(
        self, store: MemoryStore, clock: VirtualClock, machine: Machine, random: Random
    ) -> None:
        self._store = store
        self._clock = clock
        self._machine = machine
        self._random = random
        self._handshakes = Random(machine.now_ns())
        self._left: set[asyncio.Task[object]] = set()
        self.breaks = 0  # how often the server has ended all connections
        self.weather = Weather()
        self.crash: Callable[[], None] = machine.die
        self.joined: Callable[[UUID], None] = lambda _: None
        self.trap: Callable[[str], Fate | None] = lambda _: None  # what waits for a statement
        self.struck: Callable[[str, Fate], None] = lambda *_: None
        self.leases: Any = Part(self, "leases", store.leases)
        self.timers: Any = Part(self, "timers", store.timers)
        self.runs: Any = Part(self, "runs", store.runs)
        self.plans: Any = Part(self, "plans", store.plans)
        self.jobs: Any = Part(self, "jobs", store.jobs)
        self.history: Any = Part(self, "history", store.history)
        self.tenants: Any = Part(self, "tenants", store.tenants)
        self.idempotency: Any = Part(self, "idempotency", store.idempotency)
        self.links: Any = Part(self, "links", store.links)

    def now_ns(self) -> int:
        return self._machine.now_ns()

    @property
    def connection(self) -> MemoryConnection | None:
        """The lease connection."""
        return self._store.leases.connection

    def local(self, method: Callable[[], Any]) -> Callable[[], Any]:
        """What a process asks of itself: it does not go on while it is frozen."""
        if not asyncio.iscoroutinefunction(method):
            return method

        async def wait() -> None:
            await method()
            await self._machine.thawed()
            self._check_alive()

        return wait

    def cut(self, *, is_seen: bool) -> None:
        """Lets no statement through. Both ends see the end of the lease connection, or neither."""
        self.weather.is_cut = True
        if self.connection is None:
            return
        if is_seen:
            self.connection.close()
        else:
            self.connection.is_black_holed = True

    def mend(self) -> None:
        self.weather.is_cut = False
        if self.connection is not None:
            self.connection.heal()

    def disconnect(self) -> None:
        """The kernel closes what a process had opened."""
        if self.connection is not None:
            self.connection.close()

    def lose_server(self) -> None:
        """The server has ended all connections: what was under way on them is over."""
        self.breaks += 1
        for task in tuple(self._left):
            task.cancel()

    async def send(self, name: str, do: Callable[[], Awaitable[object]]) -> object:
        """Does a statement, as its fate will have it."""
        self._check_alive()
        await self._reconnect(name)
        breaks = self.breaks
        fate = self._draw(name)
        self.struck(name, fate)
        delay_ns = self._random.randint(1, self.weather.slowest_ms) * MS
        is_slow_back = self._random.random() < 0.5
        if fate is Fate.CRASH_BEFORE:
            await self._die()
        if fate is Fate.UNDONE:
            await self._take(delay_ns)
            raise StoreUnavailable
        if fate is Fate.LATE:
            self._leave(do)
            await self._take(delay_ns)
            raise StoreTimeout
        if not is_slow_back:
            await self._take(delay_ns)
            if self.weather.is_cut or self.breaks != breaks:
                raise StoreUnavailable
        if name == "runs.settle" and self.weather.outcomes_ms:
            do = self._slow(do, self.weather.outcomes_ms)
        answer = await do()
        if fate is Fate.CRASH_AFTER:
            await self._die()
        if is_slow_back:
            await self._take(delay_ns)
        if fate is Fate.AMBIGUOUS or self.weather.is_cut or self.breaks != breaks:
            raise StoreUnavailable
        return answer

    async def _reconnect(self, name: str) -> None:
        """Opens another lease connection, which takes longer than a statement."""
        is_ended = self.connection is not None and not self.connection.is_open
        if name == "leases.renew" and is_ended:
            await self._take(self._handshakes.randint(1, SLOWEST_HANDSHAKE_MS) * MS)

    async def listen(self, on_hint: Callable[[Hint], None]) -> HintSource:
        self._check_alive()
        await self._take(self._random.randint(1, 5) * MS)
        if self.weather.is_deaf or self.weather.is_cut:
            raise StoreUnavailable
        return await Ear.open(self, self._store, on_hint)

    def hear(self, on_hint: Callable[[Hint], None], hint: Hint) -> None:
        """Brings a hint to the process, in the order of whatever else comes."""
        self._machine.post(lambda: on_hint(hint))

    async def confirm(self, source: HintSource) -> None:
        self._check_alive()
        await source.confirm()
        await self._take(self._random.randint(1, self.weather.slowest_ms) * MS)

    async def _take(self, delay_ns: int) -> None:
        await self._clock.sleep(delay_ns)
        await self._machine.thawed()
        self._check_alive()

    def _draw(self, name: str) -> Fate:
        weather = self.weather
        luck = self._random.random()
        if weather.crash_in is not None:
            weather.crash_in -= 1
            if weather.crash_in <= 0:
                return Fate.CRASH_BEFORE if luck < 0.4 else Fate.CRASH_AFTER
        if weather.is_cut or luck < weather.undone:
            return Fate.UNDONE
        if (fate := self.trap(name)) is not None:
            return fate
        if luck < weather.undone + weather.ambiguous:
            return Fate.AMBIGUOUS
        if luck < weather.undone + weather.ambiguous + weather.late:
            return Fate.LATE
        return Fate.FINE

    def _slow(
        self, do: Callable[[], Awaitable[object]], delay_ms: int
    ) -> Callable[[], Awaitable[object]]:
        """The same statement, which takes long, and goes on when whoever has sent it dies."""

        async def arrive() -> object:
            await self._clock.sleep(delay_ms * MS)
            return await do()

        async def wait() -> object:
            task = asyncio.get_running_loop().create_task(arrive())
            self._left.add(task)
            task.add_done_callback(self._left.discard)
            await asyncio.wait([task])
            if task.cancelled():
                raise StoreUnavailable
            return task.result()

        return wait

    def _leave(self, do: Callable[[], Awaitable[object]]) -> None:
        """Lets a statement that is believed lost arrive."""

        async def arrive() -> object:
            await self._clock.sleep(self._random.randint(5, LATEST_MS) * MS)
            try:
                return await do()
            except Exception as error:  # noqa: BLE001 - nobody hears the answer
                return error

        task = asyncio.get_running_loop().create_task(arrive())
        self._left.add(task)
        task.add_done_callback(self._left.discard)

    async def _die(self) -> None:
        self.crash()
        raise asyncio.CancelledError

    def _check_alive(self) -> None:
        if self._machine.is_dead:
            raise asyncio.CancelledError


class Ear:
    """`HintSource`, until the line is cut or deaf: then it hears nothing more, and finds out."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._source: HintSource | None = None
        self._is_broken = False
        self._breaks = line.breaks

    @classmethod
    async def open(cls, line: Line, store: MemoryStore, on_hint: Callable[[Hint], None]) -> "Ear":
        ear = cls(line)

        def hear(hint: Hint) -> None:
            ear.look()
            if not ear._is_broken:
                line.hear(on_hint, hint)

        ear._source = await store.listen(hear)
        return ear

    def look(self) -> None:
        weather = self._line.weather
        is_ended = self._breaks != self._line.breaks
        self._is_broken = self._is_broken or weather.is_deaf or weather.is_cut or is_ended

    async def confirm(self) -> None:
        assert self._source
        self.look()
        await self._line.confirm(self._source)
        self.look()
        if self._is_broken:
            raise StoreUnavailable

    async def close(self) -> None:
        assert self._source
        await self._source.close()
