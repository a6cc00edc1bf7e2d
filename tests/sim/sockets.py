"""Connections between the machines of a simulation: slow, cut, black-holed, or closed by a death.

Invariant: what one end writes comes to the other in its order, once, or not at all. A black hole
swallows it until it lets go; by then an end may have given up, and then it is lost.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from tests.sim.machine import Machine

from wheelsched.testing import VirtualClock

US = 1_000
MS = 1_000_000
DIAL_NS = 3_000 * MS  # who gets no answer gives up
FIRST_PORT = 7_000


class End:
    """One end of a connection: the transport of its protocol."""

    def __init__(self, wire: "Wire", machine: Machine, protocol: asyncio.Protocol) -> None:
        self.machine = machine
        self.is_closed = False
        self._wire = wire
        self._protocol = protocol
        self._is_reading = True
        self._unread: deque[bytes | None] = deque()

    def write(self, data: bytes) -> None:
        if not self.is_closed and not self.machine.is_dead:
            self._wire.carry(self, data)

    def abort(self) -> None:
        """Closes this end; the other is told."""
        if not self.is_closed:
            self._wire.carry(self, None)
            self.close()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: self.machine.post(self._lose))

    def receive(self, data: bytes | None) -> None:
        """What the other end wrote, or that it has closed."""
        if self.is_closed:
            return
        if not self._is_reading:
            self._unread.append(data)
        elif data is None:
            self.close()
        else:
            self._protocol.data_received(data)

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        while self._unread and self._is_reading:
            self.receive(self._unread.popleft())

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing waits here: the network has room."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, _: str) -> None:
        return None

    def _lose(self) -> None:
        self._protocol.connection_lost(None)


class Way:
    """One direction of a connection."""

    def __init__(self, wire: "Wire", clock: VirtualClock) -> None:
        self._wire = wire
        self._clock = clock
        self._alarm = clock.alarm(self.deliver)
        self._waiting: deque[tuple[int, bytes | None]] = deque()
        self.to: End | None = None

    def put(self, data: bytes | None, delay_ns: int) -> None:
        last_ns = self._waiting[-1][0] if self._waiting else 0
        at_ns = max(self._clock.now_ns() + delay_ns, last_ns)
        self._waiting.append((at_ns, data))
        if len(self._waiting) == 1:
            self._alarm.set(at_ns)

    def deliver(self) -> None:
        while self._waiting and not self._wire.is_held:
            at_ns, data = self._waiting[0]
            if at_ns > self._clock.now_ns():
                self._alarm.set(at_ns)
                return
            self._waiting.popleft()
            if self.to is not None:
                self.to.machine.post(partial(self.to.receive, data))


class Wire:
    """A connection."""

    def __init__(self, network: "Network", clock: VirtualClock, random: Random) -> None:
        self._network = network
        self._random = random
        self._ways = (Way(self, clock), Way(self, clock))
        self.ends: list[End] = []
        self.is_held = False

    def join(self, machine: Machine, protocol: asyncio.Protocol) -> None:
        """Opens the next end."""
        end = End(self, machine, protocol)
        self._ways[len(self.ends)].to = end
        self.ends.append(end)
        protocol.connection_made(end)  # type: ignore[arg-type] # what a connection uses of it

    def carry(self, sender: End, data: bytes | None) -> None:
        """Brings something from one end to the other."""
        way = self._ways[1 if sender is self.ends[0] else 0]
        way.put(data, self._random.randint(50, 1_500) * US)

    def cut(self) -> None:
        """Both ends see that the connection is closed."""
        for end in self.ends:
            end.close()

    def hold(self, *, is_held: bool) -> None:
        self.is_held = is_held
        for way in self._ways:
            way.deliver()

    def lose(self, machine: Machine, *, is_known: bool) -> None:
        """A machine has died: its kernel closes its end, or nobody does."""
        for place, end in enumerate(self.ends):
            if end.machine is machine:
                end.is_closed = True
                if is_known:
                    self._ways[1 - place].put(None, MS)

    @property
    def is_open(self) -> bool:
        return len(self.ends) < 2 or not all(end.is_closed for end in self.ends)


class Network:
    """Who listens where, and all connections."""

    def __init__(self, clock: VirtualClock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._listeners: dict[int, tuple[Machine, Callable[[], asyncio.Protocol]]] = {}
        self._wires: list[Wire] = []
        self._ports = FIRST_PORT
        self.is_refusing = False
        self.is_held = False  # everything is swallowed

    @property
    def wires(self) -> list[Wire]:
        self._wires = [wire for wire in self._wires if wire.is_open]
        return self._wires

    def listen(self, machine: Machine, accept: Callable[[], asyncio.Protocol]) -> str:
        """Lets a machine listen. Gives its address."""
        self._ports += 1
        self._listeners[self._ports] = (machine, accept)
        return f"127.0.0.1:{self._ports}"

    async def dial(self, machine: Machine, port: int, protocol: asyncio.Protocol) -> None:
        """Connects a protocol. Raises `OSError`."""
        await machine.sleep(self._random.randint(100, 2_000) * US)
        listener, accept = self._listeners[port]
        if self.is_held or listener.is_dead:
            await machine.sleep(DIAL_NS)
            raise TimeoutError
        if self.is_refusing:
            raise ConnectionRefusedError
        wire = Wire(self, self._clock, self._random)
        self._wires.append(wire)
        wire.join(machine, protocol)
        listener.post(lambda: wire.join(listener, accept()))

    def lose(self, machine: Machine, *, is_known: bool) -> None:
        """A machine has died."""
        for wire in self.wires:
            wire.lose(machine, is_known=is_known)

    def cut(self) -> None:
        """Ends all connections. New ones can be made."""
        for wire in tuple(self.wires):
            wire.cut()

    def hold(self) -> None:
        """A black hole, for all connections and for new ones."""
        self.is_held = True
        for wire in self.wires:
            wire.hold(is_held=True)

    def heal(self) -> None:
        self.is_held = self.is_refusing = False
        for wire in self.wires:
            wire.hold(is_held=False)
