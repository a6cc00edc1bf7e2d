"""The server processes behind lease connections, in memory: tests end them and restart the server.

Invariant: a backend that has ended never lives again. Its pid may.
"""

import asyncio
from collections.abc import Callable
from itertools import count

from wheelsched.ports import Backend


class MemoryConnection:
    """A lease connection, as its two ends see it."""

    def __init__(self, server: "MemoryServer", backend: Backend) -> None:
        self._server = server
        self.backend = backend
        self.is_black_holed = False  # its client hears nothing more, not even of its end
        self._ended = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the client may believe that it is open."""
        return not self._ended.is_set()

    async def wait_ended(self) -> None:
        """Returns when the client has seen the end."""
        await self._ended.wait()

    def close(self) -> None:
        """The client closes it, or dies."""
        self._ended.set()
        self._server.end(self.backend)

    def ended(self) -> None:
        """The server has ended it; the client sees that unless the network is gone."""
        if not self.is_black_holed:
            self._ended.set()

    def heal(self) -> None:
        """The network is back: the client sees what it has missed."""
        self.is_black_holed = False
        if not self._server.is_alive(self.backend):
            self._ended.set()


class MemoryServer:
    """The lifetime of the server, and its backends."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._pids = count(1_000)
        self._next_pid: int | None = None
        self._connections: dict[int, MemoryConnection] = {}
        self._started = 0
        self.started_us = now_us()
        self.hides_starts = False  # as it does from a role without the right to see them
        self.is_watchable = True  # an engine without `pg_stat_get_activity` is not

    def connect(self) -> MemoryConnection:
        """Starts a backend."""
        pid = next(self._pids) if self._next_pid is None else self._next_pid
        self._next_pid = None
        self._started += 1  # two backends differ even if they start in the same microsecond
        started_us = None if self.hides_starts else self._now_us() + self._started
        connection = MemoryConnection(self, Backend(pid, started_us, self.started_us))
        self._connections[pid] = connection
        return connection

    def is_alive(self, backend: Backend) -> bool:
        """Whether a backend runs, as far as can be seen: a hidden start is equal to any."""
        running = self._connections.get(backend.pid)
        if running is None or backend.server_started_us != self.started_us:
            return False
        starts = (running.backend.started_us, backend.started_us)
        return None in starts or starts[0] == starts[1]

    def end(self, backend: Backend) -> None:
        """Ends a backend."""
        connection = self._connections.get(backend.pid)
        if connection is not None and connection.backend is backend:
            del self._connections[backend.pid]
            connection.ended()

    def end_all(self) -> None:
        """Ends all backends in one lifetime, as the crash of one of them does."""
        for connection in tuple(self._connections.values()):
            self.end(connection.backend)

    def restart(self) -> None:
        """Begins another lifetime: all backends end at once."""
        self.end_all()
        self.started_us = max(self._now_us(), self.started_us + 1)

    def reuse_pid(self, pid: int) -> None:
        """Gives this pid to the next backend."""
        self._next_pid = pid
