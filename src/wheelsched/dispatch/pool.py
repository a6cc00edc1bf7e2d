"""The connections of a dispatcher: kept, bounded per origin and in all, and each of them owned.

Invariant: every connection, and every one that is being opened, has a place of its origin, and
there are never more places than the bounds. An origin has connections at rest or requests that
wait, never both. It is *blocked* exactly while requests wait that only the bound in all holds back;
and while any is blocked, no connection rests.

First come, first served at each origin; places that become free go to the blocked origins in turn.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from wheelsched.config import DispatchConfig
from wheelsched.core.target import Endpoint
from wheelsched.dispatch.connection import Connection

Dial: TypeAlias = Callable[[Endpoint, Callable[[], Connection]], Awaitable[Connection]]
_Granted: TypeAlias = asyncio.Future[Connection | None]  # None: a place, to open one

CLOSING_S = 1.0  # more than any loop needs to end what is aborted


class _Origin:
    """What there is of one scheme, host and port."""

    __slots__ = ("places", "resting", "waiting")

    def __init__(self) -> None:
        self.places = 0
        self.resting: list[Connection] = []
        self.waiting: OrderedDict[_Granted, None] = OrderedDict()

    def next_waiting(self) -> _Granted | None:
        """Who has waited longest and has not given up."""
        while self.waiting:
            granted, _ = self.waiting.popitem(last=False)
            if not granted.done():
                return granted
        return None


class Pool:
    """Keeps connections, and opens them by `dial`."""

    def __init__(self, config: DispatchConfig, dial: Dial) -> None:
        self._config = config
        self._dial = dial
        self._loop = asyncio.get_running_loop()
        self._idle_timeout_s = config.idle_timeout_ms / 1_000
        self._origins: dict[str, _Origin] = {}
        self._places = 0
        self._connections: set[Connection] = set()
        self._resting: OrderedDict[Connection, None] = OrderedDict()  # the longest first
        self._blocked: OrderedDict[str, None] = OrderedDict()
        self._opening: set[asyncio.Timeout] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return self._places

    async def close(self) -> None:
        """Ends every connection, and whatever is being opened or waits for one."""
        self._is_closed = True
        for opening in self._opening:
            if not opening.expired():
                opening.reschedule(self._loop.time())
        connections = tuple(self._connections)
        for connection in connections:
            connection.end()
        if connections:
            await asyncio.wait([each.lost for each in connections], timeout=CLOSING_S)

    def take(self, origin: str) -> Connection | None:
        """A connection at rest, the one that was used last."""
        known = self._origins.get(origin)
        while known is not None and known.resting:
            connection = known.resting.pop()
            del self._resting[connection]
            if connection.is_open:
                return connection
            connection.end()
        return None

    async def open(self, endpoint: Endpoint, deadline_s: float) -> Connection:
        """A new connection, or one that became free while this one waited for a place.

        Raises `TimeoutError` when the deadline has passed, or the pool is closed, and otherwise
        what keeps it from being opened, an `OSError`.
        """
        if self._is_closed:
            raise ConnectionAbortedError
        try:
            async with asyncio.timeout_at(deadline_s) as opening:
                self._opening.add(opening)
                return await self._open(endpoint)
        finally:
            self._opening.discard(opening)

    def rest(self, connection: Connection) -> None:
        """Has a connection that is free: for who waits for one, or for later."""
        if self._blocked or not connection.is_open:
            connection.end()
            return
        connection.is_kept = True
        origin = self._origins[connection.origin]
        if (granted := origin.next_waiting()) is not None:
            granted.set_result(connection)
        elif (rests_s := min(self._idle_timeout_s, connection.rests_s)) <= 0:
            connection.end()
        else:
            origin.resting.append(connection)
            self._resting[connection] = None
            connection.watch(self._loop.time() + rests_s)

    def forget(self, connection: Connection) -> None:
        """Has a connection no longer."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        if connection in self._resting:
            del self._resting[connection]
            self._origins[connection.origin].resting.remove(connection)
        self._free_place(connection.origin)

    async def _open(self, endpoint: Endpoint) -> Connection:
        name = endpoint.origin
        origin = self._origins.setdefault(name, _Origin())
        if not origin.waiting and self._make_room(origin):
            self._take_place(name, origin)
        elif (connection := await self._wait(name, origin)) is not None:
            return connection
        connection = Connection(self, name, self._loop)
        self._connections.add(connection)  # with its place, whatever becomes of it
        try:
            return await self._dial(endpoint, lambda: connection)
        except BaseException:
            connection.end()
            raise

    async def _wait(self, name: str, origin: _Origin) -> Connection | None:
        """Waits for a connection or, if it is None, for a place."""
        granted: _Granted = self._loop.create_future()
        origin.waiting[granted] = None
        self._note_blocked(name, origin)
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                origin.waiting.pop(granted, None)
                if not origin.waiting:
                    self._blocked.pop(name, None)
            elif (connection := granted.result()) is not None:
                self.rest(connection)
            else:
                self._free_place(name)
            raise

    def _make_room(self, origin: _Origin) -> bool:
        """Whether there is a place, if need be that of a connection at rest."""
        if origin.places >= self._config.connections_per_host:
            if not origin.resting:
                return False
            origin.resting[0].end()
        if self._places >= self._config.connections:
            if not self._resting:
                return False
            next(iter(self._resting)).end()
        return True

    def _take_place(self, name: str, origin: _Origin) -> None:
        self._origins[name] = origin
        origin.places += 1
        self._places += 1

    def _free_place(self, name: str) -> None:
        origin = self._origins[name]
        origin.places -= 1
        self._places -= 1
        self._note_blocked(name, origin)
        self._grant_places()
        if not origin.places and not origin.waiting:
            del self._origins[name]

    def _note_blocked(self, name: str, origin: _Origin) -> None:
        if origin.waiting and origin.places < self._config.connections_per_host:
            self._blocked.setdefault(name)

    def _grant_places(self) -> None:
        while self._blocked and self._places < self._config.connections:
            name, _ = self._blocked.popitem(last=False)
            origin = self._origins[name]
            granted = origin.next_waiting()
            if granted is not None:
                self._take_place(name, origin)
                granted.set_result(None)
            self._note_blocked(name, origin)
