"""The store of tenants and their tokens.

Invariant: the secret part of a token is never stored, only its digest.
"""

from collections.abc import Collection
from typing import Protocol
from uuid import UUID

from msgspec import Struct


class Caller(Struct, frozen=True):
    """The tenant that a request is for, and the actor for the audit log."""

    tenant_id: UUID
    actor: str


class Tenant(Struct, frozen=True, kw_only=True):
    """A tenant and its limits."""

    tenant_id: UUID
    name: str
    weight: int = 1  # its share of dispatches, relative to other tenants
    job_quota: int = 100_000
    requests_per_second: int = 1_000  # of the API
    secrets: tuple[str, ...] = ()  # `whsec_…`, newest first: two while rotating
    created_at_us: int


class Token(Struct, frozen=True, kw_only=True):
    """An API token of a tenant. Only the digest of its secret part is known."""

    digest: bytes
    tenant_id: UUID
    name: str
    scopes: tuple[str, ...]
    created_at_us: int
    revoked_at_us: int | None = None


class TenantStore(Protocol):
    """The store of tenants and tokens. Operators change it; the audit log names them."""

    async def create(self, actor: str, tenant: Tenant) -> None:
        """Add a tenant. Raises `TenantNameTaken`."""

    async def edit(self, actor: str, tenant: Tenant, before: Tenant | None = None) -> None:
        """Replace all fields of a tenant except its id and creation time.

        Raises `TenantNotFound` and `TenantNameTaken`. Raises `TenantChanged` if `before` is given
        and the stored tenant equals neither `before` nor the new one.
        """

    async def read(self, tenant_ids: Collection[UUID]) -> list[Tenant]:
        """Read these tenants; missing ones are left out."""

    async def list_tenants(self, limit: int, after_name: str = "") -> list[Tenant]:
        """Tenants by name, after the last name of the previous page."""

    async def add_token(self, actor: str, token: Token) -> None:
        """Add a token. Raises `TenantNotFound`."""

    async def revoke_token(self, actor: str, digest: bytes) -> Token:
        """Revoke a token permanently. Raises `TokenNotFound`."""

    async def list_tokens(self, tenant_id: UUID) -> list[Token]:
        """All tokens of a tenant, oldest first, including revoked ones."""

    async def find_token(self, digest: bytes) -> Token | None:
        """The token with this digest, revoked or not. The API uses it for authentication."""
