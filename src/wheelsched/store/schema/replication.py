"""How a Postgres server replicates, which decides what a failover may lose."""

from msgspec import Struct

from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("replication.sql")


class Replication(Struct, frozen=True, kw_only=True):
    """The standbys of a server."""

    standbys: int
    is_synchronous: bool
    lag_bytes: int | None  # of the standby that is farthest behind; None if it is unknown


async def read_replication(database: Database) -> Replication:
    """Reads how the server replicates."""
    row = await database.fetchrow(QUERIES["read_replication"])
    assert row
    return Replication(**row)
