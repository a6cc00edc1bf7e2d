"""Tenants, their tokens, and on whose behalf a store is asked.

Invariant: no secret part of a token is ever stored; what is known of it is a digest.
"""

from collections.abc import Collection
from typing import Protocol
from uuid import UUID

from msgspec import Struct


class Caller(Struct, frozen=True):
    """On whose behalf something is asked, and who is named for it in the audit."""

    tenant_id: UUID
    actor: str


class Tenant(Struct, frozen=True, kw_only=True):
    """Who has jobs, and how much of everything."""

    tenant_id: UUID
    name: str
    weight: int = 1  # its share of what is dispatched, against that of others
    job_quota: int = 100_000
    requests_per_second: int = 1_000  # of the API
    secrets: tuple[str, ...] = ()  # `whsec_…`, newest first: two while rotating
    created_at_us: int


class Token(Struct, frozen=True, kw_only=True):
    """What lets a program speak for a tenant. Only the digest of the secret part is known."""

    digest: bytes
    tenant_id: UUID
    name: str
    scopes: tuple[str, ...]
    created_at_us: int
    revoked_at_us: int | None = None


class TenantStore(Protocol):
    """Tenants and their tokens. Changes are an operator's, whose name goes to the audit."""

    async def create(self, actor: str, tenant: Tenant) -> None:
        """Adds a tenant, or raises `TenantNameTaken`."""

    async def edit(self, actor: str, tenant: Tenant, before: Tenant | None = None) -> None:
        """Replaces all but the id and the birthday of a tenant.

        Raises `TenantNotFound` or `TenantNameTaken`; and `TenantChanged` when it is not what it
        was `before`, where that is given, nor what it is to become.
        """

    async def read(self, tenant_ids: Collection[UUID]) -> list[Tenant]:
        """These tenants, without those that do not exist."""

    async def list_tenants(self, limit: int, after_name: str = "") -> list[Tenant]:
        """Tenants by name, after the last name of a page."""

    async def add_token(self, actor: str, token: Token) -> None:
        """Adds a token, or raises `TenantNotFound`."""

    async def revoke_token(self, actor: str, digest: bytes) -> Token:
        """Ends a token for good, or raises `TokenNotFound`."""

    async def list_tokens(self, tenant_id: UUID) -> list[Token]:
        """All tokens of a tenant, oldest first, revoked ones too."""

    async def find_token(self, digest: bytes) -> Token | None:
        """The token of a digest, revoked or not: what the API asks before it knows a tenant."""
