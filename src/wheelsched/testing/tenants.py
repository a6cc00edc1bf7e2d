"""`TenantStore` in memory. Invariant: like on Postgres, tenant names are unique."""

from collections.abc import Collection
from uuid import UUID

from msgspec.structs import replace

from wheelsched.core.audit import Entry
from wheelsched.errors import TenantChanged, TenantNameTaken, TenantNotFound, TokenNotFound
from wheelsched.ports import Tenant, Token
from wheelsched.testing.tables import MemoryTables


class MemoryTenants:
    """`TenantStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def create(self, actor: str, tenant: Tenant) -> None:
        if tenant.tenant_id in self._tables.tenants:
            return
        self._check_name(tenant)
        self._tables.tenants[tenant.tenant_id] = tenant
        entry = Entry("tenant.create", str(tenant.tenant_id), {"name": tenant.name})
        self._tables.note(tenant.tenant_id, actor, entry)

    async def edit(self, actor: str, tenant: Tenant, before: Tenant | None = None) -> None:
        current = self._tables.tenants.get(tenant.tenant_id)
        if current is None:
            raise TenantNotFound
        if before is not None and current == tenant:
            return
        if before is not None and current != before:
            raise TenantChanged
        self._check_name(tenant)
        edited = replace(tenant, created_at_us=current.created_at_us)
        self._tables.tenants[tenant.tenant_id] = edited
        entry = Entry("tenant.edit", str(tenant.tenant_id), {"name": tenant.name})
        self._tables.note(tenant.tenant_id, actor, entry)

    async def read(self, tenant_ids: Collection[UUID]) -> list[Tenant]:
        tenants = self._tables.tenants
        return [tenants[tenant_id] for tenant_id in tenant_ids if tenant_id in tenants]

    async def list_tenants(self, limit: int, after_name: str = "") -> list[Tenant]:
        found = [tenant for tenant in self._tables.tenants.values() if tenant.name > after_name]
        return sorted(found, key=lambda tenant: tenant.name)[:limit]

    async def add_token(self, actor: str, token: Token) -> None:
        if token.tenant_id not in self._tables.tenants:
            raise TenantNotFound
        if token.digest not in self._tables.tokens:
            self._tables.tokens[token.digest] = replace(token, revoked_at_us=None)
            entry = Entry("token.add", token.name, {"scopes": token.scopes})
            self._tables.note(token.tenant_id, actor, entry)

    async def revoke_token(self, actor: str, digest: bytes) -> Token:
        token = self._tables.tokens.get(digest)
        if token is None:
            raise TokenNotFound
        if token.revoked_at_us is None:
            token = replace(token, revoked_at_us=self._tables.now_us())
            self._tables.tokens[digest] = token
            self._tables.note(token.tenant_id, actor, Entry("token.revoke", token.name))
        return token

    async def list_tokens(self, tenant_id: UUID) -> list[Token]:
        found = [token for token in self._tables.tokens.values() if token.tenant_id == tenant_id]
        return sorted(found, key=lambda token: (token.created_at_us, token.digest))

    async def find_token(self, digest: bytes) -> Token | None:
        return self._tables.tokens.get(digest)

    def _check_name(self, tenant: Tenant) -> None:
        if any(
            other.name == tenant.name and other.tenant_id != tenant.tenant_id
            for other in self._tables.tenants.values()
        ):
            raise TenantNameTaken
