"""Tenants and tokens, on Postgres.

Invariant: a transaction of a tenant sees neither rows of other tenants nor any token. A transaction
of an operator is marked as such in the database, and sees no job.
"""

from collections.abc import Collection
from uuid import UUID

import asyncpg

from wheelsched.core.audit import Entry
from wheelsched.errors import TenantChanged, TenantNameTaken, TenantNotFound, TokenNotFound
from wheelsched.ports import Tenant, Token
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.for_api.audit import note

QUERIES = load_queries("tenants.sql")


class PostgresTenants:
    """`TenantStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, actor: str, tenant: Tenant) -> None:
        entry = Entry("tenant.create", str(tenant.tenant_id), {"name": tenant.name})
        async with self._database.operator() as connection:
            if await connection.fetchval(
                QUERIES["create_tenant"], *_values(tenant), tenant.created_at_us
            ):
                await note(connection, tenant.tenant_id, actor, entry)
                return
            if not await connection.fetch(QUERIES["read_tenants"], [tenant.tenant_id]):
                raise TenantNameTaken

    async def edit(self, actor: str, tenant: Tenant, before: Tenant | None = None) -> None:
        entry = Entry("tenant.edit", str(tenant.tenant_id), {"name": tenant.name})
        async with self._database.operator() as connection:
            found = await connection.fetchrow(QUERIES["lock_tenant"], tenant.tenant_id)
            if found is not None and before is not None:
                current = decode_tenant(found)
                if current == tenant:
                    return
                if current != before:
                    raise TenantChanged
            try:
                is_there = await connection.fetchval(QUERIES["edit_tenant"], *_values(tenant))
            except asyncpg.UniqueViolationError as error:
                raise TenantNameTaken from error
            if not is_there:
                raise TenantNotFound
            await note(connection, tenant.tenant_id, actor, entry)

    async def read(self, tenant_ids: Collection[UUID]) -> list[Tenant]:
        async with self._database.operator() as connection:
            rows = await connection.fetch(QUERIES["read_tenants"], list(tenant_ids))
        return [decode_tenant(row) for row in rows]

    async def list_tenants(self, limit: int, after_name: str = "") -> list[Tenant]:
        async with self._database.operator() as connection:
            rows = await connection.fetch(QUERIES["list_tenants"], after_name, limit)
        return [decode_tenant(row) for row in rows]

    async def add_token(self, actor: str, token: Token) -> None:
        entry = Entry("token.add", token.name, {"scopes": token.scopes})
        async with self._database.operator() as connection:
            try:
                is_new = await connection.fetchval(
                    QUERIES["add_token"],
                    token.digest,
                    token.tenant_id,
                    token.name,
                    token.scopes,
                    token.created_at_us,
                )
            except asyncpg.ForeignKeyViolationError as error:
                raise TenantNotFound from error
            if is_new:
                await note(connection, token.tenant_id, actor, entry)

    async def revoke_token(self, actor: str, digest: bytes) -> Token:
        async with self._database.operator() as connection:
            row = await connection.fetchrow(QUERIES["revoke_token"], digest)
            if row is not None:
                token = decode_token(row)
                await note(connection, token.tenant_id, actor, Entry("token.revoke", token.name))
                return token
        revoked = await self.find_token(digest)
        if revoked is None:
            raise TokenNotFound
        return revoked

    async def list_tokens(self, tenant_id: UUID) -> list[Token]:
        async with self._database.operator() as connection:
            rows = await connection.fetch(QUERIES["list_tokens"], tenant_id)
        return [decode_token(row) for row in rows]

    async def find_token(self, digest: bytes) -> Token | None:
        row = await self._database.fetchrow(QUERIES["find_token"], digest)
        return None if row is None else decode_token(row)


def decode_tenant(row: asyncpg.Record) -> Tenant:
    """A tenant from its row."""
    return Tenant(
        tenant_id=row["tenant_id"],
        name=row["name"],
        weight=row["weight"],
        job_quota=row["job_quota"],
        requests_per_second=row["requests_per_second"],
        secrets=tuple(row["secrets"]),
        created_at_us=row["created_at"],
    )


def decode_token(row: asyncpg.Record) -> Token:
    """A token from its row."""
    return Token(
        digest=row["digest"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        scopes=tuple(row["scopes"]),
        created_at_us=row["created_at"],
        revoked_at_us=row["revoked_at"],
    )


def _values(tenant: Tenant) -> tuple[object, ...]:
    return (
        tenant.tenant_id,
        tenant.name,
        tenant.weight,
        tenant.job_quota,
        tenant.requests_per_second,
        tenant.secrets,
    )
