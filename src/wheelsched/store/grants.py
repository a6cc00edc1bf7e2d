"""Which database role of an application speaks for which tenant, on Postgres.

Invariant: a role speaks for one tenant, and only an operator says for which.
"""

from typing import NamedTuple
from uuid import UUID

import asyncpg
from msgspec import Struct

from wheelsched.core.audit import Entry
from wheelsched.errors import DatabaseRoleNotFound, DatabaseRoleTaken, TenantNotFound
from wheelsched.store.audit import note
from wheelsched.store.database import Database
from wheelsched.store.queries import load_queries

QUERIES = load_queries("grants.sql")


class Grant(Struct, frozen=True, kw_only=True):
    """A database role, and the tenant that it speaks for."""

    database_role: str
    tenant: str
    granted_at_us: int


class DraftCounts(NamedTuple):
    """How many jobs of applications were refused, and how many nobody looks at."""

    refused: int
    waiting: int


class Grants:
    """What the owner of the schema says about the roles of applications."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def grant(self, actor: str, tenant_id: UUID, database_role: str) -> None:
        """Lets a role speak for a tenant, or raises what stands against it."""
        async with self._database.connection() as connection, connection.transaction():
            if not await connection.fetchval(QUERIES["has_role"], database_role):
                raise DatabaseRoleNotFound(
                    f"the database has no role {database_role!r}; CREATE ROLE makes one"
                )
            try:
                await connection.execute(QUERIES["grant_role"], database_role, tenant_id)
            except asyncpg.ForeignKeyViolationError as error:
                raise TenantNotFound from error
            if await connection.fetchval(QUERIES["read_role"], database_role) != tenant_id:
                raise DatabaseRoleTaken
            entry = Entry("tenant.grant", str(tenant_id), {"database_role": database_role})
            await note(connection, tenant_id, actor, entry)

    async def revoke(self, actor: str, tenant_id: UUID, database_role: str) -> None:
        """Lets a role speak no more for a tenant, or raises `DatabaseRoleNotFound`."""
        async with self._database.connection() as connection, connection.transaction():
            if not await connection.fetchval(QUERIES["revoke_role"], database_role, tenant_id):
                raise DatabaseRoleNotFound
            entry = Entry("tenant.revoke", str(tenant_id), {"database_role": database_role})
            await note(connection, tenant_id, actor, entry)

    async def list_grants(self) -> list[Grant]:
        """Every role that speaks for a tenant, by name."""
        return [
            Grant(
                database_role=row["database_role"],
                tenant=row["tenant"],
                granted_at_us=row["granted_at"],
            )
            for row in await self._database.fetch(QUERIES["list_roles"])
        ]

    async def count_drafts(self) -> DraftCounts:
        """What an operator should know of what applications wrote."""
        row = await self._database.fetchrow(QUERIES["count_drafts"])
        assert row
        return DraftCounts(row["refused"], row["waiting"])
