"""Ends the leases of shards that are known to be dead, on one connection.

Invariant: a shard whose lease was ended here writes nothing any more, like after a takeover: the
row is its fence. Whoever certifies a death must have waited for the process.
"""

from typing import Self
from uuid import UUID

from wheelsched.closing import Closing
from wheelsched.config import StoreConfig
from wheelsched.store.connections.connect import Connector
from wheelsched.store.connections.connection import RawConnection
from wheelsched.store.connections.database import CLOSE_TIMEOUT_S, session_of
from wheelsched.store.connections.failure import translated_errors
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("leases.sql")


class PostgresCertificates(Closing):
    """Death certificates on Postgres. After an error, open a new one."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, config: StoreConfig) -> Self:
        """Connects as the role of the config."""
        with translated_errors():
            connector = Connector(config.url, config.connect_timeout_ms)
            return cls(await connector.connect(session_of(config, config.lease_timeout_ms)))

    async def certify_death(self, shard_id: UUID) -> bool:
        """Ends the lease of a process that its parent has waited for. True if there was one."""
        with translated_errors():
            return bool(await self._connection.fetchval(QUERIES["leave_shards"], shard_id))

    async def confirm(self) -> None:
        """Checks that the connection works."""
        with translated_errors():
            await self._connection.fetchval(QUERIES["read_clock"])

    async def close(self) -> None:
        with translated_errors():
            await self._connection.close(timeout=CLOSE_TIMEOUT_S)
