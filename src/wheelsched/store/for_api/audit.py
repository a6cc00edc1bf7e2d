"""The audit log, on Postgres.

Invariant: an entry is written in the transaction of its change: neither exists without the other.
"""

from uuid import UUID

import msgspec

from wheelsched.core.audit import Entry
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("audit.sql")


async def note(connection: Connection, tenant_id: UUID | None, actor: str, entry: Entry) -> None:
    """Writes an entry, in the transaction of its change."""
    detail = msgspec.json.encode(entry.detail).decode()
    await connection.execute(QUERIES["note"], tenant_id, actor, entry.verb, entry.subject, detail)
