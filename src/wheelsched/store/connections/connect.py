"""Connects to the primary, wherever it is among the hosts of a URL.

Invariant: a host that hangs delays nothing but its own attempt. All open connections lead to one
host: when the primary is found elsewhere, those to the former host are dropped, busy or idle.
"""

import asyncio
from contextlib import suppress
from typing import Final
from weakref import WeakSet

import asyncpg
import structlog

from wheelsched.clock import SystemClock
from wheelsched.errors import InvalidDatabaseUrl, NoPrimary
from wheelsched.store.connections.connection import RawConnection
from wheelsched.store.connections.hosts import Host, read_hosts
from wheelsched.store.connections.session import Server, Session

log = structlog.get_logger("wheelsched.store")

RETRY_NS: Final = 200_000_000  # between attempts at a host, while another one has not answered yet
# The host of the open connections is asked first. Otherwise, of two hosts that lead to the same
# server (a pair of poolers), now one would win and now the other, and each time connections drop.
HEAD_START_S: Final = 0.2

# What may change at any moment: a standby is promoted, a server starts.
PASSING_ERRORS: Final = (
    NoPrimary,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresConnectionError,
    OSError,
)


class Connector:
    """Opens the connections of a process, all to the same primary."""

    def __init__(self, url: str, timeout_ms: int) -> None:
        self._url = url
        self._timeout_s = timeout_ms / 1000
        self._host: Host | None = None  # of the open connections, if the URL names several
        self._open: WeakSet[RawConnection] = WeakSet()
        self._attempts: set[asyncio.Timeout] = set()
        self._checked: set[Host | None] = set()  # hosts without transaction pooling

    async def connect(self, session: Session) -> RawConnection:
        """A connection to a server that accepts writes."""
        try:
            hosts = read_hosts(self._url)
            if hosts:
                connection = await self._find(hosts, session)
            else:
                connection = await self.attempt(None, session)
        except ValueError as error:
            raise InvalidDatabaseUrl(f"{InvalidDatabaseUrl.__doc__} ({error})") from error
        self._open.add(connection)
        return connection

    async def attempt(self, host: Host | None, session: Session) -> RawConnection:
        """Connects to one host, within the timeout."""
        async with asyncio.timeout(self._timeout_s) as limit:
            self._attempts.add(limit)
            try:
                connection = await Server(url=self._url, host=host).open(
                    session, is_pooling_known=host in self._checked
                )
            finally:
                self._attempts.discard(limit)
        self._checked.add(host)
        return connection

    def drop(self) -> None:
        """Ends every open connection, also in the middle of a statement."""
        for connection in tuple(self._open):
            connection.terminate()
        self._open.clear()

    def close(self) -> None:
        """Gives up the attempts in progress: their time is over now. Later ones fail at once."""
        self._timeout_s = 0
        for limit in self._attempts:
            limit.reschedule(asyncio.get_running_loop().time())

    async def _find(self, hosts: list[Host], session: Session) -> RawConnection:
        while True:
            known = self._host
            host, connection = await Search(self, hosts, session).run(first=known)
            if self._host in (known, host):
                break
            connection.terminate()  # meanwhile another search has found the primary elsewhere
        if self._host not in (None, host):
            log.warning("database.moved", previous=str(self._host), current=str(host))
            self.drop()
        self._host = host
        return connection


class Search:
    """One search for the primary among several hosts, all at the same time.

    It ends when a host accepts writes, or when every host has failed at least once. Until then the
    hosts that have failed are tried again: a standby may be promoted while the old primary hangs.
    """

    def __init__(self, connector: Connector, hosts: list[Host], session: Session) -> None:
        self._connector = connector
        self._hosts = hosts
        self._session = session
        self._clock = SystemClock()
        self._failures: dict[Host, Exception] = {}
        self._failed = {host: asyncio.Event() for host in hosts}
        self._found: asyncio.Future[tuple[Host, RawConnection]] = (
            asyncio.get_running_loop().create_future()
        )

    async def run(self, first: Host | None) -> tuple[Host, RawConnection]:
        """The first host that accepts writes, and a connection to it."""
        attempts = [asyncio.create_task(self._try(host, first)) for host in self._hosts]
        try:
            return await self._found
        except asyncio.CancelledError:
            if self._found.done() and not self._found.cancelled() and not self._found.exception():
                self._found.result()[1].terminate()
            raise
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)

    async def _try(self, host: Host, first: Host | None) -> None:
        """Tries one host until it accepts writes or fails permanently."""
        if first in self._failed and host != first:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEAD_START_S):
                    await self._failed[first].wait()
        while True:
            try:
                connection = await self._connector.attempt(host, self._session)
            except PASSING_ERRORS as error:
                self._fail(host, error)
                await self._clock.sleep(RETRY_NS)
            except Exception as error:  # noqa: BLE001 - raised by `run` if no other host is better
                self._fail(host, error)
                return
            else:
                self._succeed(host, connection)
                return

    def _succeed(self, host: Host, connection: RawConnection) -> None:
        if self._found.done():
            connection.terminate()
        else:
            self._found.set_result((host, connection))

    def _fail(self, host: Host, error: Exception) -> None:
        self._failures[host] = error
        self._failed[host].set()
        if len(self._failures) == len(self._hosts) and not self._found.done():
            self._found.set_exception(self._summary())

    def _summary(self) -> Exception:
        """The error of a host that answered; or all errors, if each of them may pass."""
        for error in self._failures.values():
            if not isinstance(error, PASSING_ERRORS):
                return error
        reasons = (
            f"{host}: {str(error) or type(error).__name__}"
            for host, error in self._failures.items()
        )
        return NoPrimary(f"{NoPrimary.__doc__} ({'; '.join(reasons)})")
