"""Under every change that people ask for: the audit, on Postgres.

Invariant: an entry is there if and only if its change is, since both are of one transaction.
"""

from uuid import UUID

import msgspec

from wheelsched.core.audit import Entry
from wheelsched.store.connection import Connection
from wheelsched.store.queries import load_queries

QUERIES = load_queries("audit.sql")


async def note(connection: Connection, tenant_id: UUID | None, actor: str, entry: Entry) -> None:
    """Writes an entry in the transaction of its change."""
    detail = msgspec.json.encode(entry.detail).decode()
    await connection.execute(QUERIES["note"], tenant_id, actor, entry.verb, entry.subject, detail)
