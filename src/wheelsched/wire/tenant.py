"""Tenants and tokens on the wire.

Invariant: a secret appears in exactly one response, the one that created it.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

MAX_WEIGHT: Final = 1_000
MAX_QUOTA: Final = 2**31 - 1


class Scope(StrEnum):
    """The permissions of a token. No scope includes another."""

    READ = "read"
    WRITE = "write"
    WORK = "work"  # claims runs of queues, and reports on them
    ADMIN = "admin"  # manages the tokens of the caller's own tenant
    OPERATOR = "operator"  # manages all tenants and tokens, but not their jobs


Name = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255})]


class TenantRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant to create."""

    name: Name
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1
    job_quota: Annotated[int, Meta(ge=0, le=MAX_QUOTA)] = 100_000
    requests_per_second: Annotated[int, Meta(ge=1, le=MAX_QUOTA)] = 1_000


class TenantAnswer(Struct, frozen=True, kw_only=True):
    """A tenant; includes its signing secret when it has just been created."""

    tenant_id: UUID
    name: str
    weight: int
    job_quota: int
    requests_per_second: int
    created_at: datetime
    secret_count: Annotated[
        int, Meta(description="Number of signing secrets; two during a rotation.")
    ] = 1
    secret: Annotated[str | None, Meta(description="Signing secret, `whsec_…`; shown once.")] = None


class TenantChanges(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Changes to a tenant; omitted fields stay as they are."""

    name: Name | None = None
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] | None = None
    job_quota: Annotated[int, Meta(ge=0, le=MAX_QUOTA)] | None = None
    requests_per_second: Annotated[int, Meta(ge=1, le=MAX_QUOTA)] | None = None


class RotateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Adds a signing secret next to the current one, or with `finish` removes the old one."""

    finish: bool = False


class TenantPage(Struct, frozen=True, kw_only=True):
    items: list[TenantAnswer]
    next_cursor: str | None


class GrantAnswer(Struct, frozen=True, kw_only=True):
    """A database role through which an application schedules jobs, and its tenant."""

    database_role: str
    tenant: str
    granted_at: datetime | None = None


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to create, for the given tenant or for the caller's own."""

    name: Name
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=5)] = (
        Scope.READ,
        Scope.WRITE,
    )
    tenant_id: UUID | None = None


class TokenAnswer(Struct, frozen=True, kw_only=True):
    """A token, by its public id; includes its text when it has just been created."""

    token_id: Annotated[str, Meta(description="SHA-256 of the token, in hex.")]
    tenant_id: UUID
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    revoked_at: datetime | None
    token: Annotated[str | None, Meta(description="Text of the token, `wst_…`; shown once.")] = None


class TokenPage(Struct, frozen=True, kw_only=True):
    items: list[TokenAnswer]
    next_cursor: str | None
