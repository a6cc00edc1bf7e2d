"""Opens a session on one server: connects, applies settings, and checks what answers.

Invariant: the settings apply before any other statement. They are sent after connecting, because
poolers refuse most of them in the start-up packet. All of it is one round trip, in the simple query
protocol, which no pooler breaks.
"""

from collections.abc import Mapping
from typing import Final

import asyncpg
from asyncpg.connect_utils import SessionAttribute
from msgspec import Struct

from wheelsched.errors import NoPrimary, TransactionPooling
from wheelsched.store.connections.connection import RawConnection, row_count
from wheelsched.store.connections.hosts import Host
from wheelsched.store.connections.pooling import Pooling, judge_pooling
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("session.sql")

IS_WRITABLE: Final = 1
IS_DIRECT: Final = 2
PROBES: Final = 3


class Session(Struct, frozen=True, kw_only=True):
    """What a connection is for: its name on the server, its settings and its timeout."""

    name: str
    settings: Mapping[str, str] = {}
    command_timeout_ms: int


class Server(Struct, frozen=True, kw_only=True):
    """An address to connect to. Without a host, the URL alone decides."""

    url: str
    host: Host | None = None

    async def open(self, session: Session, *, is_pooling_known: bool) -> RawConnection:
        """A connection to a writable server. Raises `NoPrimary` or `TransactionPooling`."""
        connection = await self._connect(session)
        try:
            traits = await _begin(connection, session, is_bound=is_pooling_known)
            self._refuse_standby(traits)
            if not (traits & IS_DIRECT or is_pooling_known):
                await self._refuse_transaction_pooling(connection, session)
                await _begin(connection, session, is_bound=True)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _connect(self, session: Session, *, statement_cache_size: int = 100) -> RawConnection:
        return await asyncpg.connect(
            self.url,
            host=self.host and self.host.name,
            port=self.host and self.host.port,
            command_timeout=session.command_timeout_ms / 1000,
            statement_cache_size=statement_cache_size,
            # Checked by `_begin`: what a pooler reports of its server may be out of date.
            target_session_attrs=SessionAttribute.any,
            server_settings={"application_name": session.name},
        )

    def _refuse_standby(self, traits: int) -> None:
        if not traits & IS_WRITABLE:
            raise NoPrimary(f"{self} is read-only; it may be a standby")

    async def _refuse_transaction_pooling(
        self, connection: RawConnection, session: Session
    ) -> None:
        """Raises `TransactionPooling` if connections are not bound to server processes."""
        for _ in range(PROBES):
            probe = await self._connect(session, statement_cache_size=0)  # it prepares nothing
            try:
                verdict = await judge_pooling(connection, probe)
            finally:
                probe.terminate()
            if verdict is Pooling.TRANSACTION:
                raise TransactionPooling
            if verdict is Pooling.SESSION:
                return

    def __str__(self) -> str:
        return "the server" if self.host is None else str(self.host)


async def _begin(connection: RawConnection, session: Session, *, is_bound: bool) -> int:
    """Applies the settings, and returns what the session is: writable, direct, both or neither.

    Unless the connection is known to be bound to its server process, the settings apply only if no
    pooler is between: in transaction mode they would stay with a process that others use.
    """
    settings = ", ".join(
        f"set_config('{name}', '{setting}', false)" for name, setting in session.settings.items()
    )
    script = QUERIES["begin_session"].format(
        settings=settings or "NULL",
        is_bound="true" if is_bound else "false",
        key_pid=connection.get_server_pid(),
    )
    return row_count(await connection.execute(script))
