"""The connections of a dispatcher: kept, bounded per line and in all, and each of them owned.

A *line* is all that one tenant has to one origin. No two tenants share a connection, nor a bound
but the one in all: whoever fills his own waits for himself.

Invariant: every connection, and every one that is being opened, has a place of its line, and
there are never more places than the bounds. A line has connections at rest or requests that
wait, never both. It is *blocked* exactly while requests wait that only the bound in all holds back;
and while any is blocked, no connection rests.

First come, first served in each line; places that become free go to the blocked lines in turn.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from wheelsched.config import DispatchConfig
from wheelsched.dispatch.connection import Connection
from wheelsched.dispatch.route import HttpRoute

Dial: TypeAlias = Callable[[HttpRoute, Callable[[], Connection]], Awaitable[Connection]]
_Granted: TypeAlias = asyncio.Future[Connection | None]  # None: a place, to open one

CLOSING_S = 1.0  # more than any loop needs to end what is aborted


class _Line:
    """What one tenant has to one scheme, host and port."""

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
        self._lines: dict[str, _Line] = {}
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

    def take(self, route: HttpRoute) -> Connection | None:
        """A connection at rest, the one that was used last."""
        known = self._lines.get(route.line)
        while known is not None and known.resting:
            connection = known.resting.pop()
            del self._resting[connection]
            if connection.is_open:
                return connection
            connection.end()
        return None

    async def open(self, route: HttpRoute, deadline_s: float) -> Connection:
        """A new connection, or one that became free while this one waited for a place.

        Raises `TimeoutError` when the deadline has passed, or the pool is closed, and otherwise
        what keeps it from being opened, an `OSError`.
        """
        if self._is_closed:
            raise ConnectionAbortedError
        try:
            async with asyncio.timeout_at(deadline_s) as opening:
                self._opening.add(opening)
                return await self._open(route)
        finally:
            self._opening.discard(opening)

    def rest(self, connection: Connection) -> None:
        """Has a connection that is free: for who waits for one, or for later."""
        if self._blocked or not connection.is_open:
            connection.end()
            return
        connection.is_kept = True
        line = self._lines[connection.line]
        if (granted := line.next_waiting()) is not None:
            granted.set_result(connection)
        elif (rests_s := min(self._idle_timeout_s, connection.rests_s)) <= 0:
            connection.end()
        else:
            line.resting.append(connection)
            self._resting[connection] = None
            connection.watch(self._loop.time() + rests_s)

    def forget(self, connection: Connection) -> None:
        """Has a connection no longer."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        if connection in self._resting:
            del self._resting[connection]
            self._lines[connection.line].resting.remove(connection)
        self._free_place(connection.line)

    async def _open(self, route: HttpRoute) -> Connection:
        name = route.line
        line = self._lines.setdefault(name, _Line())
        if not line.waiting and self._make_room(line):
            self._take_place(name, line)
        elif (connection := await self._wait(name, line)) is not None:
            return connection
        connection = Connection(self, name, self._loop)
        self._connections.add(connection)  # with its place, whatever becomes of it
        try:
            return await self._dial(route, lambda: connection)
        except BaseException:
            connection.end()
            raise

    async def _wait(self, name: str, line: _Line) -> Connection | None:
        """Waits for a connection or, if it is None, for a place."""
        granted: _Granted = self._loop.create_future()
        line.waiting[granted] = None
        self._note_blocked(name, line)
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                line.waiting.pop(granted, None)
                if not line.waiting:
                    self._blocked.pop(name, None)
                self._forget_if_empty(name, line)
            elif (connection := granted.result()) is not None:
                self.rest(connection)
            else:
                self._free_place(name)
            raise

    def _make_room(self, line: _Line) -> bool:
        """Whether there is a place, if need be that of a connection at rest."""
        if line.places >= self._config.connections_per_host:
            if not line.resting:
                return False
            line.resting[0].end()
        if self._places >= self._config.connections:
            if not self._resting:
                return False
            next(iter(self._resting)).end()
        return True

    def _take_place(self, name: str, line: _Line) -> None:
        self._lines[name] = line
        line.places += 1
        self._places += 1

    def _free_place(self, name: str) -> None:
        line = self._lines[name]
        line.places -= 1
        self._places -= 1
        self._note_blocked(name, line)
        self._grant_places()
        self._forget_if_empty(name, line)

    def _forget_if_empty(self, name: str, line: _Line) -> None:
        if not line.places and not line.waiting:
            self._lines.pop(name, None)

    def _note_blocked(self, name: str, line: _Line) -> None:
        if line.waiting and line.places < self._config.connections_per_host:
            self._blocked.setdefault(name)

    def _grant_places(self) -> None:
        while self._blocked and self._places < self._config.connections:
            name, _ = self._blocked.popitem(last=False)
            line = self._lines[name]
            granted = line.next_waiting()
            if granted is not None:
                self._take_place(name, line)
                granted.set_result(None)
            self._note_blocked(name, line)
