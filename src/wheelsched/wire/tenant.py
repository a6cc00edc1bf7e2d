"""Tenants and tokens on the wire: what an operator asks for.

Invariant: a secret is in one answer only, the one that made it.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

MAX_WEIGHT: Final = 1_000
MAX_QUOTA: Final = 2**31 - 1


class Scope(StrEnum):
    """What a token is for. Each is asked for by name: none contains another."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"  # the tokens of the caller's own tenant
    OPERATOR = "operator"  # all tenants and their tokens; not what tenants have


Name = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255})]


class TenantRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant to create."""

    name: Name
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1
    job_quota: Annotated[int, Meta(ge=0, le=MAX_QUOTA)] = 100_000
    requests_per_second: Annotated[int, Meta(ge=1, le=MAX_QUOTA)] = 1_000


class TenantAnswer(Struct, frozen=True, kw_only=True):
    """A tenant; with the secret of its webhook signatures when it was just made."""

    tenant_id: UUID
    name: str
    weight: int
    job_quota: int
    requests_per_second: int
    created_at: datetime
    secret_count: Annotated[int, Meta(description="two while a new one is brought in")] = 1
    secret: Annotated[str | None, Meta(description="`whsec_…`, shown once")] = None


class TenantChanges(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What becomes different of a tenant; the rest stays."""

    name: Name | None = None
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] | None = None
    job_quota: Annotated[int, Meta(ge=0, le=MAX_QUOTA)] | None = None
    requests_per_second: Annotated[int, Meta(ge=1, le=MAX_QUOTA)] | None = None


class RotateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new secret beside the one before it; with `finish`, none, and the one before it ends."""

    finish: bool = False


class TenantPage(Struct, frozen=True, kw_only=True):
    items: list[TenantAnswer]
    next_cursor: str | None


class GrantAnswer(Struct, frozen=True, kw_only=True):
    """A role of the database by which an application schedules jobs, and its tenant."""

    database_role: str
    tenant: str
    granted_at: datetime | None = None


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to make, for a tenant or, when none is named, for the caller's own."""

    name: Name
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=4)] = (
        Scope.READ,
        Scope.WRITE,
    )
    tenant_id: UUID | None = None


class TokenAnswer(Struct, frozen=True, kw_only=True):
    """A token by its id, which is public; with its text when it was just made."""

    token_id: Annotated[str, Meta(description="the SHA-256 of the token, in hex")]
    tenant_id: UUID
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    revoked_at: datetime | None
    token: Annotated[str | None, Meta(description="`wst_…`, shown once")] = None


class TokenPage(Struct, frozen=True, kw_only=True):
    items: list[TokenAnswer]
    next_cursor: str | None
