"""The lease connection of a process: joins and renewals alone go over it.

Invariant: the process sees the end of its lease connection as soon as its kernel does. A renewal
that timed out goes over a new connection, and the old one stays until the new one has renewed. If
that fails too, the new backend may be published although it has ended: then the old one ends as
well, because trust must not rest on a connection that is not watched.
"""

import asyncio
import os
import select
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg
from msgspec import Struct

from wheelsched.errors import StoreUnavailable
from wheelsched.ports import Backend
from wheelsched.store.connections.connect import Connector
from wheelsched.store.connections.connection import RawConnection, use_plain_values
from wheelsched.store.connections.failure import translated_errors
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.connections.session import Session

QUERIES = load_queries("session.sql")

# The end of the peer, whatever is still unread. Systems without it report the end as a hang-up.
PEER_CLOSED: Final[int] = getattr(select, "POLLRDHUP", 0)


class Described(Struct, frozen=True):
    """The server end of a connection."""

    backend: Backend | None  # None on an engine that does not report it
    ends_after_us: int | None  # the server ends it if it hears nothing for this long; None: never

    def published(self, ttl_us: int) -> Backend | None:
        """The backend to publish for a lease of this TTL.

        If the network is gone, the shard does not hear of the end of its connection. It trusts its
        lease for a TTL, so the server must not end the connection earlier.
        """
        is_early = self.ends_after_us is not None and self.ends_after_us < ttl_us
        return None if is_early else self.backend


class LeaseConnection:
    """One connection, and a second descriptor of its socket."""

    def __init__(self, connection: RawConnection, described: Described, number: int) -> None:
        self.connection = connection
        self.described = described
        self.number = number
        self.is_suspect = False  # a renewal over it has failed
        self._socket = _duplicate_socket(connection)
        self._poll = select.poll()
        self._poll.register(self._socket, PEER_CLOSED)
        self._ended = asyncio.Event()
        connection.add_termination_listener(self._end)

    @property
    def is_open(self) -> bool:
        """Whether neither end has closed it, as far as this machine knows."""
        return not self._ended.is_set() and not self._poll.poll(0)

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def close(self) -> None:
        """Closes both descriptors."""
        self.connection.terminate()
        self._end()

    def _end(self, _: object = None) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._poll.unregister(self._socket)
            self._socket.close()


class LeaseConnections:
    """The lease connections of a process, one after another: each is opened when it is needed."""

    def __init__(self, connector: Connector, session: Session) -> None:
        self._connector = connector
        self._session = session
        self._number = 0
        self._confirmed: LeaseConnection | None = None  # it carried the last confirmed renewal

    @property
    def server_started_us(self) -> int | None:
        """The lifetime of the server that confirmed the last renewal; None if it is unknown."""
        backend = self._confirmed.described.backend if self._confirmed else None
        return backend.server_started_us if backend else None

    def is_connected(self) -> bool:
        return self._confirmed is not None and self._confirmed.is_open

    async def wait_disconnected(self) -> None:
        if self._confirmed is not None:
            await self._confirmed.wait_ended()

    async def renew(
        self, statement: Callable[[LeaseConnection], Awaitable[asyncpg.Record | None]]
    ) -> asyncpg.Record | None:
        """Runs a join or a renewal."""
        confirmed = self._confirmed
        with translated_errors():
            if confirmed is not None and confirmed.is_open and not confirmed.is_suspect:
                try:
                    async with asyncio.timeout(2 * self._session.command_timeout_ms / 1000):
                        return await statement(confirmed)
                except BaseException:
                    confirmed.is_suspect = True
                    raise
            try:
                opened = await self._open()
            except asyncpg.TooManyConnectionsError:
                if confirmed is not None:
                    confirmed.is_suspect = False  # no other can be opened: try it once more
                raise
            try:
                answer = await statement(opened)
            except BaseException:
                opened.close()
                self.close()  # the others may know only the new backend, and see that it is gone
                raise
        self._confirmed = opened
        if confirmed is not None:
            confirmed.close()
        if not opened.is_open:
            raise StoreUnavailable
        return answer

    def close(self) -> None:
        if self._confirmed is not None:
            self._confirmed.close()

    async def _open(self) -> LeaseConnection:
        connection = await self._connector.connect(self._session)
        try:
            await use_plain_values(connection)
            described = await _describe(connection)
        except BaseException:
            connection.terminate()
            raise
        self._number += 1
        return LeaseConnection(connection, described, self._number)


def _duplicate_socket(connection: RawConnection) -> socket.socket:
    """Another descriptor of the socket, which stays valid when the connection closes its own."""
    transport = connection._transport  # type: ignore[attr-defined] # noqa: SLF001 - no other way
    return socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))


async def _describe(connection: RawConnection) -> Described:
    try:
        row = await connection.fetchrow(QUERIES["describe_backend"])
    except (asyncpg.UndefinedFunctionError, asyncpg.UndefinedTableError):
        row = None
    if row is None:
        return Described(None, None)
    backend = Backend(row["pid"], row["started"], row["server_started"])
    return Described(backend, row["ends_after_us"])
