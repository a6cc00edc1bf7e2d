"""The connection pool of a dispatcher, limited per host and in total.

A *host* here is one origin of one tenant. Tenants share neither connections nor limits, except the
total: a tenant that fills its own limit delays only itself.

Invariant: every open or opening connection occupies a slot of its host, and the slots never exceed
the limits. A host has idle connections or waiting requests, never both. A host is *blocked* while
it has waiting requests that only the total limit delays. While any host is blocked, no connection
is idle.

Requests of a host are served in order. Freed slots go to the blocked hosts in turn.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from wheelsched.config import DispatchConfig
from wheelsched.delivery.http.connection import Connection
from wheelsched.delivery.http.route import HttpRoute

Dial: TypeAlias = Callable[[HttpRoute, Callable[[], Connection]], Awaitable[Connection]]
_Granted: TypeAlias = asyncio.Future[Connection | None]  # None: a free slot

CLOSING_S = 1.0  # more than any loop needs to close aborted connections


class _HostPool:
    """The connections of one tenant to one scheme, host and port."""

    __slots__ = ("idle", "slots", "waiting")

    def __init__(self) -> None:
        self.slots = 0
        self.idle: list[Connection] = []
        self.waiting: OrderedDict[_Granted, None] = OrderedDict()

    def next_waiting(self) -> _Granted | None:
        """The request that has waited longest and is not cancelled."""
        while self.waiting:
            granted, _ = self.waiting.popitem(last=False)
            if not granted.done():
                return granted
        return None


class Pool:
    """Keeps connections, and opens new ones with `dial`."""

    def __init__(self, config: DispatchConfig, dial: Dial) -> None:
        self._config = config
        self._dial = dial
        self._loop = asyncio.get_running_loop()
        self._idle_timeout_s = config.idle_timeout_ms / 1_000
        self._hosts: dict[str, _HostPool] = {}
        self._slots = 0
        self._connections: set[Connection] = set()
        self._idle: OrderedDict[Connection, None] = OrderedDict()  # longest idle first
        self._blocked: OrderedDict[str, None] = OrderedDict()
        self._opening: set[asyncio.Timeout] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return self._slots

    async def close(self) -> None:
        """Close all connections, and cancel those that are being opened or waited for."""
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
        """Take the idle connection that was used last, if any."""
        known = self._hosts.get(route.pool_key)
        while known is not None and known.idle:
            connection = known.idle.pop()
            del self._idle[connection]
            if connection.is_open:
                return connection
            connection.end()
        return None

    async def open(self, route: HttpRoute, deadline_s: float) -> Connection:
        """Open a connection, or return one that became free while waiting for a slot.

        Raises `TimeoutError` if the deadline has passed or the pool is closed, and `OSError` if the
        connection cannot be opened.
        """
        if self._is_closed:
            raise ConnectionAbortedError
        try:
            async with asyncio.timeout_at(deadline_s) as opening:
                self._opening.add(opening)
                return await self._open(route)
        finally:
            self._opening.discard(opening)

    def release(self, connection: Connection) -> None:
        """Give a free connection to a waiting request, or keep it idle."""
        if self._blocked or not connection.is_open:
            connection.end()
            return
        connection.is_reused = True
        host = self._hosts[connection.pool_key]
        if (granted := host.next_waiting()) is not None:
            granted.set_result(connection)
        elif (max_idle_s := min(self._idle_timeout_s, connection.max_idle_s)) <= 0:
            connection.end()
        else:
            host.idle.append(connection)
            self._idle[connection] = None
            connection.watch(self._loop.time() + max_idle_s)

    def discard(self, connection: Connection) -> None:
        """Remove a closed connection and free its slot."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        if connection in self._idle:
            del self._idle[connection]
            self._hosts[connection.pool_key].idle.remove(connection)
        self._free_slot(connection.pool_key)

    async def _open(self, route: HttpRoute) -> Connection:
        name = route.pool_key
        host = self._hosts.setdefault(name, _HostPool())
        if not host.waiting and self._has_room(host):
            self._evict_idle(host)
            self._take_slot(name, host)
        elif (connection := await self._wait(name, host)) is not None:
            return connection
        connection = Connection(self, name, self._loop)
        self._connections.add(connection)  # before dialling, so that `end` frees its slot
        try:
            return await self._dial(route, lambda: connection)
        except BaseException:
            connection.end()
            raise

    async def _wait(self, name: str, host: _HostPool) -> Connection | None:
        """Wait for a connection, or for a free slot (None)."""
        granted: _Granted = self._loop.create_future()
        host.waiting[granted] = None
        self._mark_blocked(name, host)
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                host.waiting.pop(granted, None)
                if not host.waiting:
                    self._blocked.pop(name, None)
                self._drop_if_empty(name, host)
            elif (connection := granted.result()) is not None:
                self.release(connection)
            else:
                self._free_slot(name)
            raise

    def _has_room(self, host: _HostPool) -> bool:
        """Whether there is a free slot, or an idle connection that can be evicted for one."""
        is_host_full = host.slots >= self._config.connections_per_host
        is_full = self._slots >= self._config.connections
        return (not is_host_full or bool(host.idle)) and (not is_full or bool(self._idle))

    def _evict_idle(self, host: _HostPool) -> None:
        """Close the oldest idle connections that occupy the slot to take."""
        if host.slots >= self._config.connections_per_host:
            host.idle[0].end()
        if self._slots >= self._config.connections:
            next(iter(self._idle)).end()

    def _take_slot(self, name: str, host: _HostPool) -> None:
        self._hosts[name] = host
        host.slots += 1
        self._slots += 1

    def _free_slot(self, name: str) -> None:
        host = self._hosts[name]
        host.slots -= 1
        self._slots -= 1
        self._mark_blocked(name, host)
        self._grant_slots()
        self._drop_if_empty(name, host)

    def _drop_if_empty(self, name: str, host: _HostPool) -> None:
        if not host.slots and not host.waiting:
            self._hosts.pop(name, None)

    def _mark_blocked(self, name: str, host: _HostPool) -> None:
        if host.waiting and host.slots < self._config.connections_per_host:
            self._blocked.setdefault(name)

    def _grant_slots(self) -> None:
        while self._blocked and self._slots < self._config.connections:
            name, _ = self._blocked.popitem(last=False)
            host = self._hosts[name]
            granted = host.next_waiting()
            if granted is not None:
                self._take_slot(name, host)
                granted.set_result(None)
            self._mark_blocked(name, host)
