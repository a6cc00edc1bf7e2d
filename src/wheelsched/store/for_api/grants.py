"""Grants database roles of applications access to tenants, on Postgres.

Invariant: a role has access to one tenant at most, and only an operator grants it.
"""

from typing import NamedTuple
from uuid import UUID

import asyncpg
from msgspec import Struct

from wheelsched.core.audit import Entry
from wheelsched.errors import DatabaseRoleNotFound, DatabaseRoleTaken, TenantNotFound
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.for_api.audit import note

QUERIES = load_queries("grants.sql")


class Grant(Struct, frozen=True, kw_only=True):
    """A database role, and the tenant that it may schedule jobs for."""

    database_role: str
    tenant: str
    granted_at_us: int


class DraftCounts(NamedTuple):
    """How many drafts were refused, and how many have waited for a shard for too long."""

    refused: int
    waiting: int


class Grants:
    """Grants and revokes the access of database roles, for the owner of the schema."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def grant(self, actor: str, tenant_id: UUID, database_role: str) -> None:
        """Grants a role access to a tenant, or raises the error that prevents it."""
        async with self._database.connection() as connection, connection.transaction():
            if not await connection.fetchval(QUERIES["has_role"], database_role):
                raise DatabaseRoleNotFound(
                    f"the database has no role {database_role!r}; create it with CREATE ROLE"
                )
            try:
                await connection.execute(QUERIES["grant_role"], database_role, tenant_id)
            except asyncpg.ForeignKeyViolationError as error:
                raise TenantNotFound from error
            if await connection.fetchval(QUERIES["read_role"], database_role) != tenant_id:
                raise DatabaseRoleTaken
            entry = Entry("tenant.grant", str(tenant_id), {"database_role": database_role})
            await note(connection, tenant_id, actor, entry)

    async def grant_session(self, actor: str, tenant_id: UUID) -> None:
        """Grants the role of this session access to a tenant, unless it has one already."""
        role = await self._database.fetchval(QUERIES["read_session_role"])
        if await self._database.fetchval(QUERIES["read_role"], role) is None:
            await self.grant(actor, tenant_id, role)

    async def revoke(self, actor: str, tenant_id: UUID, database_role: str) -> None:
        """Revokes a role's access to a tenant, or raises `DatabaseRoleNotFound`."""
        async with self._database.connection() as connection, connection.transaction():
            if not await connection.fetchval(QUERIES["revoke_role"], database_role, tenant_id):
                raise DatabaseRoleNotFound
            entry = Entry("tenant.revoke", str(tenant_id), {"database_role": database_role})
            await note(connection, tenant_id, actor, entry)

    async def list_grants(self) -> list[Grant]:
        """Every role with access to a tenant, ordered by name."""
        return [
            Grant(
                database_role=row["database_role"],
                tenant=row["tenant"],
                granted_at_us=row["granted_at"],
            )
            for row in await self._database.fetch(QUERIES["list_roles"])
        ]

    async def count_drafts(self) -> DraftCounts:
        """Counts the drafts that an operator should look at."""
        row = await self._database.fetchrow(QUERIES["count_drafts"])
        assert row
        return DraftCounts(row["refused"], row["waiting"])
